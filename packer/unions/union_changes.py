"""Changing union files: each change is a new generation, published whole or not at all."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from fieldslab.packer.unions.source_slabs import SourceSlabs, find_slabs
from fieldslab.schemas.errors import ObjectNotFound, OutputChanged, OutputExists, UsageError
from fieldslab.schemas.folder import check_pinned
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.stores.slab_objects import is_remote, open_slab_anywhere
from fieldslab.schemas.unions.members import compute_union_id
from fieldslab.schemas.unions.open_members import Listed, Places, check_listed, list_slabs
from fieldslab.schemas.unions.unionfile import (
    UnionFile,
    UnionMember,
    decode_union,
    encode_union,
    find_labels,
    list_members,
    make_absent_error,
    make_relative,
    open_folder,
)

Options = Mapping[str, Any] | None


def read_union_file(place: str, storage_options: Options = None) -> UnionFile:
    """Read a union file. Raises SlabNotFound, DamagedManifest, and what stores raise."""
    store, key = open_folder(place, storage_options)
    try:
        return decode_union(bytes(store.read(key)), place)
    except ObjectNotFound as error:
        raise make_absent_error(place) from error


def add_slabs(
    place: str, slabs: Sequence[str], *, name: str | None = None, storage_options: Options = None
) -> UnionFile:
    """Add slabs at the end of a union file, which is made if it is not there.

    Slabs that are listed already, by the same name and `id`, stay where they are: so a pattern adds
    those that are new.

    Parameters
    ----------
    place
        The file `NAME.slabs`, or its URL.
    slabs
        Directories, URLs, patterns of directories, or union files, of which each slab is added.
        Their fields must fit those of the others.
    name
        What one slab is called among the others; its path, if not given.
    storage_options
        For URLs: see `fieldslab.schemas.stores.store.open_store`.

    Returns
    -------
    The new generation, or the one that is there if it has all these slabs.

    Raises
    ------
    UsageError
        Another slab has this name in the union, or fields contradict those of the others.
    OutputChanged
        Another writer changed the file meanwhile: nothing was written.
    SlabChanged, NotASlab, DamagedManifest, OutputError
        A slab is not what the file lists, or is none; the file is damaged, or cannot be written.
    """
    listed = [slab for text in slabs for slab in list_slabs(text, storage_options).slabs]
    if name is not None and len(listed) != 1:
        raise UsageError(f"{mark_option('name')} is for one slab", found=f"{len(listed)} slabs")

    def add(union: UnionFile) -> UnionFile:
        members = list(union.members)
        for each in listed:
            slab = str(each.place)
            options = storage_options if is_remote(slab) else None
            with open_slab_anywhere(slab, storage_options=options) as files:
                check_listed(files, each.content)
                path = make_relative(slab, place)
                added = UnionMember(path=path, id=files.manifest.id, name=name)
            namesakes = [member for member in members if member.label == added.label]
            if namesakes and namesakes[0].id != added.id:
                raise UsageError(
                    "the union has another slab of this name",
                    file=place,
                    expected=namesakes[0].id,
                    found=f"{added.label} with the id {added.id}",
                    hint=f"Remove that one first: fieldslab union {place} remove {added.label}. "
                    f"Or add this one by another name: {mark_option('name')}.",
                )
            if not namesakes:
                members.append(added)
        if union.members and len(members) == len(union.members):
            return union
        changed = msgspec.structs.replace(union, members=tuple(members))
        check_union(changed, place, storage_options)
        return changed

    return _change(place, add, storage_options)


def remove_slabs(place: str, slabs: Sequence[str], *, storage_options: Options = None) -> UnionFile:
    """Remove slabs, by name or path, from a union file; the slabs themselves stay.

    Returns the new generation. Raises UsageError for a slab that is not listed, and what
    `add_slabs` raises for the file.
    """

    def remove(union: UnionFile) -> UnionFile:
        labels = find_labels(union.members, slabs, place)
        left = tuple(member for member in union.members if member.label not in labels)
        return msgspec.structs.replace(union, members=left)

    return _change(place, remove, storage_options)


def find_union_slabs(union: UnionFile, place: str, storage_options: Options = None) -> SourceSlabs:
    """Find the slabs that a union file lists. Raises UsageError where it lists none."""
    if not union.members:
        raise UsageError("the union lists no slab", file=place)
    listed = tuple(Listed(*member) for member in list_members(union, place))
    path = Path(place)
    return SourceSlabs(listed, path, True, "null", storage_options=storage_options)


def check_union(union: UnionFile, place: str, storage_options: Options = None) -> None:
    """Open all slabs that a union file lists, and join their fields.

    Raises SlabChanged where a slab has another `id`, and what opening slabs raises.
    """
    with find_union_slabs(union, place, storage_options).open():
        pass


def expand_places(places: Sequence[Places], storage_options: Options = None) -> list[Any]:
    """Put slabs in the place of the union files and patterns that list them.

    Raises SlabChanged where one is not what its union file lists, and what opening slabs raises.
    """
    return [place for place, _ in expand_pinned_places(places, None, storage_options)]


def expand_pinned_places(
    places: Sequence[Places], id: str | None, storage_options: Options = None
) -> list[tuple[Any, str | None]]:
    """Do what `expand_places` does, and return the `id` with each slab, where that is known.

    With `id`, there is one place, which must have it. Raises UsageError for more, and SlabChanged.
    """
    if id is not None and len(places) != 1:
        raise UsageError(
            f"{mark_option('id')} is that of one slab, or of one union",
            found=f"{len(places)} slabs",
            hint="Give them one at a time.",
        )
    expanded: list[tuple[Any, str | None]] = []
    for place in places:
        slabs = find_slabs(place, storage_options=storage_options, id=id)
        if not slabs.is_union:
            expanded.append((place, id))
            continue
        with slabs.open_each() as members:
            ids = [member.files.manifest.id for member in members]
        check_pinned(id, compute_union_id(ids), slabs.path)
        expanded += zip([slab.place for slab in slabs.listed], ids, strict=True)
    return expanded


def _change(
    place: str, change: Callable[[UnionFile], UnionFile], storage_options: Options
) -> UnionFile:
    """Publish what `change` makes of a union file, if nobody else has changed it meanwhile."""
    store, key = open_folder(place, storage_options)
    try:
        data = bytes(store.read(key))
    except ObjectNotFound:
        changed = msgspec.structs.replace(change(UnionFile()), generation=1)
        try:
            store.write(key, encode_union(changed), if_absent=True)
        except OutputExists as error:
            raise OutputChanged(
                "another writer made it meanwhile", file=place, hint="Run the command again."
            ) from error
        return changed
    union = decode_union(data, place)
    changed = change(union)
    if changed is union:
        return union
    changed = msgspec.structs.replace(changed, generation=union.generation + 1)
    store.replace(key, encode_union(changed), data)
    return changed
