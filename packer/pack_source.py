"""Pack a source into a slab: plan, write shards, publish."""

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from msgspec.structs import replace

from fieldslab.packer.definition import add_options, fill_defaults
from fieldslab.packer.options import parse_options
from fieldslab.packer.outputs.find_output import DirectoryOutput, find_output, refuse_idle_options
from fieldslab.packer.outputs.slab_output import SlabBuilder, SlabOutput, make_shuffle_error
from fieldslab.packer.pack_options import PackOptions, Progress
from fieldslab.packer.plan import Plan, make_plan
from fieldslab.packer.rewrite.shuffled_pack import list_shuffle_folders, pack_shuffled
from fieldslab.packer.source import find_source
from fieldslab.packer.write.engines.engine import check_jobs, find_engine
from fieldslab.packer.write.finish import finish_slab
from fieldslab.packer.write.prepare import prepare_shared_data
from fieldslab.packer.write.result import PackResult, count_bytes
from fieldslab.packer.write.sequence_shards import can_cut_sequences, cut_by_engine
from fieldslab.packer.write.space import check_space, estimate_shard_bytes
from fieldslab.packer.write.stream import (
    ShardWork,
    check_shard_not_empty,
    ignore_progress,
    write_shards,
)
from fieldslab.packer.write.versions import find_versions
from fieldslab.schemas import layout
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.manifest import Manifest
from fieldslab.schemas.notices import LOG, warn
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.write_errors import name_write_errors


@add_options(PackOptions)
def pack(source: Any, out: str | Path, **options: Unpack[PackOptions]) -> PackResult:
    """Pack a source into a slab.

    Columns are named as in the source, or by shell patterns. Options of columns are mappings,
    `{"weight": "f4"}`, or text as on the command line, `["weight=f4"]`.

    Parameters
    ----------
    source
        Paths, URLs, globs and directories (one or a list), an object with `__arrow_c_stream__`, or
        an iterable of `pyarrow.RecordBatch`.
    out
        The slab's directory, or its URL, such as `s3://bucket/train.slab`. It appears there whole,
        or not at all.
    **options

    Warns
    -----
    FieldslabWarning
        What is odd in the data; it stands in `PackResult.warnings` as well. The logger `fieldslab`
        has it, too, beside the start and the end of the pack, at level INFO.

    Raises
    ------
    UsageError, SourceError, OutputError
        And their subclasses; nothing half-written is left where `out` is.
    AccessDenied, RemoteUnreadable
        A store that holds the source refuses or fails.
    """
    values: PackOptions = fill_defaults(PackOptions, {**options}, "pack")
    refuse_idle_options(values["storage_options"], source, out)
    output = find_output(out, values["storage_options"], values["scratch"])
    force, jobs = values["force"], values["jobs"]
    parsed = parse_options(**values)
    check_jobs(jobs)
    output.check(force=force)
    source = find_source(
        source,
        values["from_"],
        values["settings"],
        tolerant=parsed.leave_out,
        storage_options=values["storage_options"],
    )
    plan = make_plan(source, parsed)
    LOG.info("packing %s", output.path)
    packed = pack_plan(
        plan,
        output,
        force=force,
        jobs=jobs,
        engine=values["engine"],
        progress=values["progress"] or ignore_progress,
    )
    LOG.info("packed %r", packed)
    for text in packed.warnings:
        warn(text)
    return packed


