"""What those have in common whose batches are views: 224 x 224 pixels, decoded and cropped."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fieldslab.bench.peers.peer import NotOffered, Peer

SIZE = 224


class Views(Peer):
    """Shuffled epochs of photographs, by a loader that decodes, crops and resizes.

    A batch has views (uint8[n, 224, 224, 3]) of parts that are drawn anew for each epoch, as
    torchvision's RandomResizedCrop draws them, and labels.
    """

    def random_batch(self, rows: np.ndarray) -> Any:
        """Epochs are compared."""
        raise NotOffered("epochs alone")

    def row(self, row: int) -> Any:
        """Epochs are compared."""
        raise NotOffered("epochs alone")

    def sequential(self) -> Iterator[Any]:
        """A shuffled epoch by one thread."""
        return self.loader(1, 0)
