"""Write shards: for each batch, for each field, convert and append."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from fieldslab.packer.ahead import read_ahead
from fieldslab.packer.columns import convert
from fieldslab.packer.commit import writing
from fieldslab.packer.plan import Plan, ShardTask
from fieldslab.packer.prepare import BATCH_BYTES, Prepared
from fieldslab.packer.source import read_span
from fieldslab.packer.writers import ShardRecord, ShardWriter


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
            return self._write(task, stream, folder, progress)

    def write_stream(
        self, task: ShardTask, stream: Iterator[pa.RecordBatch], folder: Path, progress: Progress
    ) -> ShardRecord:
        """Write the next shard of a stream, whose length nobody knows: about `shard_size` bytes.

        Shards grow slowly, so that a very long stream has not too many.
        """
        size = self.plan.options.shard_size
        return self._write(task, stream, folder, progress, max(size, task.number * size // 64))

    def _write(
        self, task: ShardTask, stream: Iterator[pa.RecordBatch], folder: Path,
        progress: Progress, stop_after: int | None = None,
    ) -> ShardRecord:  # fmt: skip
        plan = self.plan
        positions = {column: at for at, column in enumerate(plan.columns)}
        row, size = task.first_row, 0
        with writing(folder):
            fields = [one.field for one in plan.fields]
            shard = ShardWriter(folder, fields, self.prepared.compressors)
            for batch in stream:
                for one, writer in zip(plan.fields, shard.writers, strict=True):
                    index = self.prepared.categories.get(one.field.name)
                    writer.append(convert(one, batch, positions, row, index))
                row += batch.num_rows
                size += batch.nbytes
                progress(batch.num_rows, batch.nbytes)
                if stop_after is not None and size >= stop_after:
                    break
            return shard.close(task.number)


def stream_shards(task: ShardTask, stream: Iterator[pa.RecordBatch]) -> Iterator[
    tuple[int, Iterator[pa.RecordBatch]]
]:  # fmt: skip
    """Number and batches of each shard of a stream, as long as there is something to read."""
    number = task.number
    for first in stream:
        yield number, chain([first], stream)
        number += 1


def batches(plan: Plan, task: ShardTask) -> Iterator[pa.RecordBatch]:
    """The rows of a shard, or of a whole stream."""
    for span in task.spans:
        yield from read_span(plan.source, span, plan.columns, BATCH_BYTES)
