"""numpy memmap: values and offsets in `.npy` files, by hand."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fieldslab.bench.peers.peer import Peer


class Memmap(Peer):
    """Fancy indexing where rows have one size, a slice a row where they have not."""

    configuration = "values[rows] for fixed rows, a copied slice a row else; torch DataLoader"
    distributions = ("numpy", "torch")

    def convert(self) -> None:
        """Save each array."""
        for name, column in self.source.columns.items():
            np.save(self.folder / f"{name}.npy", column.values)
            if column.offsets is not None:
                np.save(self.folder / f"{name}.offsets.npy", column.offsets)

    def open(self) -> None:
        """Map values, load offsets."""
        self.arrays: dict[str, tuple[np.ndarray, np.ndarray | None]] = {}
        for name, column in self.source.columns.items():
            # A plain array over the map: numpy's memmap subclass makes each access slower.
            values = np.asarray(np.load(self.folder / f"{name}.npy", mmap_mode="r"))
            ragged = column.offsets is not None
            offsets = np.load(self.folder / f"{name}.offsets.npy") if ragged else None
            self.arrays[name] = values, offsets

    def random_batch(self, rows: np.ndarray) -> Any:
        """A dict of arrays, and of lists of arrays."""
        batch: dict[str, Any] = {}
        for name, (values, offsets) in self.arrays.items():
            if offsets is None:
                batch[name] = values[rows]
                continue
            starts, stops = offsets[rows].tolist(), offsets[rows + 1].tolist()
            spans = zip(starts, stops, strict=True)
            batch[name] = [values[start:stop].copy() for start, stop in spans]
        return batch

    def row(self, row: int) -> Any:
        """Copies of the row's values."""
        return {
            name: values[row] if offsets is None else values[offsets[row] : offsets[row + 1]].copy()
            for name, (values, offsets) in self.arrays.items()
        }

    def sequential(self) -> Iterator[Any]:
        """Batches in order."""
        for start in range(0, len(self.source), self.batch):
            stop = min(start + self.batch, len(self.source))
            yield self.random_batch(np.arange(start, stop))

    def loader(self, workers: int, seed: int) -> Iterator[Any]:
        """PyTorch's, a batch at a time."""
        from fieldslab.bench.peers.torch_batches import batches

        return batches(self, workers, seed)
