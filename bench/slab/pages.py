"""Pages of files: ask the system to drop them, and what it kept."""

import contextlib
import ctypes
import gc
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fieldslab.schemas.mapping import get_address

_LOOK = 2**30
"""So many bytes of a file are looked at."""


def can_drop() -> bool:
    """Tell whether the system can drop pages: Linux can."""
    return hasattr(os, "posix_fadvise")


def drop(files: Sequence[Path]) -> float:
    """Have the system forget the pages of files; the share of them that is in memory still.

    It keeps pages that somebody has mapped: no slab over these files may be open here.
    """
    gc.collect()
    for file in files:
        with file.open("rb") as opened, contextlib.suppress(OSError):
            os.fdatasync(opened.fileno())  # pages that are not written yet are not dropped
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    shares = [_resident(file) for file in files if file.stat().st_size]
    pages = sum(count for _, count in shares)
    return sum(resident for resident, _ in shares) / max(pages, 1)


def _resident(file: Path) -> tuple[int, int]:
    """Pages of a file that are in memory, and those looked at.

    The system does not tell of files that others own: all pages are in memory then.
    """
    size = min(file.stat().st_size, _LOOK)
    pages = -(-size // mmap.PAGESIZE)
    answer = np.zeros(pages, np.uint8)
    with (
        file.open("rb") as opened,
        mmap.mmap(opened.fileno(), size, prot=mmap.PROT_READ) as mapped,
    ):
        where = [
            ctypes.c_void_p(get_address(array)) for array in (np.frombuffer(mapped, "u1"), answer)
        ]
        told = ctypes.CDLL(None).mincore(where[0], ctypes.c_size_t(size), where[1])
    return (int((answer & 1).sum()) if told == 0 else pages), pages
