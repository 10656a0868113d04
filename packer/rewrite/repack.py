"""`repack`: slabs written again: shuffled, without some rows or fields, in other shards, as one."""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace as replace_attributes
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Unpack

import msgspec
import numpy as np
from msgspec.structs import replace

from fieldslab.packer.check.stored import StoredSlab, encode_categories
from fieldslab.packer.commands.text_format import format_size
from fieldslab.packer.definition import add_options, fill_defaults
from fieldslab.packer.outputs.commit import get_scattered_path
from fieldslab.packer.outputs.find_output import (
    DirectoryOutput,
    find_output,
    refuse_idle_options,
)
from fieldslab.packer.outputs.slab_output import SlabBuilder, SlabOutput, make_shuffle_error
from fieldslab.packer.pack_options import Progress
from fieldslab.packer.rewrite.options import RepackOptions
from fieldslab.packer.rewrite.plan import RepackPlan, find_warnings, make_repack_plan
from fieldslab.packer.rewrite.runs import count_rows
from fieldslab.packer.rewrite.work import RepackTask, RepackWork
from fieldslab.packer.unions.source_slabs import find_slabs
from fieldslab.packer.write.attempts import Attempts
from fieldslab.packer.write.directories import remove_path
from fieldslab.packer.write.engines.engine import Engine, check_jobs, find_engine
from fieldslab.packer.write.finish import (
    SlabFolder,
    limit_sources,
    make_checked_manifest,
    make_shards,
    write_tables,
)
from fieldslab.packer.write.result import PackResult
from fieldslab.packer.write.space import ShardBytes, get_free_bytes
from fieldslab.packer.write.stream import ignore_progress
from fieldslab.packer.write.versions import check_versions, get_versions
from fieldslab.packer.write.writers import ShardRecord, merge_tallies
from fieldslab.schemas import layout
from fieldslab.schemas.episodes import replace_episodes
from fieldslab.schemas.errors import NoSpace, NotASlab, UsageError
from fieldslab.schemas.fields import Field, Role
from fieldslab.schemas.files import make_unreadable_error, sync_directory
from fieldslab.schemas.folder import load_manifest
from fieldslab.schemas.manifest import MANIFEST, SHUFFLE_ATTRIBUTE, Manifest, Provenance
from fieldslab.schemas.notices import LOG, warn
from fieldslab.schemas.stores.slab_objects import is_remote
from fieldslab.schemas.unions.open_members import Places
from fieldslab.schemas.version import get_package_version
from fieldslab.schemas.write_errors import name_write_errors

LIBRARIES = ("fieldslab", "numpy", "pyarrow", "zstandard")
"""Packages that decide which bytes a repack writes."""


@add_options(RepackOptions)
def repack(slab: Places, out: str | Path, **options: Unpack[RepackOptions]) -> PackResult:
    """Write a slab again: shuffled, without some rows or fields, or with other shards.

    What is stored is copied: nothing is decoded or converted. A shuffle into more than four shards
    writes the data twice, and needs as much temporary space; it never takes more memory than a
    shard for each job. An interrupted run goes on where it stopped.

    Parameters
    ----------
    slab
        The slab to read, or many as one: what `open_slab` takes.
    out
        The directory or URL of the slab to write. It appears there whole, or not at all.
    **options

    Raises
    ------
    NotASlab, Damaged, UsageError, RowOutOfRange, OutputError
        And their subclasses; nothing half-written is left where `out` is.
    """
    values: RepackOptions = fill_defaults(RepackOptions, {**options}, "repack")
    plan, destination = prepare_repack(slab, out, values)
    for warning in find_warnings(plan, values["where"]):
        warn(warning)
    LOG.info("repacking %s to %s", plan.path, destination.path)
    progress = values["progress"] or ignore_progress
    result = repack_plan(
        plan, destination, values["force"], values["jobs"], progress, values["engine"]
    )
    LOG.info("repacked %r", result)
    return result


def prepare_repack(
    slab: Places, out: object, values: RepackOptions
) -> tuple[RepackPlan, SlabOutput]:
    """Decide what is written, and where. Raises what `repack` raises for wrong parameters."""
    options = values["storage_options"]
    slabs = find_slabs(slab, missing=values["missing"], storage_options=options, id=values["id"])
    places = slabs.list_places()
    refuse_idle_options(options, places, out)
    if not any(map(is_remote, places)):
        slabs = replace_attributes(slabs, storage_options=None)
    output = find_output(out, options, values["scratch"])
    check_jobs(values["jobs"])
    output.check(force=values["force"])
    directory = output.directory
    with slabs.open() as members:
        if directory is not None and _is_among(directory, places):
            hint = "Write to another place."
            raise UsageError("a slab cannot replace itself", file=directory, hint=hint)
        plan = make_repack_plan(slabs, members.manifest, values, StoredSlab(members))
    if plan.needs_scattering and directory is None:
        raise make_shuffle_error(output)
    return plan, output


