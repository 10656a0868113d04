"""A file mapped read-only, without a descriptor kept open.

`mmap.mmap` holds one descriptor for every map, so the arrays of a few hundred shards would
exceed the usual limit of 1024 open files (256 on macOS).
"""

import ctypes
import errno
import math
import mmap
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fieldslab.schemas.mapped_ranges import FileWatch, Watch, ranges
from fieldslab.schemas.system import load_libc, map_anonymous

_libc = load_libc()
if _libc is not None:
    _libc.mmap.restype = ctypes.c_void_p
    _libc.mmap.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int64,
    )
    _libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    _libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    _libc.mlock.argtypes = (ctypes.c_void_p, ctypes.c_size_t)

_FAILED = ctypes.c_void_p(-1).value
POPULATE_READ = 22
"""MADVPOPULATE_READ of Linux 5.14 and later."""
_RANDOM, _WILL_NEED = 1, 3
"""The same numbers on Linux and macOS."""
_LINUX = sys.platform.startswith("linux")
_UNKNOWN = (errno.EINVAL, errno.ENOSYS, errno.EPERM)


_unmap: Any = getattr(_libc, "munmap", None)
_mapped: set[int] = set()


class _Map:
    """Owner of one map; it goes when the last array over it is gone."""

    __slots__ = ("_address", "_size", "_slot")

    def __init__(self, fd: int, size: int, path: Path, watch: Watch | None) -> None:
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        if address == _FAILED:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._address, self._size = address, size
        _mapped.add(address)
        self._slot = None if watch is None else ranges.add(address, size, path, watch)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "shape": (self._size,),
            "typestr": "|u1",
            "data": (self._address, True),
        }

    # Bound here because module globals may be gone when the interpreter ends, which unmaps all.
    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if hasattr(self, "_address") and not is_finalizing():
            _mapped.discard(self._address)  # first: another thread may get the same address
            if self._slot is not None:
                ranges.release(self._slot)
            _unmap(self._address, self._size)


def map_file(fd: int, size: int, path: Path = Path(), watch: Watch | None = None) -> np.ndarray:
    """Map the first `size` bytes of a file: uint8[size], read-only. `fd` may be closed after.

    `watch` is told, with `path`, when a page of it is lost. Raises OSError where the system
    refuses, as when its limit of maps is reached.
    """
    if _libc is None:  # Windows: the file cannot change, since nobody may write while it is mapped
        return np.frombuffer(mmap.mmap(fd, size, access=mmap.ACCESS_READ), np.uint8)
    return np.asarray(_Map(fd, size, path, watch))


def map_numbers(path: Path, dtype: np.dtype[Any], offset: int, count: int) -> np.ndarray:
    """Map numbers in a file beside slabs: dtype[count], read-only.

    Where the file changes meanwhile, all slabs that are read raise SlabChanged, as long as it is
    mapped. Raises OSError, also where the file is too short.
    """
    watch, size = FileWatch(path), offset + count * dtype.itemsize
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size < size:
            raise OSError(errno.EIO, "the file is too short")
        watch.note_mapped(watch.path, file.fileno())
        mapped = map_file(file.fileno(), size, watch.path, watch)
    return np.ndarray(count, dtype, buffer=mapped, offset=offset)


def count_maps() -> int:
    """Count the maps that `map_file` made and that are still there."""
    return len(_mapped)


def advise_random_access(array: np.ndarray) -> None:
    """Tell the system that the pages of a mapped file are read in no order.

    All its pages: where only some are advised otherwise, a map is cut in two.
    """
    if _libc is None:
        return
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    _libc.madvise(get_address(base), base.nbytes, _RANDOM)


def populate_pages(address: int, size: int) -> bool:
    """Read the pages of a part of a map into memory; return False if the system cannot.

    To touch a page that cannot be read, because the disk fails or the file has become shorter,
    ends the process with SIGBUS: this tells beforehand, and is faster than to touch page by page.

    Raises OSError where a page cannot be read.
    """
    if not _LINUX or _libc is None:
        return False
    before = address % mmap.PAGESIZE
    if _libc.madvise(address - before, size + before, POPULATE_READ) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNKNOWN:
        return False
    if number == errno.EFAULT:
        raise OSError(number, "the file has become shorter, or the disk fails")
    raise OSError(number, os.strerror(number))


def prefetch_pages(address: int, size: int) -> None:
    """Ask the system to start reading a part of a map; it may ignore that."""
    if _libc is None:
        return
    before = address % mmap.PAGESIZE
    _libc.madvise(address - before, size + before, _WILL_NEED)


def lock_pages(address: int, size: int) -> None:
    """Keep a part of a map in memory until it is unmapped. Raises OSError where that is refused."""
    if _libc is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    before = address % mmap.PAGESIZE
    if _libc.mlock(address - before, size + before) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@cache
def get_populate_call() -> tuple[int, int]:
    """Return the address of `madvise`, for kernels that populate, and the bytes of a page.

    The address is 0 where the system has no call for that. `madvise` takes the first page's
    address, the bytes, and POPULATE_READ.
    """
    page = np.zeros(1, np.uint8)
    known = populate_pages(page.ctypes.data, len(page))
    address = ctypes.cast(_libc.madvise, ctypes.c_void_p).value if known else 0
    return address or 0, mmap.PAGESIZE


@cache
def get_pread() -> int:
    """Return the address of `pread` with 64-bit offsets, for kernels that read."""
    function = getattr(_libc, "pread64", _libc.pread)
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def get_address(array: np.ndarray) -> int:
    """Return the address of an array's data in memory."""
    address: int = array.__array_interface__["data"][0]
    return address


def allocate_aligned(size: int) -> np.ndarray:
    """Allocate page-aligned memory to read files into: uint8[size], uninitialised.

    Some processors (AMD Zen 3) copy from a page three times slower to a few bytes behind the start
    of one, where large arrays of numpy begin.
    """
    data = np.empty(size + mmap.PAGESIZE, np.uint8)
    start = -get_address(data) % mmap.PAGESIZE
    return data[start : start + size]


def map_zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Return zeros that take no memory but for the pages that are read: read-only."""
    size = math.prod(shape) * dtype.itemsize
    if not size:
        return np.zeros(shape, dtype)
    zeros = map_anonymous(size, reserved=False, writable=False)
    return np.ndarray(shape, dtype, buffer=zeros)
