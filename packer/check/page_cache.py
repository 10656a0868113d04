"""Leaves the page cache as it was: who reads a whole slab once must not evict what others use."""

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from fieldslab.schemas.files import RemoteDescriptor
from fieldslab.schemas.mapping import get_address


@contextmanager
def keep_page_cache(fd: int, start: int, stop: int) -> Iterator[None]:
    """Drop bytes `start` to `stop` of a file after a `with` block, but for pages there before.

    Where the system does not tell what is in memory, nothing is dropped.
    """
    if isinstance(fd, RemoteDescriptor) or not hasattr(os, "posix_fadvise") or start >= stop:
        yield
        return
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # reading ahead would look like others' pages
    start = start // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    resident = find_resident_pages(fd, start, stop)
    yield
    edges = np.flatnonzero(np.diff(np.concatenate([[True], resident, [True]]).astype(np.int8)))
    for first, last in pairwise(edges.tolist()):
        if not resident[first]:
            size = (last - first) * mmap.PAGESIZE
            os.posix_fadvise(fd, start + first * mmap.PAGESIZE, size, os.POSIX_FADV_DONTNEED)


def find_resident_pages(fd: int, start: int, stop: int) -> np.ndarray:
    """Find which pages of bytes `start` to `stop` of a file are in memory: bool[pages].

    `start` is a multiple of `mmap.ALLOCATIONGRANULARITY`. All are, where the system does not tell.
    """
    pages = -(-(stop - start) // mmap.PAGESIZE)
    flags = np.ones(pages, np.uint8)
    try:
        with mmap.mmap(fd, stop - start, access=mmap.ACCESS_READ, offset=start) as mapped:
            view = np.frombuffer(mapped, np.uint8)
            failed = _get_mincore()(get_address(view), stop - start, get_address(flags))
            del view
    except (OSError, ValueError):  # cut off meanwhile, or no file that can be mapped
        return np.ones(pages, bool)
    return np.ones(pages, bool) if failed else (flags & 1).astype(bool)


@cache
def _get_mincore() -> Any:
    import ctypes

    function = ctypes.CDLL(None).mincore
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    return function
