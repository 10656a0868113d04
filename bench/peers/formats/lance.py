"""Lance."""

from collections.abc import Iterator
from typing import Any

import lance
import numpy as np
import pyarrow as pa

from fieldslab.bench.peers.formats.arrow_rows import arrow_rows
from fieldslab.bench.peers.peer import Peer
from fieldslab.bench.peers.source import Row


class Lance(Peer):
    """`take` of row numbers, the access that Lance is made for."""

    configuration = "write_dataset and take() as they come; a take a batch in a torch DataLoader"
    distributions = ("pylance", "pyarrow", "torch")

    def convert(self) -> None:
        """Write Arrow batches."""
        batches = self.source.batches()
        first = next(batches)
        reader = pa.RecordBatchReader.from_batches(first.schema, _chain(first, batches))
        lance.write_dataset(reader, self.folder / "data.lance")

    def open(self) -> None:
        """Open the dataset."""
        self.data = lance.dataset(self.folder / "data.lance")

    def random_batch(self, rows: np.ndarray) -> Any:
        """One take."""
        return self.data.take(rows.tolist())

    def row(self, row: int) -> Any:
        """A take of one."""
        return self.data.take([row])

    def sequential(self) -> Iterator[Any]:
        """A scan."""
        return iter(self.data.to_batches(batch_size=self.batch))

    def loader(self, workers: int, seed: int) -> Iterator[Any]:
        """PyTorch's, a take a batch; Lance forbids forks.

        Lance's own SafeLanceDataset makes Python lists of each row, which is slower.
        """
        from fieldslab.bench.peers.torch_batches import batches

        options = {"multiprocessing_context": "forkserver"} if workers else {}
        return batches(self, workers, seed, **options)

    def rows_of(self, batch: Any) -> list[Row]:
        """Rows of a table or a record batch."""
        return arrow_rows(batch)


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest
