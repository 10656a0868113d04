"""The plan file: what `pack --plan` decides once, for the parts that carry it out.

A line of text, then JSON compressed by zstd:

    fieldslab plan 1 SHA-256-OF-THE-REST

It names sources, options and output, and says what must be the same wherever a part of it is
packed: the files of the source, the fields, the shards, and the versions of libraries.
"""

import os
import platform
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from fieldslab.packer.definition import fill_defaults
from fieldslab.packer.options import Options, parse_options
from fieldslab.packer.outputs.find_output import find_output, refuse_idle_options
from fieldslab.packer.outputs.slab_output import make_shuffle_error
from fieldslab.packer.pack_options import PackOptions
from fieldslab.packer.plan import Plan, make_plan
from fieldslab.packer.source import find_source
from fieldslab.packer.sources.remote_lookup import check_object
from fieldslab.packer.sources.sequence_source import SequenceSource
from fieldslab.packer.write.sequence_shards import can_cut_sequences
from fieldslab.packer.write.versions import find_versions, format_differences
from fieldslab.schemas.drafts import replace_file
from fieldslab.schemas.errors import (
    Damaged,
    OutputExists,
    SourceChanged,
    SourceError,
    UnsupportedVersion,
    UsageError,
)
from fieldslab.schemas.fields import Field
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.urls import is_url
from fieldslab.schemas.write_errors import name_write_errors

VERSION = 1
_MAGIC = b"fieldslab plan "


class PlanFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan file says.

    Attributes
    ----------
    sources, kind, settings, options
        What was asked for: absolute paths, the name of the source, its settings, and the options.
    out
        The directory of the slab, an absolute path, or its URL.
    fingerprint
        That of the plan, `Plan.compute_fingerprint`.
    files
        `Source.fingerprint` when the plan was made.
    fields
        What the slab will hold.
    shards
        First row and rows of each shard. Where texts are joined, those of each group of texts whose
        tokens are counted by one task: where shards begin is known only then.
    machine, versions
        Where the plan was made, and with which versions of libraries.
    summary
        `Source.summarize`. For Parquet, it saves parts from reading the footers of all files.
    """

    sources: tuple[str, ...]
    kind: str
    settings: dict[str, Any]
    options: Options
    out: str
    fingerprint: str
    files: list[dict[str, Any]]
    fields: tuple[Field, ...]
    shards: tuple[tuple[int, int], ...]
    machine: str
    versions: dict[str, str]
    summary: Any = None


def write_plan_file(
    sources: Sequence[str | os.PathLike[str]],
    out: str | Path,
    path: str | Path,
    options: PackOptions,
) -> Plan:
    """Plan a pack and write the plan to a file. Reads no data but a few sampled values.

    If the file already holds the same plan, it is left unchanged.

    Raises
    ------
    UsageError
        Parts cannot do what was asked for: replace a slab, shuffle to a URL, pack a stream.
    OutputExists
        The output is there, or another plan.
    SourceError
        What `pack` raises before it reads data.
    """
    values: PackOptions = fill_defaults(PackOptions, {**options}, "pack")
    refuse_idle_options(values["storage_options"], list(sources), out)
    output, path = find_output(out, values["storage_options"]), Path(path)
    parsed = parse_options(**values)
    if values["force"]:
        raise UsageError(
            f"{mark_option('plan')} and {mark_option('force')} cannot be used together",
            hint="Remove the old slab first, or choose another output.",
        )
    if parsed.shuffle is not None and output.directory is None:
        raise make_shuffle_error(output)
    output.check(force=False)
    paths = [_make_absolute(os.fspath(source)) for source in sources]
    source = find_source(
        paths,
        values["from_"],
        values["settings"],
        tolerant=parsed.leave_out,
        storage_options=values["storage_options"],
    )
    plan = make_plan(source, parsed)
    if not can_cut_sequences(plan) and (plan.rows is None or not source.rereadable):
        raise UsageError(
            f"{mark_option('plan')}: a stream cannot be divided into parts",
            found=source.name,
            hint="Pack it in one process.",
        )
    content = PlanFile(
        sources=tuple(paths),
        kind=source.name,
        settings=dict(values["settings"] or {}),
        options=parsed,
        out=_make_absolute(str(output.path)),
        fingerprint=plan.compute_fingerprint(),
        files=source.fingerprint(),
        fields=tuple(field_plan.field for field_plan in plan.fields),
        shards=_list_shards(plan),
        machine=platform.node(),
        versions=find_versions(plan),
        summary=source.summarize(),
    )
    _write(content, path)
    return plan


def read_plan_file(path: str | Path) -> PlanFile:
    """Read a plan file.

    Raises
    ------
    UsageError
        The file is not there, cannot be read, or is not a plan.
    UnsupportedVersion
        A newer fieldslab wrote it.
    Damaged
        It is not as it was written.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(
            f"the plan cannot be read: {error.strerror}",
            file=path,
            hint=f"{mark_option('plan')} with sources and an output writes one.",
        ) from error
    line, _, body = data.partition(b"\n")
    version, _, digest = line.removeprefix(_MAGIC).partition(b" ")
    if not line.startswith(_MAGIC) or not version.isdigit():
        hint = "Name a file that `fieldslab pack` wrote as a plan."
        raise UsageError("is not a plan", file=path, hint=hint)
    if int(version) > VERSION:
        raise UnsupportedVersion(
            "this plan was written by a newer fieldslab",
            file=path,
            expected=f"version {VERSION}",
            found=f"version {int(version)}",
            hint="Install the same version everywhere.",
        )
    try:
        if sha256(body).hexdigest().encode() != digest:
            raise ValueError("its digest is wrong")
        text = zstandard.ZstdDecompressor().decompress(body)
        return msgspec.json.decode(text, type=PlanFile)
    except (ValueError, zstandard.ZstdError, msgspec.DecodeError) as error:
        hint = "Make the plan again, or copy it again."
        raise Damaged(f"the plan is damaged: {error}", file=path, hint=hint) from error


