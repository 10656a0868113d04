"""A file of a source on a disk."""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import IO, Any, NamedTuple

from fieldslab.schemas.errors import (
    SourceChanged,
    SourceUnreadable,
    make_unreadable_source_error,
)


class LocalFile(NamedTuple):
    """A file as it was when it was first looked at."""

    path: str
    size: int
    modified: int
    inode: int

    @staticmethod
    def from_path(path: str) -> "LocalFile":
        """Look at a file. Raises SourceUnreadable where there is none."""
        try:
            info = os.stat(path)
        except OSError as error:
            raise make_unreadable_source_error(
                error, f"cannot be read: {error.strerror}", file=path
            ) from error
        return LocalFile(path, info.st_size, info.st_mtime_ns, info.st_ino)

    def check_unchanged(self) -> None:
        """Raise SourceChanged where the file is another one now."""
        try:
            same = LocalFile.from_path(self.path) == self
        except SourceUnreadable as error:
            raise SourceChanged("the file disappeared while it was read", file=self.path) from error
        if not same:
            raise SourceChanged(
                "the file changed while it was read",
                file=self.path,
                hint="Pack again when nothing writes to it.",
            )

    def describe(self) -> dict[str, Any]:
        """Return path, size and time: the fingerprint of the file."""
        return {"path": self.path, "bytes": self.size, "modified": self.modified}

    def open(self) -> str:
        """Return what pyarrow opens to read the file."""
        return self.path

    def open_binary(self) -> IO[bytes]:
        """Open the file to read and seek in it."""
        return open(self.path, "rb")

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> AbstractContextManager["LocalFile"]:
        """Return the file itself, for a `with` block: nothing of it need be fetched ahead."""
        return nullcontext(self)

    def fetch_end(self, size: int) -> "LocalFile":
        """Return the file itself."""
        return self
