"""Memory for batches, used again as soon as nobody holds it.

Touching fresh pages costs more than copying into them, so a batch is written into memory of an
earlier batch that the caller has let go. The arrays handed out are based on a `Lease`: when the
last view of one dies, wherever it went, its block returns to the pool. A batch therefore never
changes in the caller's hands.
"""

import math
import mmap
from collections.abc import Hashable
from threading import RLock
from typing import Any, Protocol

import numpy as np

from fieldslab.reader import forks

SMALL = 64 * 1024
"""Bytes from which memory is pooled; below, the allocator of numpy keeps its own."""
_WINDOW = 64
"""Leases over which the peak of a size is remembered."""


class Memory(Protocol):
    """Where a gather puts its results."""

    def empty(self, key: Hashable, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """An uninitialised array in C order; `key` names it within the batch."""


class Pool:
    """Blocks of anonymous memory of one process, in sizes that are powers of two.

    Of each size it keeps no more idle blocks than make up, with those in use, the most that were
    in use at one time lately.
    """

    def __init__(self) -> None:
        self._shelves: dict[int, _Shelf] = {}
        self._lock = RLock()  # reentrant: collecting garbage may give back a lease at any point
        forks.register(self)

    def empty(self, key: Hashable, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """An uninitialised array of its own; `key` plays no part."""
        size = math.prod(shape) * dtype.itemsize
        if size < SMALL:
            return np.empty(shape, dtype)
        return np.ndarray(shape, dtype, buffer=self.block(size))

    def block(self, size: int) -> np.ndarray:
        """A block of at least `size` bytes: uint8[power of two]. Raises MemoryError."""
        capacity = 1 << max(size - 1, 1).bit_length()
        if capacity <= SMALL:
            return np.empty(capacity, np.uint8)
        with self._lock:
            shelf = self._shelves.setdefault(capacity, _Shelf())
            block = shelf.take()
        try:
            return np.asarray(Lease(self, shelf, _fresh(capacity) if block is None else block))
        except BaseException:
            self.give_back(shelf, block)
            raise

    def give_back(self, shelf: "_Shelf", block: np.ndarray | None) -> None:
        """Take a block back that nobody uses any more; None where it could not be had."""
        with self._lock:
            shelf.put(block)

    @property
    def idle(self) -> int:
        """Bytes that wait for their next use."""
        with self._lock:
            return sum(size * len(shelf.idle) for size, shelf in self._shelves.items())

    def after_fork(self) -> None:
        """Start empty in the child; what the parent had leased stays private to each."""
        self._lock = RLock()
        self._shelves = {}


class Lease:
    """A block in use; the base of the arrays over it."""

    def __init__(self, pool: Pool, shelf: "_Shelf", block: np.ndarray) -> None:
        self._home = (pool, shelf)
        self._block = block
        self.__array_interface__ = block.__array_interface__

    def __del__(self) -> None:
        pool, shelf = self._home
        pool.give_back(shelf, self._block)


class Kept:
    """Memory of one batch that is gathered into again and again; it grows where it must."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._blocks: dict[Hashable, np.ndarray] = {}

    def empty(self, key: Hashable, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """An uninitialised array over the memory that `key` had before, if that is enough."""
        size = math.prod(shape) * dtype.itemsize
        block = self._blocks.get(key)
        if block is None or block.nbytes < size:
            block = self._blocks[key] = self._pool.block(size)
        return np.ndarray(shape, dtype, buffer=block)


class _Shelf:
    """The blocks of one size."""

    def __init__(self) -> None:
        self.idle: list[np.ndarray] = []
        self._used = 0
        self._turns = 0
        self._peak = 0
        self._earlier_peak = 0

    def take(self) -> np.ndarray | None:
        self._used += 1
        self._turns += 1
        if self._turns == _WINDOW:
            self._turns, self._earlier_peak, self._peak = 0, self._peak, 0
        self._peak = max(self._peak, self._used)
        return self.idle.pop() if self.idle else None

    def put(self, block: np.ndarray | None) -> None:
        self._used -= 1
        if block is not None:
            self.idle.append(block)
        keep = max(self._peak, self._earlier_peak) - self._used
        del self.idle[: max(len(self.idle) - keep, 0)]


def _fresh(size: int) -> np.ndarray:
    """Zeroed memory, page-aligned and private: a forked child gets pages of its own."""
    try:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"no memory for a batch of {size} bytes") from error
    return np.frombuffer(pages, np.uint8)
