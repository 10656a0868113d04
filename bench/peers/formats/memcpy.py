"""The ceiling: a memcpy of the same rows from mapped memory into a buffer, and nothing else."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fieldslab.bench.peers.peer import NotOffered, Peer
from fieldslab.bench.peers.source import Row
from fieldslab.bench.spans import copy_spans


class Memcpy(Peer):
    """Copies rows by addresses that were computed before; one thread, one buffer."""

    configuration = "addresses known, one buffer used again, one thread"
    distributions = ("numba",)

    def convert(self) -> None:
        """There is nothing to convert."""

    def open(self) -> None:
        """Addresses and lengths of every field of every row."""
        columns = self.source.columns.values()
        starts, sizes = [], []
        for column in columns:
            width = column.values.itemsize * column.values[:1].size
            ends = np.arange(len(self.source) + 1) if column.offsets is None else column.offsets
            starts.append(column.values.ctypes.data + ends[:-1] * width)
            sizes.append(np.diff(ends) * width)
        self.starts, self.sizes = np.stack(starts, 1), np.stack(sizes, 1)
        largest = np.sort(self.sizes.sum(1))[-self.batch :].sum()
        self.buffer = np.empty(largest, np.uint8)

    def random_batch(self, rows: np.ndarray) -> Any:
        """The bytes of these rows, row by row; a view of the buffer."""
        assert len(rows) <= self.batch, "the buffer holds one batch"
        sizes = self.sizes[rows].reshape(-1)
        copy_spans(self.starts[rows].reshape(-1), sizes, self.buffer.ctypes.data)
        return rows, self.buffer

    def row(self, row: int) -> Any:
        """One row."""
        return self.random_batch(np.array([row]))

    def sequential(self) -> Iterator[Any]:
        """All rows in order."""
        return self._batches(np.arange(len(self.source)))

    def loader(self, workers: int, seed: int) -> Iterator[Any]:
        """A shuffled epoch in this thread; there are no workers."""
        if workers:
            raise NotOffered("one thread is the ceiling")
        return self._batches(np.random.default_rng(seed).permutation(len(self.source)))

    def _batches(self, rows: np.ndarray) -> Iterator[Any]:
        for start in range(0, len(rows), self.batch):
            yield self.random_batch(rows[start : start + self.batch])

    def rows_of(self, batch: Any) -> list[Row]:
        """Rows cut out of the buffer."""
        rows, buffer = batch
        result, start = [], 0
        for row in rows:
            values: Row = {}
            for name, size in zip(self.source.columns, self.sizes[row], strict=True):
                values[name] = bytes(buffer[start : start + size])
                start += size
            result.append(values)
        return result
