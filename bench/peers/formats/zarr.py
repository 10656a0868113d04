"""zarr, format 3."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import zarr

from fieldslab.bench.peers.formats.array_rows import ArrayRows

CHUNK, SHARD = 2**16, 2**26
"""Bytes. Small chunks, so that a row does not cost a megabyte; shards, so that files stay few."""


class Zarr(ArrayRows):
    """Uncompressed arrays in shards of 64 MB with chunks of 64 KB, or of a row."""

    configuration = "chunks of 64 KB or a row, shards of 64 MB, no compression; torch DataLoader"
    distributions = ("zarr", "torch")

    def convert(self) -> None:
        """Write each array."""
        for name, column in self.source.columns.items():
            row = column.values[:1].nbytes
            chunk = min(max(1, CHUNK // row), len(column.values))
            shard = max(1, SHARD // (chunk * row)) * chunk
            shard = min(shard, -(-len(column.values) // chunk) * chunk)
            rest = column.values.shape[1:]
            array = zarr.create_array(
                self.folder / name,
                shape=column.values.shape,
                dtype=column.values.dtype,
                chunks=(chunk, *rest),
                shards=(shard, *rest),
                compressors=None,
            )
            for start in range(0, len(column.values), shard):
                array[start : start + shard] = column.values[start : start + shard]
            if column.offsets is not None:
                np.save(self.folder / f"{name}.offsets.npy", column.offsets)

    def open(self) -> None:
        """Open the arrays, load the offsets."""
        self.arrays = {}
        for name, column in self.source.columns.items():
            ragged = column.offsets is not None
            offsets = np.load(self.folder / f"{name}.offsets.npy") if ragged else None
            self.arrays[name] = zarr.open_array(self.folder / name, mode="r"), offsets

    def random_batch(self, rows: np.ndarray) -> Any:
        """Orthogonal indexing for fixed rows, one slice a row for ragged ones."""
        batch: dict[str, Any] = {}
        for name, (values, offsets) in self.arrays.items():
            if offsets is None:
                batch[name] = values.oindex[rows]
            else:
                batch[name] = [values[offsets[row] : offsets[row + 1]] for row in rows]
        return batch

    def loader(self, workers: int, seed: int) -> Iterator[Any]:
        """PyTorch's, a batch at a time; workers are spawned, since zarr runs an event loop."""
        from fieldslab.bench.peers.torch_batches import batches

        options = {"multiprocessing_context": "forkserver"} if workers else {}
        return batches(self, workers, seed, **options)