def _is_among(directory: Path, places: Iterable[str | Path]) -> bool:
    """Whether one of these slabs is in a directory. Raises Unreadable if the system cannot tell."""
    local = (place for place in places if not is_remote(place))
    try:
        return directory.exists() and any(os.path.samefile(place, directory) for place in local)
    except OSError as error:
        raise make_unreadable_error(error, Path(error.filename or directory)) from error


def repack_plan(
    plan: RepackPlan,
    out: Path | SlabOutput,
    force: bool,
    jobs: int | None,
    progress: Progress,
    engine: str | None = None,
) -> PackResult:
    """Carry out a plan, as `repack` does."""
    started = time.monotonic()
    output = out if isinstance(out, SlabOutput) else DirectoryOutput(out)
    directory = output.directory
    versions = get_versions(LIBRARIES)
    with output.build(plan.compute_fingerprint(), versions, force=force) as staging:
        manifest, reused = staging.completed, len(staging.finished)
        if manifest is None:
            reading = plan
            if directory is not None:
                written_bytes = sum(record.bytes for record in staging.finished.values())
                _check_space(plan, directory, written_bytes)
            if plan.needs_scattering and directory is not None:
                scattered = _scatter(plan, directory, jobs, progress, engine)
                if plan.consumes_source:
                    remove_shards(plan.path)
                reading = plan.plan_gathering(get_scattered_path(directory), scattered)
            _write_shards(reading, staging, jobs, progress, engine)
            manifest = make_repacked_manifest(plan, reading, staging.finished, staging)
            if plan.consumes_source:  # before the end, behind which no rerun comes here
                remove_shards(plan.path)
                with name_write_errors(plan.path):
                    remove_path(plan.path)
            staging.publish(manifest)
    seconds = time.monotonic() - started
    size = output.count_bytes()
    return PackResult(output.path, manifest, size, seconds, reused, staging.dropped)


def find_scattered(plan: RepackPlan, out: Path) -> Manifest | None:
    """Find the slab whose chunks are sorted by shuffle keys, where an earlier run wrote it."""
    if plan.needs_scattering:
        with suppress(NotASlab):
            manifest = load_manifest(get_scattered_path(out))
            if manifest.made.plan == plan.plan_scattering().compute_fingerprint():
                return manifest
    return None


_REMOVED = 10**9
"""More than a slab has shards."""


def remove_shards(slab: Path) -> None:
    """Remove the shards of a slab: nothing but its manifest stays.

    The first shard goes first, durably: who finds it missing knows that the rest may be, too.
    """
    with name_write_errors(slab):
        first = slab / layout.name_shard(0)
        if first.exists():
            first.rename(slab / layout.name_shard(_REMOVED))
            sync_directory(slab)
        for path in list(slab.iterdir()):
            if path.name != MANIFEST:
                remove_path(path)
        sync_directory(slab)


def _scatter(
    plan: RepackPlan, out: Path, jobs: int | None, progress: Progress, engine: str | None
) -> Manifest:
    """Write the slab whose chunks are sorted by shuffle keys, unless an earlier run did."""
    chunks = plan.plan_scattering()
    scattered = find_scattered(plan, out)
    if scattered is not None:
        progress(scattered.rows, scattered.rows * chunks.row_bytes)
        return scattered
    return repack_plan(chunks, get_scattered_path(out), True, jobs, progress, engine).manifest


def _write_shards(
    plan: RepackPlan,
    staging: SlabBuilder,
    jobs: int | None,
    progress: Progress,
    engine: str | None,
) -> None:
    """Write every shard that an earlier run has not finished."""
    for record in staging.finished.values():
        progress(record.rows, record.bytes)
    all_tasks = plan.make_tasks()
    tasks = [task for task in all_tasks if task.number not in staging.finished]
    runner = find_engine(engine, jobs, len(tasks))
    largest = plan.row_bytes * max((count_rows(task.runs) for task in tasks), default=0)
    staging.prepare(ShardBytes(largest, largest), runner)
    write_repacked_shards(plan, tasks, staging.attempts, staging.accept_shard, runner, progress)


