"""One array on disk: a `.npy` file whose data starts at byte 4096.

The header is a function of dtype and shape alone, so a reader compares it byte for byte and
never parses one. What writes is `ArrayWriter`, what reads is `map_array`.
"""

import errno
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fieldslab.schemas.digest import BLOCK, XXH3, BlockDigest
from fieldslab.schemas.errors import DamagedArray, FieldslabError
from fieldslab.schemas.files import RESTORE, OpenFolder, make_unreadable_error, read_bytes
from fieldslab.schemas.mapping import get_address, map_file, populate_pages
from fieldslab.schemas.optiontext import mark_option

HEADER = 4096
"""Bytes in front of the data: one page, so that mapped data is page-aligned."""


def make_array_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Make the 4096 header bytes of a `.npy` 1.0 file in C order (numpy.lib.format)."""
    dims = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
    text = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': ({dims}), }}"
    start = b"\x93NUMPY\x01\x00" + struct.pack("<H", HEADER - 10)
    return start + text.encode("ascii").ljust(HEADER - 11) + b"\n"


class ArrayWriter:
    """Appends to one new array file and digests what it writes.

    Only whole blocks reach the file before `close`, so a small array costs one write and no open
    descriptor: a table of thousands of columns stays below the limit of open files.
    """

    def __init__(
        self,
        path: Path,
        dtype: np.dtype[Any],
        shape: tuple[int, ...] = (),
        digest: BlockDigest = XXH3,
    ) -> None:
        """Create `path` (it must not exist); `dtype` and `shape` are those of one item."""
        self.path = path
        self.items = 0
        self._dtype = dtype
        self._shape = shape
        self._digest = digest
        self._rest = bytearray()
        self._written = 0
        self._digests: list[np.ndarray] = []
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))

    def append(self, items: np.ndarray) -> None:
        """Append items: an array (n, *shape) of exactly the writer's dtype."""
        if items.dtype != self._dtype or items.shape[1:] != self._shape:
            raise TypeError(
                f"{self.path}: {items.dtype}{items.shape[1:]} is not {self._dtype}{self._shape}"
            )
        self.items += len(items)
        if items.nbytes:
            self._write_whole_blocks(view_bytes(items))

    def close(self) -> tuple[tuple[int, ...], np.ndarray]:
        """Write what is left and the header, fsync; return the shape, and digests (blocks,)."""
        shape = (self.items, *self._shape)
        if self._rest:
            self._digests.append(self._digest.compute_blocks(memoryview(bytes(self._rest))))
        with _OpenedFile(self.path, os.O_WRONLY) as fd:
            _write_at(fd, self._rest, HEADER + self._written)
            _write_at(fd, make_array_header(self._dtype, shape), 0)
            os.fsync(fd)
        self._rest = bytearray()
        return shape, self._digest.join_tables(self._digests)

    def _write_whole_blocks(self, data: memoryview) -> None:
        if self._rest:
            missing = min(BLOCK - len(self._rest), len(data))
            self._rest += data[:missing]
            data = data[missing:]
            if len(self._rest) == BLOCK:
                self._append_blocks(memoryview(bytes(self._rest)))
                self._rest.clear()
        whole = len(data) // BLOCK * BLOCK
        if whole:
            self._append_blocks(data[:whole])
        self._rest += data[whole:]

    def _append_blocks(self, whole_blocks: memoryview) -> None:
        self._digests.append(self._digest.compute_blocks(whole_blocks))
        with _OpenedFile(self.path, os.O_WRONLY) as fd:
            _write_at(fd, whole_blocks, HEADER + self._written)
        self._written += len(whole_blocks)


def view_bytes(items: np.ndarray) -> memoryview:
    """View an array as bytes in C order; it is copied only if it is not contiguous."""
    return memoryview(np.ascontiguousarray(items).reshape(-1).view(np.uint8).data)


class _OpenedFile:
    """Opens a file for a `with` block; never follows a link, never blocks on a pipe."""

    def __init__(self, path: Path, flags: int) -> None:
        self._fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _write_at(fd: int, data: memoryview | bytes | bytearray, offset: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(fd, view, offset)
        view, offset = view[done:], offset + done


@contextmanager
def open_array(
    folder: OpenFolder,
    name: str,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    field: str | None = None,
) -> Iterator[int]:
    """Open an array file for a `with` block, after a check of its type, size and header.

    Raises
    ------
    DamagedArray
        The file is missing, not a regular file, or not of this size or header.
    NotASlab
        It is a link, or there is no permission to read it.
    Unreadable
        The disk fails.
    """
    path = folder.path / name
    context: dict[str, Any] = {"file": path, "field": field}
    with folder.open_file(name, DamagedArray, field) as (fd, file_bytes):
        size = HEADER + count_array_bytes(dtype, shape)
        if file_bytes != size:
            raise DamagedArray(
                "wrong size",
                **context,
                expected=f"{size} bytes",
                found=f"{file_bytes} bytes",
                hint=RESTORE,
            )
        expected, start = (
            make_array_header(dtype, shape),
            bytes(read_bytes(fd, HEADER, 0, path, field)),
        )
        if start != expected:
            raise DamagedArray(
                "wrong header",
                **context,
                **_describe_first_difference(expected, start),
                hint=RESTORE,
            )
        yield fd


def map_array(
    folder: OpenFolder,
    name: str,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    field: str | None = None,
) -> np.ndarray:
    """Map an array file read-only: ndarray of exactly this dtype and shape, backed by the file.

    Raises what `open_array` raises, SlabChanged where the file was mapped before and is another
    now, and FieldslabError where the system has no more maps. Digests are not checked here.
    """
    path = folder.path / name
    with open_array(folder, name, dtype, shape, field) as fd:
        if folder.watch is not None:
            folder.watch.note_mapped(path, fd)
        try:
            mapped = map_file(fd, HEADER + count_array_bytes(dtype, shape), path, folder.watch)
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise make_unreadable_error(error, path, field=field) from error
            raise FieldslabError(
                f"cannot be mapped: {error.strerror}",
                file=path,
                field=field,
                hint="On Linux, vm.max_map_count limits the number of maps. Read fewer fields, or "
                f"pack with a larger {mark_option('shard_size')}.",
            ) from error
    return np.ndarray(shape, dtype, buffer=mapped, offset=HEADER)


def populate_array(array: np.ndarray, path: Path) -> None:
    """Read all of a mapped array into memory: a touch that fails would end the process.

    Raises Unreadable where the disk fails.
    """
    try:
        if array.nbytes:
            populate_pages(get_address(array), array.nbytes)
    except OSError as error:
        raise make_unreadable_error(error, path, offset=HEADER) from error


def count_array_bytes(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    """Count the data bytes of an array, in unbounded integers."""
    size = dtype.itemsize
    for length in shape:
        size *= length
    return size


def _describe_first_difference(expected: bytes, actual: bytes) -> dict[str, Any]:
    shared = min(len(expected), len(actual))  # a forged shape may take more than a header
    differs = np.frombuffer(expected, "u1", shared) != np.frombuffer(actual, "u1", shared)
    offset = int(np.argmax(differs)) if differs.any() else shared
    return {
        "offset": offset,
        "expected": expected[offset : offset + 1].hex(),
        "found": actual[offset : offset + 1].hex() or "end of file",
    }
