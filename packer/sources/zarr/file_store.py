"""Archives and objects as a store of zarr: this module imports it, and is imported when needed."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    Store,
    SuffixByteRequest,
)
from zarr.core.buffer import Buffer, BufferPrototype

from fieldslab.packer.sources.zarr.trees import SMALL_FILES, KeyedTree, check_blosc_size


class FileStore(Store):
    """The files of a tree, to be read."""

    supports_writes = False
    supports_deletes = False
    supports_listing = True
    supports_partial_writes = False

    def __init__(self, tree: KeyedTree, *, check_blosc: bool) -> None:
        """With `check_blosc`, the sizes of chunks are checked, as `check_blosc_size` does."""
        super().__init__(read_only=True)
        self._tree = tree
        self._check_blosc = check_blosc

    def __eq__(self, other: object) -> bool:
        """Return whether it is over the same tree."""
        return isinstance(other, FileStore) and other._tree is self._tree

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Read a file, or bytes of it; None where there is none."""
        if not self._tree.has(key):
            return None
        size = self._tree.get_size(key)
        start, stop = _find_range(byte_range, size)
        data = await asyncio.to_thread(self._tree.read_range, key, start, stop)
        if self._check_blosc and byte_range is None and not key.endswith(SMALL_FILES):
            check_blosc_size(data, len(data))
        return prototype.buffer.from_bytes(data)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Read several files, or bytes of them."""
        return list(await asyncio.gather(*(self.get(k, prototype, r) for k, r in key_ranges)))

    async def exists(self, key: str) -> bool:
        """Return whether there is such a file."""
        return self._tree.has(key)

    async def set(self, key: str, value: Buffer) -> None:
        """Refuse: it is to be read."""
        self._check_writable()

    async def set_partial_values(self, key_start_values: Any) -> None:
        """Refuse: it is to be read."""
        self._check_writable()

    async def delete(self, key: str) -> None:
        """Refuse: it is to be read."""
        self._check_writable()

    async def list(self) -> AsyncIterator[str]:
        """List all files."""
        for name in self._tree.list_names(""):
            yield name

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """List the files whose names begin so."""
        for name in self._tree.list_names(prefix):
            yield name

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """List the names of files and folders in a folder."""
        start = f"{prefix.rstrip('/')}/" if prefix.rstrip("/") else ""
        names = (name[len(start) :] for name in self._tree.list_names(start))
        for name in dict.fromkeys(name.partition("/")[0] for name in names):
            yield name


def _find_range(request: ByteRequest | None, size: int) -> tuple[int, int]:
    if isinstance(request, RangeByteRequest):
        return request.start, min(request.end, size)
    if isinstance(request, OffsetByteRequest):
        return request.offset, size
    if isinstance(request, SuffixByteRequest):
        return max(size - request.suffix, 0), size
    return 0, size