def pack_plan(
    plan: Plan,
    out: Path | SlabOutput,
    *,
    force: bool = False,
    jobs: int | None = None,
    progress: Progress = ignore_progress,
    tell: Callable[[str], None] = warn,
    engine: str | None = None,
) -> PackResult:
    """Carry out a plan, as `pack` does.

    `tell` gets the warnings that cannot wait for the end. `engine` names what writes the shards,
    of `fieldslab.packer.write.engines.engine.ENGINES`. A stream is always written in this process.
    """
    check_jobs(jobs)
    output = out if isinstance(out, SlabOutput) else DirectoryOutput(out)
    if plan.options.shuffle is not None:
        if output.directory is None:
            raise make_shuffle_error(output)

        def pack_unshuffled(plan: Plan, out: Path) -> PackResult:
            return pack_plan(
                plan, out, force=True, jobs=jobs, progress=progress, tell=tell, engine=engine
            )

        directory = output.directory
        with name_write_errors(directory):
            folders = [path for path in list_shuffle_folders(directory) if path.is_dir()]
            written_bytes = sum(map(count_bytes, folders))
        if (warning := check_space(plan, directory, written_bytes, copies=2)) is not None:
            tell(warning)
        return pack_shuffled(plan, directory, pack_unshuffled, force, jobs, progress, engine)
    started = time.monotonic()
    # In one process it is quicker to join texts as they come.
    cutter = engine if engine != "here" and can_cut_sequences(plan) else None
    # A stream starts over.
    resumable = cutter is not None or (plan.source.rereadable and plan.rows is not None)
    versions = find_versions(plan)
    with output.build(
        plan.compute_fingerprint(), versions, force=force, resumable=resumable
    ) as staging:
        if staging.completed is not None:
            return _make_completed_result(output, staging.completed, started)
        if cutter is not None:
            plan = cut_by_engine(plan, cutter, jobs)
        reused, dropped = len(staging.finished), staging.dropped
        if output.directory is not None:
            written_bytes = sum(record.bytes for record in staging.finished.values())
            if (warning := check_space(plan, output.directory, written_bytes)) is not None:
                tell(warning)
        tasks = [task for task in plan.tasks if task.number not in staging.finished]
        runner = find_engine(engine, jobs, len(tasks))
        if (warning := staging.prepare(estimate_shard_bytes(plan), runner)) is not None:
            tell(warning)
        prepared = prepare_shared_data(plan, runner)
        work = ShardWork(plan, prepared, staging.attempts, runner.jobs)
        if plan.rows is None:
            _pack_stream(work, staging, progress)
        else:
            for record in staging.finished.values():
                progress(record.rows, record.bytes)
            write_shards(work, tasks, staging.accept_shard, runner, progress)
        records = [staging.finished[number] for number in sorted(staging.finished)]
        if plan.rows is None:
            _check_rows_start(plan, sum(record.rows for record in records))
        manifest = finish_slab(plan, records, prepared, staging)
        staging.publish(manifest)
    if staging.set_aside is not None:
        tell(
            f"{output.path}: somebody reads the slab that was here before, so it was moved to "
            f"{staging.set_aside}. The next pack to {output.path.name} removes it once nobody "
            "reads it."
        )
    left_out = tuple(row for record in records for row in record.left_out)
    size, seconds = output.count_bytes(), time.monotonic() - started
    return PackResult(output.path, manifest, size, seconds, reused, dropped, left_out)


def _make_completed_result(output: SlabOutput, manifest: Manifest, started: float) -> PackResult:
    """Make the result of a pack that an earlier, killed run had finished."""
    size, seconds = output.count_bytes(), time.monotonic() - started
    return PackResult(output.path, manifest, size, seconds, len(manifest.shards), 0)


def _check_rows_start(plan: Plan, packed: int) -> None:
    """Raise UsageError where `--rows` began behind the end of a stream."""
    start, stop = plan.options.rows or (0, None)
    if not packed and start > 0 and start != stop:
        raise UsageError(
            f"{mark_option('rows')}: starts after the last row",
            found=start,
            hint="The number of rows of a stream is known only after it was read.",
        )


def _pack_stream(work: ShardWork, staging: SlabBuilder, progress: Progress) -> None:
    """Write the shards of a stream, whose length nobody knows, of about `shard_size` bytes each.

    Shards grow slowly, so that a very long stream has not too many.
    """
    (task,) = work.plan.tasks
    size = work.plan.options.shard_size
    with closing(work.read(task)) as stream:
        while not stream.is_exhausted():
            number = len(staging.finished)
            target = max(size, number * size // 64)
            write = partial(stream.write_shard, number, progress=progress, target=target)
            record = work.attempts.write(layout.name_shard(number), write)
            if not record.rows and number:  # nothing but damaged images is left
                last = staging.finished[number - 1]
                left_out = [*last.left_out, *record.left_out]
                staging.finished[number - 1] = replace(last, left_out=left_out)
                return
            check_shard_not_empty(record)
            staging.accept_shard(record)
