"""Pack one part of a plan; finish a slab whose parts are packed."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fieldslab.packer.pack_options import Progress
from fieldslab.packer.parts.part_folder import PartFolder
from fieldslab.packer.parts.part_number import PartNumber
from fieldslab.packer.parts.plan_file import PlanFile, read_plan_file, remake_plan
from fieldslab.packer.parts.shared_results import (
    cut_together,
    list_uncounted_texts,
    prepare_together,
)
from fieldslab.packer.parts.store_parts import open_part_folder
from fieldslab.packer.plan import Plan
from fieldslab.packer.sources.sequence_source import SequenceSource
from fieldslab.packer.write.engines.engine import find_engine
from fieldslab.packer.write.engines.here import InProcessEngine
from fieldslab.packer.write.finish import finish_slab
from fieldslab.packer.write.output import check_jobs
from fieldslab.packer.write.pack import write_shards
from fieldslab.packer.write.result import PackResult
from fieldslab.packer.write.space import estimate_shard_bytes
from fieldslab.packer.write.stream import ShardWork, ignore_progress
from fieldslab.packer.write.writers import FinishedShard, ShardRecord
from fieldslab.schemas.errors import OutputError, PartsMissing
from fieldslab.schemas.manifest import Manifest
from fieldslab.schemas.notices import warn
from fieldslab.schemas.optiontext import mark_option

_MOST_NAMED = 20


class PartResult(NamedTuple):
    """What a run of a part did: shards it wrote, and those that were finished already."""

    out: Path
    part: PartNumber
    shards: int
    reused_shards: int
    rows: int
    bytes: int
    seconds: float
    published: bool
    """Whether the slab is in its place already, so that there was nothing to do."""


def pack_part(
    plan: str | Path,
    part: PartNumber,
    *,
    jobs: int | None = None,
    engine: str | None = None,
    progress: Progress = ignore_progress,
    scratch: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> PartResult:
    """Pack the shards of one part, other than those that are finished.

    Parts may run in any order, at the same time, several times, and on different machines. One that
    is killed goes on from its finished shards when it is run again.

    Parameters
    ----------
    plan
        The plan file.
    part
        Which part.
    jobs, engine, progress, scratch, storage_options
        As of `pack`.

    Raises
    ------
    UsageError
        The plan cannot be read, or this machine has other versions of libraries.
    SourceChanged
        A file of the source is not as it was when the plan was made.
    SourceError, OutputError
        What `pack` raises.
    """
    started = time.monotonic()
    check_jobs(jobs)
    planned = read_plan_file(plan)
    folder = open_part_folder(planned, part.parts, scratch=scratch, storage_options=storage_options)
    if folder.load_published() is not None:
        return PartResult(folder.out, part, 0, 0, 0, 0, time.monotonic() - started, True)
    folder.check()
    made_plan = remake_plan(planned, storage_options)
    try:
        with folder:
            records, reused = _pack_part(made_plan, folder, part, jobs, engine, progress)
    except OutputError:
        if folder.load_published() is None:
            raise
        folder.remove()  # another run of this part was quicker, and the slab is finished
        return PartResult(folder.out, part, 0, 0, 0, 0, time.monotonic() - started, True)
    rows, size = sum(r.rows for r in records), sum(r.bytes for r in records)
    seconds = time.monotonic() - started
    return PartResult(folder.out, part, len(records), reused, rows, size, seconds, False)


def finish_parts(
    plan: str | Path, *, storage_options: Mapping[str, Any] | None = None
) -> PackResult:
    """Put the slab in its place, once all parts are packed.

    May run again, or several times at once: there is one slab. `storage_options` are for a source
    at URLs.

    Raises
    ------
    PartsMissing
        Some shards are not finished; the message names the parts.
    SourceChanged, UsageError, OutputError
        As `pack_part` raises them.
    """
    started = time.monotonic()
    planned = read_plan_file(plan)
    folder = open_part_folder(planned, storage_options=storage_options)
    manifest = folder.load_published()
    records: list[ShardRecord] = []
    if manifest is None:
        try:
            manifest, records = _finish_parts(planned, str(plan), folder, storage_options)
        except OutputError:
            manifest = folder.load_published()  # another run may have been quicker
            if manifest is None:
                raise
    folder.remove()
    return PackResult(
        folder.out,
        manifest,
        folder.count_bytes(),
        time.monotonic() - started,
        len(manifest.shards),
        0,
        tuple(row for record in records for row in record.left_out),
    )


def _finish_parts(
    planned: PlanFile,
    path: str,
    folder: PartFolder,
    storage_options: Mapping[str, Any] | None,
) -> tuple[Manifest, list[ShardRecord]]:
    """Publish a slab: its manifest, and the records of its shards."""
    folder.check()
    finished = folder.find_finished()
    if planned.options.sequences is None:
        _check_complete(planned, path, finished, len(planned.shards))
    plan = remake_plan(planned, storage_options)
    if uncounted := list_uncounted_texts(plan, folder):
        raise PartsMissing(
            f"the tokens of {len(uncounted)} of {len(planned.shards)} groups of texts are not "
            "counted yet",
            file=planned.out,
            hint=_make_all_parts_hint(path),
        )
    records = [finished[index].record for index in sorted(finished)]
    with folder:
        plan = cut_together(plan, folder, (), InProcessEngine(1))
        _check_complete(planned, path, finished, len(plan.tasks))
        prepared = prepare_together(plan, folder, (), InProcessEngine(1))
        manifest = finish_slab(plan, records, prepared, folder)
        folder.publish(manifest)
    return manifest, records


def _pack_part(
    plan: Plan,
    folder: PartFolder,
    part: PartNumber,
    jobs: int | None,
    engine: str | None,
    progress: Progress,
) -> tuple[list[ShardRecord], int]:
    """Write the unfinished shards of a part: their records, and how many were finished."""
    finished = folder.find_finished()
    if isinstance(plan.source, SequenceSource):
        texts = [task for task in plan.source.tasks if part.has_shard(task.number)]
        plan = cut_together(plan, folder, texts, find_engine(engine, jobs, len(plan.source.tasks)))
    own = [task for task in plan.tasks if part.has_shard(task.number)]
    tasks = [task for task in own if task.number not in finished]
    for task in own:
        if task.number in finished:
            record = finished[task.number].record
            progress(record.rows, record.bytes)
    if not tasks:
        return [], len(own)
    runner = find_engine(engine, jobs, len(tasks))
    if (warning := folder.prepare(estimate_shard_bytes(plan), runner)) is not None:
        warn(warning)
    prepared = prepare_together(plan, folder, own, runner)
    records: list[ShardRecord] = []

    def accept(record: ShardRecord) -> None:
        folder.accept_shard(record, part.parts)
        records.append(record)

    work = ShardWork(plan, prepared, folder.attempts, runner.jobs)
    write_shards(work, tasks, accept, runner, progress)
    return records, len(own) - len(tasks)


def _check_complete(
    planned: PlanFile, path: str, finished: dict[int, FinishedShard], shards: int
) -> None:
    """Raise PartsMissing where shards are missing.

    It names the parts, as far as all were of one number.
    """
    missing = [index for index in range(shards) if index not in finished]
    if not missing:
        return
    counts = {shard.parts for shard in finished.values()}
    problem = f"{len(missing)} of {shards} shards are not packed yet"
    if len(counts) != 1:
        shards_text, hint = _name_some("shard", missing), _make_all_parts_hint(path)
        raise PartsMissing(problem, file=planned.out, found=f"without {shards_text}", hint=hint)
    count = counts.pop()
    parts = sorted({index % count + 1 for index in missing})
    again = f"{mark_option('plan', path)}, {mark_option('part', f'{parts[0]}/{count}')}"
    hint = f"Pack these parts: {again}{', and so on' if len(parts) > 1 else ''}."
    missing_parts = _name_some("part", [f"{number}/{count}" for number in parts])
    raise PartsMissing(problem, file=planned.out, found=f"without {missing_parts}", hint=hint)


def _make_all_parts_hint(path: str) -> str:
    return f"Pack all parts: {mark_option('plan', path)}, {mark_option('part', 'K/N')}."


def _name_some(noun: str, items: list[int] | list[str]) -> str:
    more = f" and {len(items) - _MOST_NAMED} more" if len(items) > _MOST_NAMED else ""
    plural = "s" if len(items) > 1 else ""
    return f"{noun}{plural} {', '.join(map(str, items[:_MOST_NAMED]))}{more}"
