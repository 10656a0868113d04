"""Write shards: for each batch, for each field, convert and append."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from fieldslab.packer.convert.columns import convert
from fieldslab.packer.convert.compress import row_sizes
from fieldslab.packer.convert.fieldplan import Converted
from fieldslab.packer.plan import Plan, ShardTask
from fieldslab.packer.write.ahead import read_ahead
from fieldslab.packer.write.commit import writing
from fieldslab.packer.write.prepare import Prepared, span_batches
from fieldslab.packer.write.writers import ShardRecord, ShardWriter


class Progress(Protocol):
    """Told of every batch; the CLI draws a bar with it."""

    def __call__(self, rows: int, bytes: int) -> None:
        """So many more rows, of so many bytes, are packed."""


def quiet(rows: int, bytes: int) -> None:
    """Progress that nobody looks at."""


@dataclass(frozen=True)
class ShardWork:
    """What it takes to write any shard of a plan, in this process or another."""

    plan: Plan
    prepared: Prepared

    def write(self, task: ShardTask, folder: Path, progress: Progress = quiet) -> ShardRecord:
        """Write one shard into an empty folder.

        Raises SourceError and OutputError, and their subclasses.
        """
        with closing(read_ahead(batches(self.plan, task))) as stream:
            return self._write(task, Pushback(stream), folder, progress)

    def write_stream(
        self, task: ShardTask, stream: "Pushback", folder: Path, progress: Progress
    ) -> ShardRecord:
        """Write the next shard of a stream, whose length nobody knows: about `shard_size` bytes.

        It ends behind the row that fills it, whatever batches the rows came in. Shards grow
        slowly, so that a very long stream has not too many.
        """
        size = self.plan.options.shard_size
        return self._write(task, stream, folder, progress, max(size, task.number * size // 64))

    def _write(
        self, task: ShardTask, stream: "Pushback", folder: Path, progress: Progress,
        room: int | None = None,
    ) -> ShardRecord:  # fmt: skip
        row = task.first_row
        with writing(folder):
            fields = [one.field for one in self.plan.fields]
            shard = ShardWriter(folder, fields, self.prepared.compressors)
            for batch in stream:
                columns = self._convert(batch, row)
                if room is not None:
                    ends = np.cumsum(sum(map(row_sizes, fields, columns)))
                    count = int(np.searchsorted(ends, room)) + 1
                    if count < batch.num_rows:
                        stream.push(batch.slice(count))
                        batch = batch.slice(0, count)
                        columns = self._convert(batch, row)
                    room -= int(ends[batch.num_rows - 1])
                for converted, writer in zip(columns, shard.writers, strict=True):
                    writer.append(converted)
                row += batch.num_rows
                progress(batch.num_rows, batch.nbytes)
                if room is not None and room <= 0:
                    break
            return shard.close(task.number)

    def _convert(self, batch: pa.RecordBatch, first_row: int) -> list[Converted]:
        positions = {column: at for at, column in enumerate(self.plan.columns)}
        categories = self.prepared.categories
        return [
            convert(one, batch, positions, first_row, categories.get(one.field.name))
            for one in self.plan.fields
        ]


class Pushback:
    """An iterator of batches that takes back what was not needed."""

    def __init__(self, stream: Iterator[pa.RecordBatch]) -> None:
        self._stream = stream
        self._back: list[pa.RecordBatch] = []

    def __iter__(self) -> "Pushback":
        return self

    def __next__(self) -> pa.RecordBatch:
        return self._back.pop() if self._back else next(self._stream)

    def push(self, batch: pa.RecordBatch) -> None:
        """Have `batch` come next."""
        self._back.append(batch)

    def exhausted(self) -> bool:
        """Whether nothing is left; may read ahead for it."""
        if not self._back:
            self._back.extend(islice(self._stream, 1))
        return not self._back


def batches(plan: Plan, task: ShardTask) -> Iterator[pa.RecordBatch]:
    """The rows of a shard, or of a whole stream."""
    for span in task.spans:
        yield from span_batches(plan, span, plan.columns, plan.fields)
