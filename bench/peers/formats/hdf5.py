"""h5py: datasets of values, and of values with offsets where rows differ in size."""

from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from fieldslab.bench.peers.formats.array_rows import ArrayRows


class Contiguous(ArrayRows):
    """Datasets without chunks: the layout that h5py reads rows from fastest."""

    configuration = "contiguous datasets; sorted fancy indexing for fixed rows; torch DataLoader"
    distributions = ("h5py", "torch")

    def storage(self, values: np.ndarray) -> dict[str, Any]:
        """How a dataset is stored."""
        return {}

    def convert(self) -> None:
        """Write each array as a dataset."""
        with h5py.File(self.folder / "data.h5", "w", libver="latest") as file:
            for name, column in self.source.columns.items():
                file.create_dataset(name, data=column.values, **self.storage(column.values))
                if column.offsets is not None:
                    file[f"{name}.offsets"] = column.offsets

    def open(self) -> None:
        """Open the file, load the offsets."""
        self.file = h5py.File(self.folder / "data.h5")
        self.arrays = {}
        for name, column in self.source.columns.items():
            offsets = None if column.offsets is None else self.file[f"{name}.offsets"][:]
            self.arrays[name] = self.file[name], offsets

    def random_batch(self, rows: np.ndarray) -> Any:
        """A dict of arrays, and of lists of arrays."""
        batch: dict[str, Any] = {}
        order = np.argsort(rows)
        back = np.empty_like(order)
        back[order] = np.arange(len(rows))
        for name, (values, offsets) in self.arrays.items():
            if offsets is not None:
                batch[name] = [values[offsets[row] : offsets[row + 1]] for row in rows]
            elif values.ndim > 1 and values[:1].nbytes > 65536:
                # Measured: of large rows, one at a time is faster than a selection of all.
                batch[name] = np.empty((len(rows), *values.shape[1:]), values.dtype)
                for i, row in enumerate(rows):
                    values.read_direct(batch[name], np.s_[row], np.s_[i])
            else:
                batch[name] = values[rows[order]][back]  # h5py asks for increasing indices
        return batch

    def loader(self, workers: int, seed: int) -> Iterator[Any]:
        """PyTorch's, a batch at a time."""
        from fieldslab.bench.peers.torch_batches import batches

        return batches(self, workers, seed)


class Gzip(Contiguous):
    """Chunks of about 1 MB, compressed: as files of physics are usually found."""

    configuration = "chunks of 1 MB, gzip 4 with shuffle; torch DataLoader"

    def storage(self, values: np.ndarray) -> dict[str, Any]:
        """Chunked along the rows, compressed."""
        rows = min(len(values), max(1, 2**20 // values[:1].nbytes))
        return {"chunks": (rows, *values.shape[1:]), "compression": "gzip", "shuffle": True}
