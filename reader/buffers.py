"""Memory for batches, used again as soon as no array refers to it.

Touching fresh pages costs more than copying into them, so a batch is written into memory of an
earlier batch that the caller has let go. Each lease of a block has an owner of its own, which is
what the array over it has as `base`: every view, and whatever else reaches the memory by way of
the array, holds the owner, and the memory returns to the pool when the owner dies. A batch
therefore never changes in the caller's hands.
"""

import math
import mmap
from collections import deque
from collections.abc import Hashable
from threading import Lock
from typing import Any, Protocol
from weakref import ref

import numpy as np

from fieldslab.reader import forks
from fieldslab.schemas.system import map_anonymous

SMALL = 64 * 1024
"""Bytes from which memory is pooled; below, numpy's allocator is as good."""
WASTE = 4
"""How many times as large as requested a block may be."""
SPARE = 4
"""Idle blocks kept beyond those, so that batches of other sizes in turn find theirs again."""
_WINDOW = 256
"""Leases over which the largest number of blocks in use is remembered."""
_HUGE: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
"""Advice that only Linux knows."""

MUCH = 2**26
"""Bytes of memory that are not taken before the files are known to hold as much."""


class Allocator(Protocol):
    """Where a gather puts its results."""

    def allocate_array(
        self, key: Hashable, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> np.ndarray:
        """Allocate an uninitialised array in C order; `key` names it within the batch."""


Block = mmap.mmap | memoryview


class LeaseOwner(np.ndarray):
    """What lies in a block for as long as one lease lasts.

    Numpy makes an array's base that of the array it is a view of, while types are the same: of
    a type of its own, an owner is where that ends. It does not give out the map below.
    """

    __slots__ = ()
    base = None


class Pool:
    """Blocks of anonymous memory of one process, in sizes that are powers of two.

    It keeps no more blocks idle than make up, with those in use, the most that were in use at one
    time lately, and a few to spare.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._idle: list[Block] = []  # that used last comes last
        self._leases: dict[int, tuple[ref[LeaseOwner], Block]] = {}
        # An owner may die at any point of any thread, so its death is only noted.
        self._dead: deque[ref[LeaseOwner]] = deque()
        self._turns = self._peak = self._earlier_peak = 0
        forks.register_for_forks(self)

    def allocate_array(
        self, key: Hashable, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> np.ndarray:
        """Allocate an uninitialised array of its own; `key` plays no part. Raises MemoryError."""
        size = math.prod(shape) * dtype.itemsize
        if size < SMALL:
            return np.empty(shape, dtype)
        with self._lock:
            self._collect_idle_blocks()
            block = self._pop_idle_block(size) or self._make_block(size)
            owner = LeaseOwner(shape, dtype, block)
            lease = ref(owner, self._dead.append)
            self._leases[id(lease)] = lease, block
            self._turns += 1
            if self._turns == _WINDOW:
                self._turns, self._earlier_peak, self._peak = 0, self._peak, 0
            self._peak = max(self._peak, len(self._leases))
        array: np.ndarray = owner.view(np.ndarray)
        return array

    @property
    def idle_bytes(self) -> int:
        """Bytes that wait for their next use."""
        with self._lock:
            self._collect_idle_blocks()
            return sum(map(len, self._idle))

    def after_fork(self) -> None:
        """Start empty in the child: what the parent had leased is not returned there."""
        self._lock = Lock()
        self._idle = []
        self._leases = {}
        self._dead = deque()

    def _make_block(self, size: int) -> Block:
        return _allocate_zeroed(size)

    def _collect_idle_blocks(self) -> None:
        """Collect the blocks of leases that are over; keep what may be needed again."""
        while self._dead:
            _, block = self._leases.pop(id(self._dead.popleft()))
            self._idle.append(block)
        keep = max(self._peak, self._earlier_peak) - len(self._leases) + SPARE
        if len(self._idle) > keep:
            del self._idle[: len(self._idle) - keep]

    def _pop_idle_block(self, size: int) -> Block | None:
        """Pop the fitting block that was used last, and so is likeliest in the caches."""
        for index in range(len(self._idle) - 1, -1, -1):
            if size <= len(self._idle[index]) <= WASTE * size:
                return self._idle.pop(index)
        return None


class ReusedMemory:
    """Memory of one batch that is gathered into again and again; it grows where it must."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._blocks: dict[Hashable, np.ndarray] = {}

    def allocate_array(
        self, key: Hashable, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> np.ndarray:
        """Allocate an uninitialised array over the memory that `key` had before, if it fits."""
        size = math.prod(shape) * dtype.itemsize
        block = self._blocks.get(key)
        if block is None or block.nbytes < size:
            block = self._pool.allocate_array(key, (round_up_capacity(size),), np.dtype(np.uint8))
            self._blocks[key] = block
        return np.ndarray(shape, dtype, buffer=block)


def round_up_capacity(size: int) -> int:
    """Return the bytes of the block that holds `size` bytes."""
    return 1 << max(size - 1, 1).bit_length()


def _allocate_zeroed(size: int) -> mmap.mmap:
    """Zeroed memory, page-aligned and private: a forked child gets pages of its own."""
    try:
        block = map_anonymous(round_up_capacity(size))
        if _HUGE is not None:
            block.madvise(_HUGE)  # measured: 7 % faster with 16 MB of 64 KiB rows
        return block
    except (OSError, OverflowError) as error:
        raise MemoryError(f"no memory for a batch of {size} bytes") from error
