"""Pack: for each shard task, for each batch, for each field: convert and append."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from fieldslab.packer.ahead import read_ahead
from fieldslab.packer.categories import Categories, CategoryIndex
from fieldslab.packer.columns import convert
from fieldslab.packer.commit import Staging, check_output, writing
from fieldslab.packer.finish import finish
from fieldslab.packer.options import parse_options
from fieldslab.packer.plan import Plan, ShardTask, make_plan
from fieldslab.packer.source import find_source, read_span
from fieldslab.packer.writers import ShardRecord, ShardWriter
from fieldslab.schemas import layout
from fieldslab.schemas.manifest import Manifest

BATCH_BYTES = 32 * 1024 * 1024
"""About so much Arrow data is in flight at a time; two batches are read ahead."""


class Progress(Protocol):
    """Told of every batch; the CLI draws a bar with it."""

    def __call__(self, rows: int, bytes: int) -> None:
        """So many more rows, of so many bytes, are packed."""


@dataclass(frozen=True)
class Packed:
    """What a pack did."""

    path: Path
    manifest: Manifest
    bytes: int
    seconds: float
    reused_shards: int

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know."""
        return self.manifest.made.warnings


def pack(
    source: Any, out: str | Path, *, from_: str | None = None, force: bool = False,
    progress: Progress | None = None, **options: Any,
) -> Packed:  # fmt: skip
    """Pack a source into a slab.

    Parameters
    ----------
    source
        Paths, globs and directories (one or a list), an object with `__arrow_c_stream__`, or an
        iterable of `pyarrow.RecordBatch`.
    out
        The slab's directory. It appears there whole, or not at all.
    from_
        Name of the kind of source, where the path does not tell.
    force
        Replace a slab that is there.
    progress
        Called after every batch.
    options
        `fields`, `exclude`, `rename`, `cast`, `tensor`, `image`, `stack`, `nulls`, `rows`,
        `limit`, `shard_size`, spelled as on the command line: see
        `fieldslab.packer.options.parse_options`.

    Raises
    ------
    UsageError, SourceError, OutputError
        And their subclasses; nothing half-written is left where `out` is.
    """
    out = Path(out)
    parsed = parse_options(**options)
    check_output(out, force=force)
    return pack_plan(make_plan(find_source(source, from_), parsed), out, force, progress)


def pack_plan(
    plan: Plan, out: Path, force: bool = False, progress: Progress | None = None
) -> Packed:
    """Carry out a plan; as `pack`."""
    started = time.monotonic()
    with Staging(out, plan.fingerprint(), force=force) as staging:
        manifest = staging.ready()
        reused = len(staging.finished)
        if manifest is None:
            categories = _find_categories(plan)
            records = list(_pack_shards(plan, staging, categories, progress))
            manifest = finish(plan, records, categories, staging)
        staging.publish(manifest)
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    return Packed(out, manifest, size, time.monotonic() - started, reused)


def _pack_shards(
    plan: Plan, staging: Staging, categories: Categories, progress: Progress | None
) -> Iterator[ShardRecord]:
    for task in plan.tasks:
        if task.number in staging.finished:
            record = staging.finished[task.number]
            if progress is not None:
                progress(record.rows, record.bytes)
            yield record
        elif task.rows is None:
            yield from _pack_stream(plan, task, staging, categories, progress)
        else:
            batches = read_ahead(_batches(plan, task))
            yield _pack_shard(plan, task, batches, staging, categories, progress)


def _pack_shard(
    plan: Plan, task: ShardTask, batches: Iterator[pa.RecordBatch], staging: Staging,
    categories: Categories, progress: Progress | None, stop_after: int | None = None,
) -> ShardRecord:  # fmt: skip
    """Write one shard from `batches`, of which it takes all, or about `stop_after` bytes."""
    name = layout.shard_name(task.number)
    folder = staging.begin(name)
    positions = {column: at for at, column in enumerate(plan.columns)}
    row, size = task.first_row, 0
    with writing(folder):
        shard = ShardWriter(folder, [one.field for one in plan.fields])
        for batch in batches:
            for one, writer in zip(plan.fields, shard.writers, strict=True):
                index = categories.get(one.field.name)
                writer.append(convert(one, batch, positions, row, index))
            row += batch.num_rows
            size += batch.nbytes
            if progress is not None:
                progress(batch.num_rows, batch.nbytes)
            if stop_after is not None and size >= stop_after:
                break
        record = shard.close(task.number)
    staging.finish(name, record)
    return record


def _pack_stream(
    plan: Plan, task: ShardTask, staging: Staging, categories: Categories,
    progress: Progress | None,
) -> Iterator[ShardRecord]:  # fmt: skip
    """Cut a stream, whose length nobody knows, into shards as it comes."""
    batches = read_ahead(_batches(plan, task))
    number, row = 0, 0
    for first in batches:
        target = max(plan.options.shard_size, number * plan.options.shard_size // 64)
        part = ShardTask(number, row, None, task.spans)
        record = _pack_shard(
            plan, part, chain([first], batches), staging, categories, progress, target
        )
        yield record
        number, row = number + 1, row + record.rows


def _batches(plan: Plan, task: ShardTask) -> Iterator[pa.RecordBatch]:
    for span in task.spans:
        yield from read_span(plan.source, span, plan.columns, BATCH_BYTES)


def _find_categories(plan: Plan) -> Categories:
    """Categories in order of first appearance, so that codes do not depend on who packs what.

    A source that can be read again is read once for its dictionary columns alone; those of a
    stream are found as they come.
    """
    categorical = [one for one in plan.fields if one.form == "categorical"]
    categories = {one.field.name: CategoryIndex() for one in categorical}
    if categorical and plan.source.rereadable:
        columns = sorted({one.paths[0][0] for one in categorical})
        positions = {column: at for at, column in enumerate(columns)}
        for task in plan.tasks:
            row = task.first_row
            for span in task.spans:
                for batch in read_span(plan.source, span, columns, BATCH_BYTES):
                    for one in categorical:
                        convert(one, batch, positions, row, categories[one.field.name])
                    row += batch.num_rows
    return categories
