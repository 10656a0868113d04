"""Which blocks of a mirror are there: a file of marks that all processes of a machine map.

A mark says that somebody fetched the block, verified it and wrote it, in this order. It is a claim
and no proof: whoever reads a block compares it with its digest once more. A claim that is wrong, as
after a power cut, costs another fetch. So nothing is ever synced.

To fetch blocks, and to set or clear their marks, a process holds a lock on their bytes of the file.
The system frees it when the process ends, however it ends.

Whoever evicts an array of a shard clears its marks, raises its generation, then counts the
eviction, and makes the hole last. Who reads needs no lock: it copies, and looks at the count again.
"""

import errno
import fcntl
import mmap
import os
import secrets
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from fieldslab.schemas.mirror.blockmap import BlockMap
from fieldslab.schemas.mirror.names import name_cache_errors

_MAGIC = b"fieldslab marks of a mirror 1\n"
_COUNTER = 512
_HEADER = 4096
_LOCKS = 2**62
"""Behind all bytes: a lock on `_LOCKS + unit` keeps a unit from being evicted."""


class Presence:
    """The marks of a mirror, mapped; any number of threads and processes may use them.

    Attributes
    ----------
    generations
        How often each unit was evicted: int32[units].
    uses
        When each unit was last needed, in seconds since 1970, or will be: float64[units].
    counter
        `counter[0]` is how many arrays were evicted so far.
    """

    def __init__(self, path: Path, blocks: BlockMap, content: str) -> None:
        """Open the file of a slab whose `id` is `content`, or create it with nothing present.

        Raises NoSpace, OutputDenied, OutputError.
        """
        self._blocks = blocks
        head = _MAGIC + content.encode() + struct.pack("<q", blocks.units)
        uses = _HEADER + _round_up(4 * blocks.units)
        marks = uses + _round_up(8 * blocks.units)
        with name_cache_errors(path):
            self._fd = _open_or_create(path, head, marks + max(blocks.mark_bytes, 1))
            self._map = mmap.mmap(self._fd, marks + max(blocks.mark_bytes, 1))
        self._bytes = marks
        self.counter = memoryview(self._map)[_COUNTER : _COUNTER + 8].cast("q")  # read often
        self.generations = np.frombuffer(self._map, np.int32, blocks.units, _HEADER)
        self.uses = np.frombuffer(self._map, np.float64, blocks.units, uses)
        self._marks = np.frombuffer(self._map, np.uint8, blocks.mark_bytes, marks)

    def are_present(self, positions: np.ndarray) -> np.ndarray:
        """Return whether blocks are there: bool[n] for int64[n]."""
        return (self._marks[positions >> 3] >> (positions & 7) & 1).astype(np.bool_)

    def is_present(self, position: int) -> bool:
        """Return whether a block is there."""
        return bool(self._marks[position >> 3] >> (position & 7) & 1)

    def list_absent_runs(self, start: int, stop: int) -> list[tuple[int, int]]:
        """List the runs of blocks from `start` up to `stop` that are not there: first, and end."""
        marks = self._marks[start >> 3 : (stop + 7) >> 3].tobytes()
        runs, begin = list[tuple[int, int]](), start
        for position in range(start, stop):
            if marks[(position >> 3) - (start >> 3)] >> (position & 7) & 1:
                if begin < position:
                    runs.append((begin, position))
                begin = position + 1
        return [*runs, (begin, stop)] if begin < stop else runs

    def set_marks(self, start: int, stop: int) -> None:
        """Mark the blocks at positions `start` to `stop`, whose locks the caller holds."""
        for position in range(start, stop):
            self._marks[position >> 3] |= 1 << (position & 7)

    def clear_marks(self, start: int, stop: int) -> None:
        """Remove the marks at positions `start` to `stop`, whose locks the caller holds."""
        for position in range(start, stop):
            self._marks[position >> 3] &= 0xFF ^ 1 << (position & 7)

    def clear_unit(self, unit: int) -> None:
        """Remove all marks of a unit whose locks the caller holds, as the first step to evict it.

        Raises its generation, then the count of evictions.
        """
        start, stop = self._blocks.first_bytes[unit : unit + 2]
        self._marks[start:stop] = 0
        self.generations[unit] += 1
        self.counter[0] += 1

    def count_present(self) -> np.ndarray:
        """Count the blocks of each unit that are there: int64[units]."""
        counts = np.zeros(self._blocks.units, np.int64)
        starts = self._blocks.first_bytes
        some = np.flatnonzero(np.diff(starts))
        if len(some):
            bits = np.bitwise_count(self._marks)
            counts[some] = np.add.reduceat(bits, starts[some], dtype=np.int64)
        return counts

    def count_present_of(self, unit: int) -> int:
        """Count the blocks of one unit that are there."""
        start, stop = self._blocks.first_bytes[unit : unit + 2]
        return int(np.bitwise_count(self._marks[start:stop]).sum())

    def lock_bytes(self, start: int, count: int) -> bool:
        """Take the right to fetch the blocks under some bytes; False where another process has it.

        Bytes are numbered from the first byte of marks.
        """
        return _lock(self._fd, fcntl.F_WRLCK, self._bytes + start, count)

    def unlock_bytes(self, start: int, count: int) -> None:
        """Give the right back."""
        _lock(self._fd, fcntl.F_UNLCK, self._bytes + start, count)

    def pin_unit(self, unit: int) -> bool:
        """Keep a unit from being evicted until this object, and what was forked of it, is closed.

        False while another process evicts it.
        """
        return _lock(self._fd, fcntl.F_RDLCK, _LOCKS + unit, 1)

    def lock_unit(self, unit: int) -> bool:
        """Take the right to evict a unit; False if it is pinned or being fetched."""
        start, stop = self._blocks.first_bytes[unit : unit + 2].tolist()
        if not _lock(self._fd, fcntl.F_WRLCK, _LOCKS + unit, 1):
            return False
        if stop == start or self.lock_bytes(start, stop - start):
            return True
        _lock(self._fd, fcntl.F_UNLCK, _LOCKS + unit, 1)
        return False

    def unlock_unit(self, unit: int) -> None:
        """Give the right to evict a unit back."""
        start, stop = self._blocks.first_bytes[unit : unit + 2].tolist()
        if stop > start:
            self.unlock_bytes(start, stop - start)
        _lock(self._fd, fcntl.F_UNLCK, _LOCKS + unit, 1)

    def close(self) -> None:
        """Let go of locks and pins; what is mapped goes with the last array over it."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    # Bound here because module globals may be gone when the interpreter ends, which closes all.
    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if getattr(self, "_fd", -1) >= 0 and not is_finalizing():
            self.close()


def _open_or_create(path: Path, head: bytes, size: int) -> int:
    """A descriptor on the file of marks; a new one comes in place of one that cannot be right."""
    for _ in range(20):
        with suppress(FileNotFoundError):
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            if os.fstat(fd).st_size == size and os.pread(fd, len(head), 0) == head:
                return fd
            os.close(fd)
            path.unlink()  # left by a power cut, or not ours
        _create(path, head, size)
    raise OSError(f"{path} keeps being replaced")


def _create(path: Path, head: bytes, size: int) -> None:
    """Create a file of marks, whole from the first moment; nothing where one is there."""
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    fd = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        os.ftruncate(fd, size)
        _allocate(fd, size)
        os.pwrite(fd, head, 0)
        with suppress(FileExistsError):
            os.link(unfinished, path)
    finally:
        os.close(fd)
        unfinished.unlink()


def _allocate(fd: int, size: int) -> None:
    """Take the room of a file: to write into a hole that is mapped is SIGBUS on a full disk."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise


def _lock(fd: int, kind: int, start: int, count: int) -> bool:
    """Change a lock on bytes of a file, without waiting; False where another holds one.

    Locks belong to the open file, not to the process, where the system has such.
    """
    try:
        if hasattr(fcntl, "F_OFD_SETLK"):
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, 0, start, count, 0))
        else:
            modes = {fcntl.F_RDLCK: fcntl.LOCK_SH, fcntl.F_WRLCK: fcntl.LOCK_EX}
            mode = modes[kind] | fcntl.LOCK_NB if kind in modes else fcntl.LOCK_UN
            fcntl.lockf(fd, mode, count, start)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _round_up(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