def write_repacked_shards(
    plan: RepackPlan,
    tasks: Sequence[RepackTask],
    attempts: Attempts,
    accept: Callable[[ShardRecord], None],
    engine: Engine,
    progress: Progress,
) -> None:
    """Write the shards of tasks by an engine; `accept` gets the record of each as it is finished.

    Raises what `RepackWork.write` raises, and OutputError where a worker has other versions of
    libraries than this process.
    """
    versions = get_versions(LIBRARIES)
    work = RepackWork(
        slabs=plan.slabs,
        content=plan.source.id,
        fields=plan.fields,
        compressors=plan.compressors,
        categories=plan.categories,
        row_bytes=plan.row_bytes,
        seed=plan.seed,
        digest=plan.digest,
        key_field=plan.key_field,
        reads_keys=plan.reads_keys,
        attempts=attempts,
        versions=versions,
    )
    with closing(engine.run(work, tasks, progress)) as records:
        for record in records:
            check_versions(record.versions, versions)
            accept(record)


def make_repacked_manifest(
    slab_plan: RepackPlan,
    plan: RepackPlan,
    finished: Mapping[int, ShardRecord],
    staging: SlabFolder,
) -> Manifest:
    """Write what shards share, and make the manifest.

    `slab_plan` says what the slab holds, `plan` how its rows were read.
    """
    records = [finished[number] for number in sorted(finished)]
    tallies = merge_tallies(records)
    fields = []
    for old_field, new_field in plan.fields:
        field = replace(new_field, nullable=old_field.nullable)
        if field.compression is not None:
            decoded = tallies[field.name]["bytes before compression"]
            compression = replace(field.compression, decoded=decoded)
            if field.name in slab_plan.compressors:
                dictionary = slab_plan.compressors[field.name].dictionary
                compression = replace(compression, dictionary=len(dictionary))
            field = replace(field, compression=compression)
        fields.append(field)
    if plan.key_field is not None and not plan.reads_keys:
        fields.append(plan.key_field)
    attributes = dict(slab_plan.source.attributes)
    if slab_plan.seed is not None or slab_plan.rows != slab_plan.source.rows:
        attributes = replace_episodes(attributes, None)
    if slab_plan.seed is not None:
        attributes[SHUFFLE_ATTRIBUTE] = {"seed": slab_plan.seed}
    provenance = replace(
        slab_plan.provenance or _describe_origin(slab_plan),
        tool=f"fieldslab {get_package_version('fieldslab')}",
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        plan=slab_plan.compute_fingerprint(),
    )
    with plan.slabs.open() as members:
        stored = StoredSlab(members)
        old_fields = {new.name: old for old, new in plan.fields}

        def read_items(field: Field, role: Role) -> np.ndarray:
            if role == "dictionary" and field.name in plan.compressors:
                return np.frombuffer(plan.compressors[field.name].dictionary, np.uint8)
            if field.name in plan.categories:
                return encode_categories(plan.categories[field.name].names, role)
            return stored.read_table(old_fields[field.name], role)

        return make_checked_manifest(
            provenance,
            rows=sum(record.rows for record in records),
            fields=tuple(fields),
            shards=make_shards(records, [field.nullable for field in fields]),
            tables=write_tables(fields, read_items, staging, plan.digest),
            attributes=attributes,
            digest=plan.digest,
        )


def _describe_origin(plan: RepackPlan) -> Provenance:
    """Describe the slabs that were read, as if they had been packed."""
    names = {new.name for _, new in plan.fields}
    sources: list[dict[str, Any]] = []
    with plan.slabs.open_each() as members:
        provenance, start = members[0].files.manifest.made, 0
        for member in members:
            manifest, path = member.files.manifest, str(member.files.path)
            source: dict[str, Any] = {"path": path, "id": manifest.id}
            if plan.slabs.is_union:
                source["rows"] = [start, start + manifest.rows]
            else:
                source["made"] = msgspec.to_builtins(provenance)
            sources.append(source)
            start += manifest.rows
    reasons = {name: why for name, why in provenance.reasons.items() if name in names}
    options = {"from": "slab", "nulls": {"*": "mask"}}
    return replace(provenance, sources=limit_sources(sources), options=options, reasons=reasons)


def _check_space(plan: RepackPlan, out: Path, written_bytes: int) -> None:
    """Raise NoSpace where there is not as much free space as rows take, twice in a shuffle.

    `written_bytes` were written by an earlier run.
    """
    copies = 1 if plan.consumes_source else plan.steps - os.path.isdir(get_scattered_path(out))
    needed = plan.rows * plan.row_bytes * copies - written_bytes
    free = get_free_bytes(out)
    if needed > free:
        raise NoSpace(
            "not enough space left on the device: nothing was written",
            file=out,
            expected=f"at least {format_size(needed)}",
            found=f"{format_size(free)} free",
            hint="Free some space, or choose another output.",
        )
