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
from fieldslab.packer.convert.soundness import (
    LeftOut,
    damaged_rows,
    left_out,
    name_file,
    runs_between,
)
from fieldslab.packer.plan import Plan, ShardTask
from fieldslab.packer.write.ahead import read_ahead
from fieldslab.packer.write.commit import writing
from fieldslab.packer.write.prepare import Prepared, span_batches
from fieldslab.packer.write.writers import ShardRecord, ShardWriter
from fieldslab.schemas.errors import SourceInconsistent, UndecodableImage
from fieldslab.schemas.optiontext import option


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
            record = self._write(task, Pushback(stream), folder, progress)
        check_any_left(record)
        return record

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
        self,
        task: ShardTask,
        stream: "Pushback",
        folder: Path,
        progress: Progress,
        room: int | None = None,
    ) -> ShardRecord:
        row, missing = task.first_row, list[LeftOut]()
        with writing(folder):
            fields = [one.field for one in self.plan.fields]
            shard = ShardWriter(folder, fields, self.prepared.compressors)
            for batch in stream:
                taken = batch.num_rows
                for start, count, columns in self._sound(batch, row, missing):
                    if room is not None:
                        ends = np.cumsum(sum(map(row_sizes, fields, columns)))
                        fit = min(int(np.searchsorted(ends, room)) + 1, count)
                        if fit < count:
                            columns = self._convert(batch.slice(start, fit), row + start)
                        room -= int(ends[fit - 1])
                        count = fit
                    for converted, writer in zip(columns, shard.writers, strict=True):
                        writer.append(converted)
                    if room is not None and room <= 0:
                        taken = start + count
                        break
                row += taken
                progress(taken, batch.slice(0, taken).nbytes)
                if taken < batch.num_rows:
                    stream.push(batch.slice(taken))
                if room is not None and room <= 0:
                    break
            return shard.close(task.number, missing)

    def _sound(
        self, batch: pa.RecordBatch, first_row: int, missing: list[LeftOut]
    ) -> Iterator[tuple[int, int, list[Converted]]]:
        """Runs of rows, converted: all rows at once where no image is left out.

        Enters into `missing` what lies before a run, or behind the last.
        """
        try:
            yield 0, batch.num_rows, self._convert(batch, first_row)
            return
        except UndecodableImage:
            if not self.plan.options.leave_out:
                raise
        positions = {column: at for at, column in enumerate(self.plan.columns)}
        damaged = damaged_rows(self.plan.fields, batch, positions, first_row)
        waiting = [
            (at, left_out(error, self.plan.source, self.plan.first_row + first_row + at))
            for at, error in damaged.items()
        ]
        for start, count in runs_between(damaged, batch.num_rows):
            missing += [one for at, one in waiting if at < start]
            waiting = [(at, one) for at, one in waiting if at > start]
            yield start, count, self._convert(batch.slice(start, count), first_row + start)
        missing += [one for _, one in waiting]

    def _convert(self, batch: pa.RecordBatch, first_row: int) -> list[Converted]:
        positions = {column: at for at, column in enumerate(self.plan.columns)}
        categories = self.prepared.categories
        try:
            return [
                convert(one, batch, positions, first_row, categories.get(one.field.name))
                for one in self.plan.fields
            ]
        except SourceInconsistent as error:
            name_file(error, self.plan.source, self.plan.first_row)
            raise


def check_any_left(record: ShardRecord) -> None:
    """Raise SourceInconsistent where a shard has no row left."""
    if record.left_out and not record.rows:
        first = record.left_out[0]
        raise SourceInconsistent(
            f"none of {len(record.left_out)} images can be decoded, and no shard may be empty",
            file=first.file,
            field=first.field,
            row=f"{first.row} and on",
            found=first.reason,
            hint=f"A larger {option('shard_size')} joins these rows to others; {option('rows')} "
            "leaves them out.",
        )


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
