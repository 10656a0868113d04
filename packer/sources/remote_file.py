"""An object of a store as a file of a source: read by ranges, and always of the same version."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import IO, Any, cast

import pyarrow as pa

from fieldslab.packer.sources.fetching import FetchedRanges, RangeReader, Read, keep_end
from fieldslab.schemas.errors import AccessDenied, ObjectNotFound, RemoteUnreadable, SourceChanged
from fieldslab.schemas.stores.store import ObjectInfo
from fieldslab.schemas.stores.store_place import StorePlace
from fieldslab.schemas.urls import hide_credentials

_BUFFER = 1 << 16
"""Bytes that are asked for at least, of an object of which little is needed."""


@dataclass(frozen=True)
class RemoteFile:
    """An object as it was when it was first looked at; pickled without credentials.

    `fetched` reads what of it is at hand or on its way, and the rest by requests.
    """

    place: StorePlace
    key: str
    size: int
    version: str | None
    fetched: Read | None = None

    @staticmethod
    def from_info(place: StorePlace, info: ObjectInfo) -> "RemoteFile":
        """Make the file of an object that a store tells of."""
        return RemoteFile(place, info.key, info.size, _strip_quotes(info.version))

    @property
    def path(self) -> str:
        """The URL of the object, for messages."""
        return f"{hide_credentials(self.place.url)}/{self.key}"

    def describe(self) -> dict[str, Any]:
        """Return URL, size and version: the fingerprint of the object."""
        return {"path": self.path, "bytes": self.size, "etag": self.version}

    def read(self, start: int, stop: int) -> memoryview:
        """Read bytes of the object.

        Raises SourceChanged where it is another one now, or gone, and what stores raise.
        """
        try:
            data, info = self.place.store.read_with_info(self.key, start, stop)
        except ObjectNotFound as error:
            raise SourceChanged(
                "the object disappeared while it was read", file=self.path
            ) from error
        except RemoteUnreadable as error:
            if error.context.get("status") is None and self._has_changed():  # it is shorter now
                raise self._make_changed_error() from error
            raise
        if (info.size, _strip_quotes(info.version)) != (self.size, self.version):
            raise self._make_changed_error()
        return data

    def check_unchanged(self) -> None:
        """Do nothing: each answer tells of which version its bytes are, and `read` compares it."""

    def open(self) -> Any:
        """Return what pyarrow opens to read the object."""
        return pa.PythonFile(RangeReader(self.fetched or self.read, self.size), mode="r")

    def open_binary(self) -> IO[bytes]:
        """Open the object to read and seek in it.

        Reads are buffered, but those of an object of which all that is needed was fetched ahead.
        """
        reader = RangeReader(self.fetched or self.read, self.size)
        return cast(IO[bytes], reader if self.fetched else io.BufferedReader(reader, _BUFFER))

    @contextmanager
    def fetch(self, ranges: Sequence[tuple[int, int]]) -> "Iterator[RemoteFile]":
        """Fetch ranges ahead, in threads, for a `with` block that reads about all of them."""
        with FetchedRanges(self.read, ranges) as fetched:
            yield replace(self, fetched=fetched.read)

    def fetch_end(self, size: int) -> "RemoteFile":
        """Fetch the last `size` bytes now, where a footer is."""
        return replace(self, fetched=keep_end(self.read, self.size, size))

    def _has_changed(self) -> bool:
        try:
            info = self.place.store.get_info(self.key)
        except (ObjectNotFound, RemoteUnreadable, AccessDenied):
            return False
        return (info.size, _strip_quotes(info.version)) != (self.size, self.version)

    def _make_changed_error(self) -> SourceChanged:
        return SourceChanged(
            "the object was replaced since it was first looked at",
            file=self.path,
            hint="Pack again when nothing writes to it.",
        )


class LibraryFile(RemoteFile):
    """An object that a library reads by itself: the store is asked whether it was replaced."""

    def check_unchanged(self) -> None:
        """Raise SourceChanged where it is another one now, or gone, and what stores raise."""
        try:
            info = self.place.store.get_info(self.key)
        except ObjectNotFound:
            raise self._make_changed_error() from None
        if (info.size, _strip_quotes(info.version)) != (self.size, self.version):
            raise self._make_changed_error()


def _strip_quotes(version: str | None) -> str | None:
    """Return an ETag as all answers of a server have it: lists may spell it otherwise."""
    return None if version is None else version.removeprefix("W/").strip('"')
