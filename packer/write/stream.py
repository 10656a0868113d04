"""From a source to shards: read, leave out damaged rows, convert, cut to shards, write."""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from fieldslab.packer.convert.batch import SourceBatch
from fieldslab.packer.convert.compress import Compressors, count_row_bytes
from fieldslab.packer.convert.damaged_rows import (
    LeftOutRow,
    add_file_to_error,
    find_damaged_rows,
    find_runs_between,
    make_left_out_row,
)
from fieldslab.packer.convert.fieldplan import ConvertedRows
from fieldslab.packer.pack_options import Progress
from fieldslab.packer.plan import Plan
from fieldslab.packer.spans import ShardTask
from fieldslab.packer.write.ahead import read_ahead
from fieldslab.packer.write.attempts import Attempts
from fieldslab.packer.write.batches import read_batches
from fieldslab.packer.write.engines.engine import Engine
from fieldslab.packer.write.indexing import IndexingThreads
from fieldslab.packer.write.prepare import SharedData
from fieldslab.packer.write.versions import check_versions, find_versions
from fieldslab.packer.write.writers import ShardRecord, ShardWriter
from fieldslab.schemas import layout
from fieldslab.schemas.cores import count_usable_cores
from fieldslab.schemas.digest import BLOCK_DIGESTS, BlockDigest
from fieldslab.schemas.errors import SourceInconsistent, UndecodableImage
from fieldslab.schemas.fields import Field
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.write_errors import name_write_errors

MakeWriter: TypeAlias = Callable[[Path, list[Field], Compressors, BlockDigest], ShardWriter]
"""What makes the writer of a shard."""


def ignore_progress(rows: int, bytes: int) -> None:
    """Take progress and do nothing with it."""


