"""bagz."""

from collections.abc import Iterator
from typing import Any

import bagz
import numpy as np

from fieldslab.bench.peers.peer import Peer
from fieldslab.bench.peers.records import RecordReader, encode


class Bagz(Peer):
    """A record a row, read by index arrays."""

    configuration = "no compression (.bag), limits in memory, max_parallelism 1; torch DataLoader"
    distributions = ("bagz", "torch")

    def convert(self) -> None:
        """Write all records."""
        with bagz.Writer(str(self.folder / "data.bag")) as writer:
            for row in range(len(self.source)):
                writer.write(encode(self.source.row(row)))

    def open(self) -> None:
        """Open the file; its index of limits is kept in memory."""
        options = bagz.Reader.Options(
            limits_storage=bagz.LimitsStorage.IN_MEMORY,
            max_parallelism=1,  # measured: with threads, batches of 64 photographs take 8x as long
        )
        self.data = bagz.Reader(str(self.folder / "data.bag"), options)
        self.decode = RecordReader(self.source)

    def random_batch(self, rows: np.ndarray) -> Any:
        """All records at once."""
        return [self.decode(record) for record in self.data.read_indices(rows)]

    def row(self, row: int) -> Any:
        """One record."""
        return self.decode(self.data[row])

    def sequential(self) -> Iterator[Any]:
        """Ranges of records."""
        for start in range(0, len(self.source), self.batch):
            count = min(self.batch, len(self.source) - start)
            yield [self.decode(record) for record in self.data.read_range(start, count)]

    def loader(self, workers: int, seed: int) -> Iterator[Any]:
        """PyTorch's, a batch at a time."""
        from fieldslab.bench.peers.torch_batches import batches

        return batches(self, workers, seed)
