"""Slabs that commands read where they lie: one, or many as one."""

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fieldslab.schemas.errors import FieldslabError, UsageError
from fieldslab.schemas.folder import check_content_id, check_pinned
from fieldslab.schemas.stores.slab_objects import find_slab_path, is_remote, open_slab_anywhere
from fieldslab.schemas.unions.members import Member, Members
from fieldslab.schemas.unions.open_members import (
    Listed,
    Places,
    check_listed,
    check_missing,
    list_slabs,
    names_many,
    open_each,
)

_THREADS = 16
"""Slabs that are opened at a time, each to count its rows."""


@dataclass(frozen=True)
class SourceSlabs:
    """A slab, or many as one, closed: what another process needs to open them.

    Attributes
    ----------
    listed
        Their names and places, and their `id` where that is known.
    path
        The place of all, for messages and for what is written.
    is_union, missing
        See `Members`.
    follow_links, storage_options
        See `open_slab_anywhere`; the latter are for members at URLs.
    id
        The `id` that all of them together must have, or its beginning; None for any.
    """

    listed: tuple[Listed, ...]
    path: Path
    is_union: bool = False
    missing: str | None = None
    follow_links: bool = False
    storage_options: Mapping[str, Any] | None = None
    id: str | None = None

    @contextmanager
    def open(self) -> Iterator[Members]:
        """Open all of them for a `with` block, and join their fields.

        Raises what `open_slab_anywhere` raises, SlabChanged for one that is not what a union file
        lists, or what `id` names, UsageError if they do not fit together.
        """
        with self.open_each() as opened:
            path = self.path if self.is_union else None
            members = Members(opened, is_union=self.is_union, missing=self.missing, path=path)
            check_pinned(self.id, members.manifest.id, members.path)
            yield members

    @contextmanager
    def open_each(self) -> Iterator[list[Member]]:
        """Open all of them for a `with` block, each by itself; see `open`."""
        with ExitStack() as stack:
            opened = open_each(self.listed, self._open_one, len(self.listed))
            for member in opened:
                stack.enter_context(member.files)
            yield opened

    def count_rows(self) -> list[int | FieldslabError]:
        """Count the rows of each slab; for one that cannot be opened, return the error instead."""

        def count(slab: Listed) -> int | FieldslabError:
            try:
                with replace(self, listed=(slab,)).open_each() as (member,):
                    return member.files.manifest.rows
            except FieldslabError as error:
                return error

        with ThreadPoolExecutor(_THREADS) as threads:
            return list(threads.map(count, self.listed))

    def list_places(self) -> list[str]:
        """List the places of the slabs."""
        return [str(slab.place) for slab in self.listed]

    def _open_one(self, slab: Listed) -> Member:
        options = self.storage_options
        if self.is_union and not is_remote(slab.place):
            options = None
        files = open_slab_anywhere(
            os.fspath(slab.place), follow_links=self.follow_links, storage_options=options
        )
        check_listed(files, slab.content)
        return Member(slab.name, files)


def find_slabs(
    places: Places,
    *,
    missing: str | None = None,
    follow_links: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    id: str | None = None,
) -> SourceSlabs:
    """Find the slabs that places name, as `open_slab` does: directories, URLs, patterns, unions.

    Raises UsageError for what is no place, SlabNotFound where nothing matches, and what reading a
    union file raises.
    """
    check_missing(missing)
    if id is not None:
        check_content_id(id)
    listing = list_slabs(places, storage_options)
    first = find_slab_path(os.fspath(listing.slabs[0].place))
    others = len(listing.slabs) - 1
    path = listing.path or (Path(f"{first} and {others:,} more") if others else first)
    return SourceSlabs(
        listing.slabs, path, listing.is_union, missing, follow_links, storage_options, id
    )


def refuse_union(place: object, problem: str) -> None:
    """Raise UsageError, which says this problem, for a union file or a pattern."""
    if names_many(place):
        raise UsageError(
            problem,
            file=place,
            hint="Make one slab of them: fieldslab concat, which links or copies files, or "
            "fieldslab repack.",
        )
