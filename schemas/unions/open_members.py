"""Opening slabs, one or many, wherever they lie."""

import errno
import glob
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast
from urllib.parse import urlsplit

from fieldslab.schemas.errors import SlabNotFound, UsageError
from fieldslab.schemas.folder import SlabFiles, check_content, check_place, open_slab_files
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.places import open_place
from fieldslab.schemas.system import get_limit, raise_limit
from fieldslab.schemas.unions.members import Member, Members
from fieldslab.schemas.unions.unionfile import (
    is_union_file,
    list_members,
    make_changed_error,
    read_union,
)
from fieldslab.schemas.urls import is_url

Place: TypeAlias = str | os.PathLike[str]
Places: TypeAlias = Place | Sequence[Place] | Mapping[str, Place | Sequence[Place]]

_THREADS = 16
"""Slabs at a distance that are opened at a time."""
_SPARE_FILES = 128
"""Descriptors that are left for others, where many slabs are opened."""
_MORE_FOR_MIRRORS = 4
"""Descriptors that a mirror takes, beside that of its directory."""
_FOR_CACHES = ("cache_limit", "storage_options")


class Listed(NamedTuple):
    """A slab that is to be opened, its name, and its `id` if that is known."""

    name: str
    place: Place
    content: str | None = None


class Listing(NamedTuple):
    """The slabs that places name, in their order.

    `path` is that of the union file or pattern that listed them, if one did.
    """

    slabs: tuple[Listed, ...]
    is_union: bool
    path: Path | None = None


def open_members(places: Places, *, missing: str | None = None, **options: Any) -> Members:
    """Open a slab, or many as one; `options` are those of `open_place`. See `open_slab`.

    Raises what `open_place` raises, SlabChanged, and UsageError where slabs do not fit together.
    """
    check_missing(missing)
    listing = list_slabs(places, options.get("storage_options"))
    if not listing.is_union:
        return Members([_open_alone(listing.slabs[0].place, options)], is_union=False)
    return Members(_open_listed(listing.slabs, options), missing=missing, path=listing.path)


def check_missing(missing: object) -> None:
    """Raise UsageError for what `missing` cannot be."""
    if missing not in (None, "null"):
        raise UsageError(
            f"{mark_option('missing')} says how fields are read that some slabs lack",
            expected='"null", or None',
            found=repr(missing),
        )


def list_slabs(places: Places, storage_options: Mapping[str, Any] | None = None) -> Listing:
    """List the slabs that paths, patterns and union files name; see `open_slab`.

    Raises SlabNotFound, UsageError where there is none, or where a name comes at two places, and
    what reading a union file raises.
    """
    is_list = isinstance(places, Mapping | Sequence) and not isinstance(places, str)
    if not is_list and not names_many(places):
        return Listing((Listed(str(places), cast(Place, places)),), is_union=False)
    listed = tuple(_list_places(places, storage_options))
    if not listed:
        raise UsageError("there is no slab in the list", expected="paths of slabs", found="none")
    _check_names(listed)
    path = None
    if isinstance(places, str | os.PathLike) and not is_url(os.fspath(places)):
        path = Path(os.path.abspath(places))
    return Listing(listed, is_union=True, path=path)


def names_many(place: object) -> bool:
    """Return whether a place is a pattern or a union file. Raises UsageError for what is none."""
    text = check_place(place)
    return _has_pattern(text) or is_union_file(text)


def join_members(first: Members, second: Members) -> Members:
    """Join open slabs. Raises UsageError where they do not fit together."""
    slabs = [
        Member(*each)
        for members in (first, second)
        for each in zip(members.names, members.files, strict=True)
    ]
    _check_names([Listed(slab.name, slab.files.path) for slab in slabs])
    return Members(slabs, missing=first.missing or second.missing)


def to_plain(members: Members) -> tuple[Any, ...]:
    """Return what a pickle holds of slabs. Raises UsageError where that would be a credential."""
    slabs = []
    for name, files in zip(members.names, members.files, strict=True):
        place: tuple[Any, ...] = (str(files.path), files.follow_links)
        if files.mirror is not None:
            place = files.mirror.origin.to_plain()
        slabs.append((name, files.mirror is not None, place, files.manifest.id))
    return slabs, members.is_union, members.missing, str(members.path)


def open_plain(
    slabs: list[tuple[Any, ...]], is_union: bool, missing: str | None, path: str
) -> Members:
    """Open again what `to_plain` described. Raises SlabReplaced where a slab is another now."""
    if is_union:
        mirrors = sum(is_mirror for _, is_mirror, *_ in slabs)
        _allow_open_files(len(slabs) + _MORE_FOR_MIRRORS * mirrors)
    opened = [Member(name, _reopen(*place)) for name, *place in slabs]
    return Members(opened, is_union=is_union, missing=missing, path=Path(path))


def _reopen(is_mirror: bool, place: tuple[Any, ...], content: str) -> SlabFiles:
    if is_mirror:
        from fieldslab.schemas.mirror.channel import Origin
        from fieldslab.schemas.mirror.opening import open_mirror

        return open_mirror(Origin(*place), content)
    path, follow_links = place
    files = open_slab_files(path, follow_links=follow_links)
    check_content(files.manifest, content, path)
    return files