@dataclass(frozen=True)
class ShardWork:
    """What it takes to write any shard of a plan, in this process or another.

    `jobs` says how many tasks share the cores of a machine.
    """

    plan: Plan
    prepared: SharedData
    attempts: Attempts
    jobs: int = 1

    def write(self, task: ShardTask, progress: Progress = ignore_progress) -> ShardRecord:
        """Write one shard by `attempts`.

        Raises SourceError and OutputError, and their subclasses.
        """
        with closing(self.read(task)) as stream:
            record = self.attempts.write(
                layout.name_shard(task.number),
                lambda folder: stream.write_shard(
                    task.number, folder, progress, make_writer=self.choose_writer(task)
                ),
            )
        check_shard_not_empty(record)
        return record

    def choose_writer(self, task: ShardTask) -> MakeWriter:
        """Return what writes the shard of a task."""
        return ShardWriter

    def read(self, task: ShardTask) -> "RowStream":
        """Read the rows of a task."""
        threads = max(1, count_usable_cores() // self.jobs)
        return RowStream(self.plan, self.prepared, task, threads)


class RowStream:
    """The rows of a task on their way into shards: one shard, or of a stream one after the other.

    A batch is read ahead in a thread. If it can be converted, its rows go to the shard. If an image
    in it cannot be decoded and such rows are left out, the runs of rows between them take the place
    of the batch. If the shard is full, the rest of the batch waits for the next shard.
    """

    def __init__(self, plan: Plan, prepared: SharedData, task: ShardTask, threads: int = 1) -> None:
        """Begin to read the rows of a task; `threads` index photographs."""
        self._plan = plan
        self._fields = [field_plan.field for field_plan in plan.fields]
        self._prepared = prepared
        self._read: Generator[SourceBatch, None, None] = read_ahead(
            read_batches(plan.source, task.spans, plan.fields, task.first_row)
        )
        self._indexing = IndexingThreads(plan.fields, threads)
        self._pieces = self._indexing.split_batches(self._read)
        self._waiting: deque[SourceBatch] = deque()
        self._damaged: deque[LeftOutRow] = deque()  # in front of rows that wait, or behind them

    def write_shard(
        self,
        number: int,
        folder: Path,
        progress: Progress,
        target: int | None = None,
        make_writer: MakeWriter = ShardWriter,
    ) -> ShardRecord:
        """Write a shard into an empty folder: all rows, or as many as make `target` bytes.

        The shard ends behind the row that fills it, whatever batches the rows came in.
        """
        left_out: list[LeftOutRow] = []
        room = target
        with name_write_errors(folder):
            digest = BLOCK_DIGESTS[self._plan.options.digest]
            shard = make_writer(folder, self._fields, self._prepared.compressors, digest)
            while room is None or room > 0:
                batch = self._next_batch()
                left_out += self._pop_damaged_before(batch)
                if batch is None:
                    break
                try:
                    columns = self._convert(batch)
                except UndecodableImage as error:
                    progress(self._split_at_damaged(batch, error), 0)
                    continue
                if room is not None:
                    sizes = np.cumsum(sum(map(count_row_bytes, self._fields, columns)))
                    count = min(int(np.searchsorted(sizes, room)) + 1, len(batch))
                    room -= int(sizes[count - 1])
                    if count < len(batch):
                        self._waiting.appendleft(batch.slice(count, len(batch) - count))
                        batch = batch.slice(0, count)
                        columns = self._convert(batch)
                shard.append(columns)
                progress(len(batch), batch.rows.nbytes)
            return shard.close(number, find_versions(self._plan), left_out)

    def is_exhausted(self) -> bool:
        """Return True if no rows are left; may read ahead to know."""
        batch = self._next_batch()
        if batch is not None:
            self._waiting.appendleft(batch)
        return batch is None and not self._damaged

    def close(self) -> None:
        """Stop the threads."""
        self._indexing.close()
        self._read.close()

    def _next_batch(self) -> SourceBatch | None:
        return self._waiting.popleft() if self._waiting else next(self._pieces, None)

    def _pop_damaged_before(self, batch: SourceBatch | None) -> list[LeftOutRow]:
        """Damaged rows in front of a batch; all of them where no batch follows."""
        end = None if batch is None else self._plan.first_row + batch.first_row
        rows = []
        while self._damaged and (end is None or self._damaged[0].row < end):
            rows.append(self._damaged.popleft())
        return rows

    def _convert(self, batch: SourceBatch) -> list[ConvertedRows]:
        categories = self._prepared.categories
        try:
            return [
                self._indexing.convert(field_plan, batch, categories.get(field_plan.field.name))
                for field_plan in self._plan.fields
            ]
        except SourceInconsistent as error:
            add_file_to_error(error, self._plan.source, self._plan.first_row)
            raise

    def _split_at_damaged(self, batch: SourceBatch, error: UndecodableImage) -> int:
        """Have the runs of rows between damaged images come next; the number of damaged rows.

        Raises `error` where such rows are not left out.
        """
        damaged = (
            find_damaged_rows(self._plan.fields, batch) if self._plan.options.leave_out else {}
        )
        if not damaged:
            raise error
        runs = [batch.slice(start, rows) for start, rows in find_runs_between(damaged, len(batch))]
        self._waiting.extendleft(reversed(runs))
        first_row = self._plan.first_row + batch.first_row
        self._damaged.extendleft(
            make_left_out_row(damage, self._plan.source, first_row + row)
            for row, damage in reversed(damaged.items())
        )
        return len(damaged)


def check_shard_not_empty(record: ShardRecord) -> None:
    """Raise SourceInconsistent where a shard has no row left."""
    if record.left_out and not record.rows:
        first = record.left_out[0]
        raise SourceInconsistent(
            f"none of {len(record.left_out)} images can be decoded, and no shard may be empty",
            file=first.file,
            field=first.field,
            row=f"{first.row} and on",
            found=first.reason,
            hint=f"A larger {mark_option('shard_size')} joins these rows to others; "
            f"{mark_option('rows')} leaves them out.",
        )


def write_shards(
    work: ShardWork,
    tasks: Sequence[ShardTask],
    accept: Callable[[ShardRecord], None],
    engine: Engine,
    progress: Progress,
) -> None:
    """Write the shards of tasks by an engine; `accept` gets the record of each as it is finished.

    Raises OutputError where a worker has other versions of libraries than this process.
    """
    versions = find_versions(work.plan)
    with closing(engine.run(work, tasks, progress)) as records:
        for record in records:
            check_versions(record.versions, versions)
            accept(record)