def remake_plan(planned: PlanFile, storage_options: Mapping[str, Any] | None = None) -> Plan:
    """Make the plan of a file again, on this machine; `storage_options` are for URLs.

    Raises
    ------
    SourceChanged
        A file of the source is not as it was when the plan was made.
    UsageError
        This machine has other versions of libraries, which may write other bytes.
    """
    options = planned.options
    try:
        source = find_source(
            list(planned.sources),
            planned.kind,
            planned.settings,
            tolerant=options.leave_out,
            storage_options=storage_options,
            summary=planned.summary,
        )
        _check_files(planned.files, source.fingerprint())
        plan = make_plan(source, options)
    except SourceChanged:
        raise
    except SourceError as error:
        _check_sizes(planned.files)
        at_fault = [file for file in planned.files if file["path"] == error.context.get("file")]
        for file in at_fault:
            if "etag" in file and not check_object(file, storage_options):
                raise _make_changed_error("changed since the plan was made", file) from None
        raise
    _check_versions(planned, find_versions(plan))
    if (plan.compute_fingerprint(), _list_shards(plan)) != (planned.fingerprint, planned.shards):
        raise SourceChanged(
            "the source gives another plan than when the plan was made",
            file=planned.sources[0],
            hint="Make the plan again.",
        )
    return plan


def _make_absolute(path: str) -> str:
    return path if is_url(path) else os.path.abspath(path)


def _list_shards(plan: Plan) -> tuple[tuple[int, int], ...]:
    tasks = plan.source.tasks if isinstance(plan.source, SequenceSource) else plan.tasks
    return tuple((task.first_row, task.rows or 0) for task in tasks)


def _write(content: PlanFile, path: Path) -> None:
    with name_write_errors(path):
        if path.exists():
            if read_plan_file(path).fingerprint == content.fingerprint:
                return
            raise OutputExists(
                "another plan, or something else, is here already",
                file=path,
                hint="Remove it, or choose another file.",
            )
        body = zstandard.ZstdCompressor(level=10).compress(msgspec.json.encode(content))
        line = _MAGIC + f"{VERSION} {sha256(body).hexdigest()}\n".encode()
        with replace_file(path) as file:
            file.write(line + body)


def _check_files(planned: list[dict[str, Any]], current: list[dict[str, Any]]) -> None:
    """Raise SourceChanged for the first file that is not as it was planned."""
    current_files = {
        file.get("path"): file for file in msgspec.json.decode(msgspec.json.encode(current))
    }
    for file in planned:
        if file.get("path") not in current_files:
            raise _make_changed_error("is not there any more", file)
        if current_files[file.get("path")] != file:
            raise _make_changed_error("changed since the plan was made", file)
    planned_paths = {file.get("path") for file in planned}
    for path, file in current_files.items():
        if path not in planned_paths:
            raise _make_changed_error("is new since the plan was made", file)


def _check_sizes(planned: list[dict[str, Any]]) -> None:
    """Raise SourceChanged where a file that could not be read has another size, or is gone."""
    for file in planned:
        if "bytes" not in file or "modified" not in file:
            continue
        try:
            size = os.stat(file["path"]).st_size
        except OSError:
            raise _make_changed_error("is not there any more", file) from None
        if size != file["bytes"]:
            raise _make_changed_error("changed since the plan was made", file)


def _make_changed_error(problem: str, file: Mapping[str, Any]) -> SourceChanged:
    hint = "Make the plan again, under another name, and pack its parts."
    return SourceChanged(problem, file=file.get("path"), hint=hint)


def _check_versions(planned: PlanFile, versions: Mapping[str, str]) -> None:
    if versions != planned.versions:
        expected, actual = format_differences(planned.versions, versions)
        raise UsageError(
            f"{platform.node()} has other versions of libraries than {planned.machine}, where the "
            "plan was made, and they may write other bytes",
            expected=expected,
            found=actual,
            hint="Install the same versions everywhere.",
        )
