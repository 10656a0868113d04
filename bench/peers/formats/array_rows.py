"""Rows of arrays that are sliced as numpy's are: what h5py and zarr have in common."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fieldslab.bench.peers.peer import Peer


class ArrayRows(Peer):
    """Values by field name, with offsets where rows differ in size."""

    arrays: dict[str, tuple[Any, np.ndarray | None]]

    def row(self, row: int) -> Any:
        """One row of each array."""
        return {
            name: values[row] if offsets is None else values[offsets[row] : offsets[row + 1]]
            for name, (values, offsets) in self.arrays.items()
        }

    def sequential(self) -> Iterator[Any]:
        """Slices of each array, ragged ones cut into rows."""
        for start in range(0, len(self.source), self.batch):
            stop = min(start + self.batch, len(self.source))
            batch: dict[str, Any] = {}
            for name, (values, offsets) in self.arrays.items():
                if offsets is None:
                    batch[name] = values[start:stop]
                    continue
                part = offsets[start : stop + 1]
                batch[name] = np.split(values[part[0] : part[-1]], part[1:-1] - part[0])
            yield batch
