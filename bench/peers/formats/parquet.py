"""Plain Parquet through pyarrow: the row groups that rows lie in, then a take."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fieldslab.bench.peers.formats.arrow_rows import arrow_rows
from fieldslab.bench.peers.peer import Peer
from fieldslab.bench.peers.source import Row, Workload

GROUP = 2**20
"""Bytes of a row group: smaller than usual, so that a row costs a megabyte and not a hundred."""


def group_rows(source: Workload) -> int:
    """Rows in a row group."""
    return max(1, len(source) * GROUP // max(source.nbytes, 1))


def write(peer: Peer) -> None:
    """The source as an uncompressed Parquet file in small row groups."""
    table = pa.Table.from_batches(peer.source.batches())
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    rows = group_rows(peer.source)
    pq.write_table(table, peer.folder / "data.parquet", row_group_size=rows, **options)


class PyArrow(Peer):
    """Reads the row groups of a batch together."""

    configuration = "row groups of 1 MB, no compression, memory map; torch DataLoader"
    distributions = ("pyarrow", "torch")

    def convert(self) -> None:
        """Write the file."""
        write(self)

    def open(self) -> None:
        """Open the file."""
        self.file = pq.ParquetFile(self.folder / "data.parquet", memory_map=True)
        self.group = group_rows(self.source)

    def random_batch(self, rows: np.ndarray) -> Any:
        """Every row group that is needed, once, and of them the rows."""
        groups, index = np.unique(rows // self.group, return_inverse=True)
        table = self.file.read_row_groups(groups.tolist())
        return table.take(index * self.group + rows % self.group)

    def row(self, row: int) -> Any:
        """One row of its row group."""
        return self.file.read_row_group(row // self.group).slice(row % self.group, 1)

    def sequential(self) -> Iterator[Any]:
        """Batches in order."""
        return iter(self.file.iter_batches(self.batch))

    def loader(self, workers: int, seed: int) -> Iterator[Any]:
        """PyTorch's, a batch at a time."""
        from fieldslab.bench.peers.torch_batches import batches

        return batches(self, workers, seed)

    def rows_of(self, batch: Any) -> list[Row]:
        """Rows of a table."""
        return arrow_rows(batch)
