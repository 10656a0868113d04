"""A small file of a source that was read into memory, such as a member of an archive."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import pyarrow as pa


class MemoryFile(NamedTuple):
    """A file whose content is at hand; `path` is for messages, and tells what kind it is."""

    path: str
    data: bytes

    @property
    def size(self) -> int:
        """Number of bytes."""
        return len(self.data)

    def check_unchanged(self) -> None:
        """Do nothing: memory does not change."""

    def describe(self) -> dict[str, Any]:
        """Return path and size."""
        return {"path": self.path, "bytes": self.size}

    def open(self) -> pa.NativeFile:
        """Return what pyarrow opens to read the file."""
        return pa.BufferReader(self.data)

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> AbstractContextManager["MemoryFile"]:
        """Return the file itself, for a `with` block."""
        return nullcontext(self)

    def fetch_end(self, size: int) -> "MemoryFile":
        """Return the file itself."""
        return self
