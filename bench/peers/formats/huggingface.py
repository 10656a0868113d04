"""HuggingFace datasets, in the formats "numpy" and "arrow"."""

from collections.abc import Iterator
from typing import Any

import datasets
import numpy as np
import pyarrow as pa

from fieldslab.bench.peers.formats.arrow_rows import arrow_rows
from fieldslab.bench.peers.peer import Peer
from fieldslab.bench.peers.source import Row


class Arrow(Peer):
    """Tables, as the format "arrow" returns them: the least that the library does."""

    configuration = 'save_to_disk, with_format("arrow"); torch DataLoader with a BatchSampler'
    distributions = ("datasets", "pyarrow", "torch")
    format = "arrow"

    def convert(self) -> None:
        """Save the Arrow table."""
        table = pa.Table.from_batches(self.source.batches())
        datasets.Dataset(table).save_to_disk(self.folder / "data")

    def open(self) -> None:
        """Map it again."""
        self.plain = datasets.load_from_disk(str(self.folder / "data"))
        self.data = self.plain.with_format(self.format)

    def random_batch(self, rows: np.ndarray) -> Any:
        """Indexing by a list of rows."""
        batch = self.data[rows.tolist()]
        # In the format "arrow" it is one slice of the file a row: copied, as for all peers.
        return batch.combine_chunks() if isinstance(batch, pa.Table) else batch

    def row(self, row: int) -> Any:
        """Indexing by a number."""
        return self.data[row]  # in the format "arrow" a view, which is not copied

    def sequential(self) -> Iterator[Any]:
        """Slices, copied as random batches are."""
        for start in range(0, len(self.source), self.batch):
            batch = self.data[start : start + self.batch]
            yield batch.take(np.arange(len(batch))) if isinstance(batch, pa.Table) else batch

    def loader(self, workers: int, seed: int) -> Iterator[Any]:
        """PyTorch's, a batch at a time."""
        from fieldslab.bench.peers.torch_batches import batches

        return batches(self, workers, seed)

    def rows_of(self, batch: Any) -> list[Row]:
        """Rows of a table, or of a dict of columns."""
        return arrow_rows(batch) if isinstance(batch, pa.Table) else super().rows_of(batch)


class Numpy(Arrow):
    """numpy arrays, as most training code asks for."""

    configuration = 'with_format("numpy"), which makes int64 of integers; DataLoader of "torch"'
    format = "numpy"

    def loader(self, workers: int, seed: int) -> Iterator[Any]:
        """PyTorch's over rows in the format "torch", which the library fetches batch-wise."""
        import torch
        from torch.utils.data import DataLoader

        from fieldslab.bench.peers.torch_batches import collate

        generator = torch.Generator().manual_seed(seed)
        return iter(
            DataLoader(
                self.plain.with_format("torch"),
                self.batch,
                shuffle=True,
                generator=generator,
                num_workers=workers,
                collate_fn=collate(self.source),
            )
        )
