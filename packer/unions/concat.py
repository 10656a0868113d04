"""Concat: one slab of the shards of many, as they are, whole or not at all."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from fieldslab.packer.check.findings import VerifyProgress
from fieldslab.packer.copying.copy_slab import CopyCounter, copy_folders
from fieldslab.packer.copying.destinations import DirectoryDestination
from fieldslab.packer.slabsize import count_bytes
from fieldslab.packer.unions.union_changes import expand_places
from fieldslab.schemas import layout
from fieldslab.schemas.access import iterate_folders
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field
from fieldslab.schemas.folder import SlabFiles, check_slab_path
from fieldslab.schemas.manifest import Manifest, Provenance, create_manifest, encode_manifest
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.stores.slab_objects import is_remote, open_slab_anywhere
from fieldslab.schemas.unions.members import Member, Members
from fieldslab.schemas.version import get_package_version

_MOST_SHARDS = 100_000
"""A packer makes fewer: their folders have five digits."""


def concat(
    slabs: Sequence[str | Path],
    out: str | Path,
    *,
    copy: bool = False,
    force: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    progress: VerifyProgress | None = None,
) -> Manifest:
    """Make one slab of many, whose rows follow each other. Stored bytes stay as they are.

    On the same file system, files get a second name (a hard link), which takes no room: to remove
    a slab leaves the other whole. Elsewhere they are copied, and every block is verified.

    Parameters
    ----------
    slabs
        Directories or URLs of slabs, union files, and patterns. Fields must be stored alike: also
        in the same order, with the same categories, and without dictionaries of their own.
    out
        The new slab's directory.
    copy
        Copy files in any case.
    force
        Replace another slab at `out`.
    storage_options
        For URLs: see `fieldslab.schemas.stores.store.open_store`.
    progress
        Called with the rows and bytes that were copied or linked since the last call.

    Returns
    -------
    The manifest of the new slab.

    Raises
    ------
    UsageError
        Fields are stored differently, or there would be too many shards.
    NotASlab, DamagedManifest, DamagedArray, Unreadable, SlabReplaced
        A path is not a slab, or the slab is damaged or cannot be read.
    OutputExists, NoSpace, OutputDenied, OutputError, Busy
        The slab cannot be written there.
    """
    slabs = expand_places(slabs, storage_options)
    with ExitStack() as stack:
        opened = [
            stack.enter_context(
                open_slab_anywhere(
                    slab, storage_options=storage_options if is_remote(slab) else None
                )
            )
            for slab in slabs
        ]
        if not opened:
            raise UsageError("there is nothing to join", expected="slabs", found="none")
        manifest = make_manifest(opened)
        path = check_slab_path(out)
        linking = not copy and all(_can_link(slab, path) for slab in slabs)
        size = 0 if linking else sum(map(count_bytes, opened))
        place = stack.enter_context(DirectoryDestination(path, manifest, size, force=force))
        if place.completed is not None:
            return place.completed
        counter = CopyCounter(progress)
        for index, files in enumerate(opened):
            if linking:
                _link_folders(files, place, counter, with_tables=not index)
            else:
                copy_folders(files, place, counter, with_tables=not index)
            place.first_shard += len(files.manifest.shards)
        place.publish(encode_manifest(manifest))
    return manifest


def make_manifest(opened: Sequence[SlabFiles]) -> Manifest:
    """Make the manifest of slabs that follow each other. Raises UsageError."""
    _check_fields(opened)
    members = Members([Member(str(files.path), files) for files in opened])
    first, merged = opened[0].manifest, members.manifest
    for files in opened:
        _check_stored_alike(members, files)
    if len(merged.shards) >= _MOST_SHARDS:
        raise UsageError(
            "the slab would have too many shards",
            expected=f"fewer than {_MOST_SHARDS:,}",
            found=f"{len(merged.shards):,}",
            hint="Read them as a union, or write larger shards: fieldslab repack.",
        )
    fields = []
    for field, stored in zip(merged.fields, first.fields, strict=True):
        if field.compression is not None and stored.compression is not None:
            dictionary = stored.compression.dictionary
            compression = msgspec.structs.replace(field.compression, dictionary=dictionary)
            field = msgspec.structs.replace(field, compression=compression)
        fields.append(field)
    sources = [
        {"path": str(files.path), "id": files.manifest.id, "rows": [start, start + rows]}
        for files, start, rows in _list_rows(opened)
    ]
    provenance = Provenance(
        tool=f"fieldslab {get_package_version('fieldslab')}",
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        plan=hashlib.sha256(f"concat {merged.id}".encode()).hexdigest(),
        sources=tuple(sources),
        options={"from": "slab"},
        reasons=first.made.reasons,
    )
    return create_manifest(
        provenance,
        rows=merged.rows,
        fields=tuple(fields),
        shards=merged.shards,
        tables=first.tables,
        attributes=merged.attributes,
        digest=first.digest,
    )


def _list_rows(opened: Sequence[SlabFiles]) -> list[tuple[SlabFiles, int, int]]:
    """List each slab with its first row and its number of rows."""
    listed, start = [], 0
    for files in opened:
        listed.append((files, start, files.manifest.rows))
        start += files.manifest.rows
    return listed


def _check_fields(opened: Sequence[SlabFiles]) -> None:
    """Raise UsageError for a slab without a field that another has."""
    fields = {field.name: files for files in opened for field in files.manifest.fields}
    for files in opened:
        names = {field.name for field in files.manifest.fields}
        lacking = [name for name in fields if name not in names]
        if lacking:
            raise UsageError(
                f"slabs are joined as they are, and it lacks fields that {fields[lacking[0]].path} "
                "has",
                file=files.path,
                found=", ".join(lacking),
                hint="Write one slab of them: fieldslab repack, with "
                f"{mark_option('missing', 'null')} for nulls in these fields.",
            )


def _check_stored_alike(members: Members, files: SlabFiles) -> None:
    """Raise UsageError for a slab whose files do not fit those of the others."""
    names = [field.name for field in members.manifest.fields]
    problem, field_name = None, None
    if [field.name for field in files.manifest.fields] != names:
        problem, field_name = "its fields stand in another order", None
    elif files.manifest.digest != members.files[0].manifest.digest:
        raise UsageError(
            "slabs are joined as they are, and its blocks have another kind of digest",
            file=files.path,
            expected=members.files[0].manifest.digest,
            found=files.manifest.digest,
            hint=f"Write those with xxh3 again with {mark_option('digest', 'sha256')}: fieldslab "
            "repack. Or read all as a union: fieldslab union NAME.slabs add.",
        )
    elif files.manifest.tables != members.files[0].manifest.tables:
        problem = "its categories or dictionaries in `tables` are others"
    else:
        for field, stored in zip(members.manifest.fields, files.manifest.fields, strict=True):
            if field.name in members.codes:
                problem, field_name = "its categories or classes have other codes", field.name
            elif _describe_arrays(field) != _describe_arrays(stored) or field.stem != stored.stem:
                problem, field_name = "it is stored in other arrays", field.name
    if problem is not None:
        raise UsageError(
            f"slabs are joined as they are, and {problem}",
            file=files.path,
            field=field_name,
            hint="Read them as a union: fieldslab union NAME.slabs add. Or write one slab of them: "
            "fieldslab repack joins categories.",
        )


def _describe_arrays(field: Field) -> Any:
    roles = [spec.role for spec in field.list_arrays() if spec.role != "valid"]
    return roles, field.index, field.compression is None


def _can_link(slab: str | Path, out: Path) -> bool:
    """Return whether files of a slab can get a second name in a directory."""
    if is_remote(slab):
        return False
    parent = Path(os.path.abspath(out)).parent
    try:
        while not parent.exists():
            parent = parent.parent
        return os.stat(slab).st_dev == os.stat(parent).st_dev
    except OSError:
        return False  # they are copied, which tells what is wrong


def _link_folders(
    files: SlabFiles, place: DirectoryDestination, counter: CopyCounter, *, with_tables: bool
) -> None:
    """Link the files of all folders, after a look at their sizes and the digest tables."""
    for folder in iterate_folders(files):
        if not folder.holds_rows and not with_tables:
            continue
        folder.load_digests()
        name = folder.path.name
        with folder.open() as opened:
            for file in [each.name for each in folder.files] + [layout.DIGESTS]:
                size = opened.find_size(file)
                if not place.has_file(name, file, size or 0):
                    with opened.open_file(file):  # which refuses whatever is no regular file
                        place.link_file(name, file, opened)
                counter.add(size or 0, copied=False)
        place.finish_folder(folder)
        counter.add(0, copied=False, rows=folder.rows if folder.holds_rows else 0)