def _open_alone(place: Place, options: Mapping[str, Any]) -> Member:
    files = open_place(place, **options)
    if files.mirror is not None:
        return Member(str(files.path), files)
    path = os.path.abspath(place)
    files.path = Path(path)
    return Member(path, files)


def _list_places(places: Any, storage_options: Mapping[str, Any] | None) -> Iterator[Listed]:
    if isinstance(places, Mapping):
        for name, inner in places.items():
            for listed in _list_places(inner, storage_options):
                yield listed._replace(name=name)
        return
    if isinstance(places, Sequence) and not isinstance(places, str | bytes):
        for inner in places:
            yield from _list_places(inner, storage_options)
        return
    text = check_place(places)
    if is_union_file(text):
        union = read_union(text, storage_options)
        for name, place, content in list_members(union, text):
            yield Listed(name, place, content)
    elif _has_pattern(text):
        if is_url(text):
            raise UsageError(
                "patterns are for directories: a web server cannot say what matches",
                file=text,
                hint="Give the URLs in a list.",
            )
        matches = sorted(filter(os.path.isdir, glob.glob(text)))
        if not matches:
            raise SlabNotFound("no directory matches this pattern", file=text)
        for match in matches:
            yield Listed(match, match)
    else:
        yield Listed(text, places)


def _has_pattern(text: str) -> bool:
    if is_url(text):
        return "*" in urlsplit(text).path
    return glob.has_magic(text) and not os.path.exists(text)


def _check_names(listed: Sequence[Listed]) -> None:
    """Raise UsageError where other slabs stand between two of the same name."""
    names: set[str] = set()
    last = None
    for slab in listed:
        if slab.name in names and slab.name != last:
            raise UsageError(
                "a name stands for slabs that do not follow each other",
                found=slab.name,
                hint='Give each a name of its own: {"web": "web.slab", "code": "code.slab"}.',
            )
        last = slab.name
        names.add(slab.name)


def _open_listed(listed: Sequence[Listed], options: Mapping[str, Any]) -> list[Member]:
    """Open slabs: those at a distance many at a time."""
    remote = any(is_url(str(slab.place)) for slab in listed)
    mirrors = len(listed) if remote or options.get("cache_dir") is not None else 0
    open_one = partial(_open_one, options=options, remote=remote)
    return open_each(listed, open_one, len(listed) + _MORE_FOR_MIRRORS * mirrors)


def open_each(
    listed: Sequence[Listed], open_one: Callable[[Listed], Member], descriptors: int
) -> list[Member]:
    """Open slabs, those at a distance many at a time. Raises UsageError, and what `open_one` does.

    All of them together hold this many descriptors.
    """

    def open_listed(slab: Listed) -> Member:
        try:
            return open_one(slab)
        except SlabNotFound as error:
            if slab.content is None:
                raise
            hint = (
                "A union file lists it, relative to its own folder. Put it back, or take it out: "
                f"fieldslab union NAME.slabs remove {slab.name}."
            )
            raise SlabNotFound(error.problem, file=slab.place, hint=hint) from error

    _allow_open_files(descriptors)
    if not any(is_url(str(slab.place)) for slab in listed):
        return [open_listed(slab) for slab in listed]
    with ThreadPoolExecutor(_THREADS, "fieldslab-open") as threads:
        return list(threads.map(open_listed, listed))


def check_listed(files: SlabFiles, content: str | None) -> None:
    """Raise SlabChanged where a slab is not the one that a union file lists by this `id`."""
    if content is not None and files.manifest.id != content:
        raise make_changed_error(files, content)


def _open_one(slab: Listed, options: Mapping[str, Any], remote: bool) -> Member:
    if remote and not is_url(str(slab.place)):
        idle = _FOR_CACHES if options.get("cache_dir") is None else ("storage_options",)
        options = {name: value for name, value in options.items() if name not in idle}
    files = _open_alone(slab.place, options).files
    check_listed(files, slab.content)
    return Member(slab.name, files)


def _allow_open_files(count: int) -> None:
    """Have the system allow so many more descriptors. Raises UsageError where it does not."""
    soft, hard = get_limit("RLIMIT_NOFILE")
    if soft is None:
        return
    needed = _count_open_files(soft) + count + _SPARE_FILES
    if needed <= soft:
        return
    if hard is not None and needed > hard:
        raise UsageError(
            f"these slabs need {count:,} descriptors, and the system allows fewer",
            expected=f"at least {needed:,}",
            found=hard,
            hint="Raise the limit `ulimit -Hn`, or join slabs with `fieldslab concat`.",
        )
    raise_limit("RLIMIT_NOFILE", needed)


def _count_open_files(most: int) -> int:
    try:
        return len(os.listdir("/dev/fd"))
    except OSError as error:  # to list them takes a descriptor
        return most if error.errno == errno.EMFILE else 0
