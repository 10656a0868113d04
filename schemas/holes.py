"""Holes: parts of a file that were never written, and read as zeros without a disk.

A file of 2^40 bytes may take no room at all; to read it would keep `verify` busy for minutes.
"""

import os
from collections.abc import Iterator

from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.digest import BLOCK

LEAST = 1024
"""Blocks of a hole that is worth to be skipped."""

_Span = tuple[int, int]


def find_large_holes(fd: int, size: int) -> Iterator[_Span]:
    """Find the runs of whole blocks of an array's `size` data bytes that lie in large holes.

    Each run comes without the blocks at its ends, which are read like any other: what is wrong
    with zeros behind something else is found there.
    """
    for start, stop in _seek_holes(fd, HEADER, HEADER + size):
        first, last = -(-(start - HEADER) // BLOCK) + 1, (stop - HEADER) // BLOCK - 1
        if last - first >= LEAST:
            yield first, last


def has_hole(fd: int, start: int, stop: int) -> bool:
    """Return True if there is a hole among these bytes of a file."""
    return next(_seek_holes(fd, start, stop), None) is not None


def _seek_holes(fd: int, start: int, stop: int) -> Iterator[_Span]:
    """Yield the holes among bytes `start` to `stop`; none if the system does not tell."""
    if not hasattr(os, "SEEK_HOLE"):
        return
    while start < stop:
        try:
            hole = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError:
            return
        if hole >= stop:
            return
        try:
            data = min(os.lseek(fd, hole, os.SEEK_DATA), stop)
        except OSError:  # there is none behind
            data = stop
        # Some file systems have told of holes where data was about to be written.
        if data > hole and not any(_read_first_block(fd, hole, data)):
            yield hole, data
        start = data


def _read_first_block(fd: int, start: int, stop: int) -> bytes:
    size = min(stop - start, BLOCK)
    try:
        return os.pread(fd, size, start)
    except OSError:
        return b"\1"
