"""Pack a source into a slab: plan, write shards, publish."""

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fieldslab.packer.options import parse_options
from fieldslab.packer.plan import Plan, ShardTask, make_plan
from fieldslab.packer.source import find_source
from fieldslab.packer.write.ahead import read_ahead
from fieldslab.packer.write.commit import Staging, check_output
from fieldslab.packer.write.engines import run_jobs
from fieldslab.packer.write.finish import finish
from fieldslab.packer.write.prepare import Prepared, prepare
from fieldslab.packer.write.shards import (
    Progress,
    Pushback,
    ShardWork,
    batches,
    quiet,
)
from fieldslab.packer.write.writers import ShardRecord
from fieldslab.schemas import layout
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.manifest import Manifest


@dataclass(frozen=True)
class Packed:
    """What a pack did."""

    path: Path
    manifest: Manifest
    bytes: int
    seconds: float
    reused_shards: int
    dropped_shards: int

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know."""
        if not self.dropped_shards:
            return self.manifest.made.warnings
        return (
            f"{self.dropped_shards} finished shards of an earlier run were dropped: the source, "
            "the options or the version are others now",
            *self.manifest.made.warnings,
        )


def pack(
    source: Any, out: str | Path, *, from_: str | None = None, force: bool = False,
    jobs: int = 1, settings: Mapping[str, Any] | None = None, progress: Progress = quiet,
    **options: Any,
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
    jobs
        Processes to pack shards in. The slab does not depend on it. As with every use of
        `multiprocessing`, the calling script needs its `if __name__ == "__main__":`.
    settings
        Of the kind of source: for HDF5 `rows_attr`, `raw`, `external` and `memory`, see
        `fieldslab.packer.sources.hdf5.source`.
    progress
        Called after every batch.
    options
        `fields`, `exclude`, `rename`, `cast`, `tensor`, `image`, `stack`, `nulls`, `tokenize`,
        `max_length`, `pad`, `special_tokens`, `pack_sequences`, `separator`, `keep_boundaries`,
        `drop_last`, `compress`, `rows`, `limit`, `shard_size`, spelled
        as on the command line: see
        `fieldslab.packer.options.parse_options`.

    Raises
    ------
    UsageError, SourceError, OutputError
        And their subclasses; nothing half-written is left where `out` is.
    """
    out = Path(out)
    parsed = parse_options(**options)
    check_output(out, force=force)
    plan = make_plan(find_source(source, from_, settings), parsed)
    return pack_plan(plan, out, force=force, jobs=jobs, progress=progress)


def pack_plan(
    plan: Plan, out: Path, *, force: bool = False, jobs: int = 1, progress: Progress = quiet
) -> Packed:
    """Carry out a plan; as `pack`."""
    if jobs < 1:
        raise UsageError("--jobs must be at least 1", found=jobs)
    started = time.monotonic()
    resumable = plan.source.rereadable
    with Staging(out, plan.fingerprint(), force=force, resumable=resumable) as staging:
        reused, dropped = len(staging.finished), staging.dropped
        prepared = prepare(plan)
        records = _pack_shards(plan, staging, prepared, progress, jobs)
        manifest = finish(plan, records, prepared, staging)
        staging.publish(manifest)
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    return Packed(out, manifest, size, time.monotonic() - started, reused, dropped)


def _pack_shards(
    plan: Plan, staging: Staging, prepared: Prepared, progress: Progress, jobs: int
) -> list[ShardRecord]:
    """Write every shard that an earlier run has not finished; records in order."""
    work = ShardWork(plan, prepared)
    for record in staging.finished.values():
        progress(record.rows, record.bytes)
    if plan.rows is None:
        _pack_stream(work, staging, progress)
    else:
        todo = [task for task in plan.tasks if task.number not in staging.finished]
        places = [(task, staging.begin(layout.shard_name(task.number))) for task in todo]
        count = min(jobs, len(todo))
        with closing(run_jobs(work, places, progress, count)) as records:
            for record in records:
                staging.finish(layout.shard_name(record.index), record)
    return [staging.finished[number] for number in sorted(staging.finished)]


def _pack_stream(work: ShardWork, staging: Staging, progress: Progress) -> None:
    (task,) = work.plan.tasks
    row = 0
    with closing(read_ahead(batches(work.plan, task))) as source:
        stream = Pushback(source)
        while not stream.exhausted():
            shard = ShardTask(len(staging.finished), row, None, task.spans)
            name = layout.shard_name(shard.number)
            record = work.write_stream(shard, stream, staging.begin(name), progress)
            staging.finish(name, record)
            row += record.rows
