"""Pack one part of a plan; finish a slab whose parts are packed."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fieldslab.packer.pack_options import Progress
from fieldslab.packer.parts.one_pass import PartRun, pack_own_shards, publish_shards
from fieldslab.packer.parts.part_number import PartNumber
from fieldslab.packer.parts.plan_file import read_plan_file, remake_plan
from fieldslab.packer.parts.shuffling import PASSES, pack_shuffled_part, publish_shuffled_shards
from fieldslab.packer.parts.store_parts import open_part_folder
from fieldslab.packer.write.engines.engine import check_jobs
from fieldslab.packer.write.result import PackResult
from fieldslab.packer.write.stream import ignore_progress
from fieldslab.packer.write.writers import ShardRecord
from fieldslab.schemas.errors import FieldslabError


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
    pass_number: int = 1
    """The pass that the run came to; shards, rows and bytes are of this one."""
    passes: int = 1
    """How many passes there are: two with `shuffle`. A part is run until it came to the last."""


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
    PartsMissing
        With `shuffle`: other parts have to do their share of the first pass.
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
    run, pass_number = PartRun(part, jobs, engine, progress, []), 1
    try:
        with folder:
            if made_plan.options.shuffle is None:
                pack_own_shards(made_plan, folder, run)
            else:
                pass_number = pack_shuffled_part(made_plan, Path(plan), folder, run)
    except FieldslabError:
        if folder.load_published() is None:
            raise
        folder.remove()  # another run of this part was quicker, and the slab is finished
        return PartResult(folder.out, part, 0, 0, 0, 0, time.monotonic() - started, True)
    rows, size = sum(r.rows for r in run.records), sum(r.bytes for r in run.records)
    seconds = time.monotonic() - started
    shards = len(run.records)
    passes = 1 if made_plan.options.shuffle is None else PASSES
    return PartResult(
        folder.out, part, shards, run.reused, rows, size, seconds, False, pass_number, passes
    )


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
        folder.check()
        made_plan = remake_plan(planned, storage_options)
        try:
            if made_plan.options.shuffle is None:
                manifest, records = publish_shards(made_plan, Path(plan), folder)
            else:
                manifest, records = publish_shuffled_shards(made_plan, Path(plan), folder)
        except FieldslabError:
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
