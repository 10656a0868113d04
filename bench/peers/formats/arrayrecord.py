"""ArrayRecord files, read by Grain."""

from collections.abc import Iterator
from typing import Any

import grain
import numpy as np
from absl import flags
from array_record.python.array_record_data_source import ArrayRecordDataSource
from array_record.python.array_record_module import ArrayRecordWriter

from fieldslab.bench.peers.peer import Peer
from fieldslab.bench.peers.records import RecordReader, encode
from fieldslab.bench.peers.source import Row

FILES = 4
"""The source reads as many at once, in threads."""


class ArrayRecord(Peer):
    """A record a row, one row a group, as random access needs it."""

    configuration = "group_size:1, uncompressed, 4 files read in threads; Grain's MapDataset"
    distributions = ("array_record", "grain")

    def convert(self) -> None:
        """Write the files, each with a run of rows."""
        cuts = np.linspace(0, len(self.source), FILES + 1).astype(int)
        for number in range(FILES):
            path = str(self.folder / f"data-{number:05}-of-{FILES:05}.arrayrecord")
            writer = ArrayRecordWriter(path, "group_size:1,uncompressed")
            for row in range(cuts[number], cuts[number + 1]):
                writer.write(encode(self.source.row(row)))
            writer.close()

    def open(self) -> None:
        """Open the files."""
        paths = sorted(str(path) for path in self.folder.glob("*.arrayrecord"))
        self.data = ArrayRecordDataSource(paths)
        self.decode = RecordReader(self.source)

    def random_batch(self, rows: np.ndarray) -> Any:
        """All records at once."""
        return [self.decode(record) for record in self.data.__getitems__(rows.tolist())]

    def row(self, row: int) -> Any:
        """One record."""
        return self.decode(self.data[row])

    def sequential(self) -> Iterator[Any]:
        """Grain without a shuffle."""
        return self._batches(grain.MapDataset.source(self.data), 0)

    def loader(self, workers: int, seed: int) -> Iterator[Any]:
        """Grain with a shuffle."""
        return self._batches(grain.MapDataset.source(self.data).shuffle(seed=seed), workers)

    def _batches(self, data: Any, workers: int) -> Iterator[Any]:
        rows = data.map(self.decode if workers == 0 else Sendable(self.decode))
        if workers == 0:
            batches = rows.batch(self.batch, batch_fn=list)
            return iter(batches.to_iter_dataset(grain.ReadOptions(prefetch_buffer_size=2)))
        flags.FLAGS.mark_as_parsed()  # as absl's app.run would have done
        batches = rows.to_iter_dataset().batch(self.batch, batch_fn=list)
        return iter(batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers)))


class Sendable:
    """Decodes for another process, where views cannot go."""

    def __init__(self, decode: RecordReader) -> None:
        self.decode = decode

    def __call__(self, record: bytes) -> Row:
        """One row, with bytes for memoryviews."""
        row = self.decode(record)
        return {k: bytes(v) if isinstance(v, memoryview) else v for k, v in row.items()}
