"""Plain Parquet through polars."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from fieldslab.bench.peers.formats.arrow_rows import arrow_rows
from fieldslab.bench.peers.formats.parquet import write
from fieldslab.bench.peers.peer import Peer
from fieldslab.bench.peers.source import Row


class Polars(Peer):
    """A lazy scan, and of it the rows that are asked for."""

    configuration = "scan_parquet of row groups of 1 MB, gather(); torch DataLoader"
    distributions = ("polars", "torch")

    def convert(self) -> None:
        """Write the file, with the same row groups as for pyarrow."""
        write(self)

    def open(self) -> None:
        """Make the scan."""
        self.scan = pl.scan_parquet(self.folder / "data.parquet")

    def random_batch(self, rows: np.ndarray) -> Any:
        """The rows by number."""
        return self.scan.gather(rows).collect()

    def row(self, row: int) -> Any:
        """A slice of one."""
        return self.scan.slice(row, 1).collect()

    def sequential(self) -> Iterator[Any]:
        """The whole file, in memory, in slices."""
        return self.scan.collect().iter_slices(self.batch)

    def loader(self, workers: int, seed: int) -> Iterator[Any]:
        """PyTorch's, a batch at a time; polars forbids forks."""
        from fieldslab.bench.peers.torch_batches import batches

        options = {"multiprocessing_context": "forkserver"} if workers else {}
        return batches(self, workers, seed, **options)

    def rows_of(self, batch: Any) -> list[Row]:
        """Rows of a frame."""
        return arrow_rows(batch.to_arrow())
