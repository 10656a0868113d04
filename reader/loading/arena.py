"""Memory that a loader's process shares with the program: batches are written there once.

It is one file without a name, which the system frees when the last process that maps it ends. The
file is larger than the machine's memory, but pages of it exist only where something was written.
Blocks that are idle for long give their pages back.
"""

import mmap
import os
import pickle
import sys
from collections import deque
from collections.abc import Iterable
from io import BytesIO
from typing import Any, NamedTuple
from weakref import finalize

import numpy as np

from fieldslab.reader.buffers import SMALL, Pool, round_up_capacity
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.mapping import get_address

_INLINE = 16 * 1024
"""Arrays of fewer bytes are copied with the batch."""
SLOTS = SMALL
"""Bytes at the start of the arena, one for each array that may be held: 1 while it is."""


class ArenaRange(NamedTuple):
    """Bytes of the arena that an array of a batch lies in."""

    offset: int
    nbytes: int


class Arena:
    """Maps the shared file. The loader's process hands out blocks of it, the program reads them."""

    def __init__(self, file: int) -> None:
        """Map a file that `create_arena_file` made."""
        self.map = mmap.mmap(file, os.fstat(file).st_size)
        self._address = get_address(np.frombuffer(self.map, np.uint8))
        self.slots = memoryview(self.map)[:SLOTS]
        self._end = SLOTS
        self._free: dict[int, deque[int]] = {}  # offsets of blocks without pages, by size

    def allocate_block(self, size: int) -> memoryview:
        """Allocate a block of zero pages; its bytes are a power of two. Raises MemoryError."""
        free = self._free.setdefault(size, deque())
        try:
            offset = free.popleft()
        except IndexError:
            offset = self._end
            if offset + size > len(self.map):
                raise MemoryError(f"no memory for a batch of {size} bytes") from None
            self._end += size
        block = memoryview(self.map)[offset : offset + size]
        finalize(block, self._release, offset, size).atexit = False
        return block

    def find_offset(self, data: memoryview) -> ArenaRange | None:
        """Find where these bytes (uint8[n]) lie in the arena; None if they do not."""
        offset = get_address(np.frombuffer(data, np.uint8)) - self._address
        return ArenaRange(offset, data.nbytes) if 0 <= offset < len(self.map) else None

    def _release(self, offset: int, size: int) -> None:
        self.map.madvise(mmap.MADV_REMOVE, offset, size)
        self._free[size].append(offset)


class SharedPool(Pool):
    """A pool whose blocks lie in an arena."""

    def __init__(self, arena: Arena) -> None:
        super().__init__()
        self.arena = arena

    def _make_block(self, size: int) -> memoryview:
        return self.arena.allocate_block(round_up_capacity(size))


class _Pickler(pickle.Pickler):
    """Hands arrays out as buffers, also those whose axes are permuted, and tensors as arrays."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is np.ndarray:
            contiguous = value.flags.c_contiguous or value.flags.f_contiguous
            if not contiguous and value.nbytes >= SMALL and not value.dtype.hasobject:
                axes = np.argsort([-abs(stride) for stride in value.strides], kind="stable")
                packed = np.ascontiguousarray(value.transpose(axes))
                return np.transpose, (packed, np.argsort(axes).tolist())
        elif "torch" in sys.modules:
            from fieldslab.reader.tensor_batch import reduce_tensor

            return reduce_tensor(value)
        return NotImplemented


class PickledValue(NamedTuple):
    """A pickled value, and where its large arrays lie in the arena.

    `kept` holds that memory, in the process that wrote it, until the program has let it go.
    """

    payload: bytes
    references: list[ArenaRange]
    kept: list[pickle.PickleBuffer]


def dump_value(value: Any, pool: SharedPool) -> PickledValue:
    """Pickle a value; large arrays that are not in the arena are copied to it."""
    references, buffers = [], []

    def place(buffer: pickle.PickleBuffer) -> bool:
        data = buffer.raw()
        if data.nbytes < _INLINE:
            return True  # goes into the pickle
        reference = pool.arena.find_offset(data)
        if reference is None:
            if data.nbytes < SMALL:
                return True
            copy = pool.allocate_array(None, (data.nbytes,), np.dtype(np.uint8))
            copy[:] = np.frombuffer(data, np.uint8)
            buffer = pickle.PickleBuffer(copy.data)
            reference = pool.arena.find_offset(buffer.raw())
            assert reference is not None
        references.append(reference)
        buffers.append(buffer)
        return False

    file = BytesIO()
    _Pickler(file, 5, buffer_callback=place).dump(value)
    return PickledValue(file.getvalue(), references, buffers)


def load_value(payload: bytes, buffers: Iterable[Any]) -> Any:
    """Load a value that `dump_value` pickled; its large arrays lie in `buffers`."""
    return pickle.loads(payload, buffers=buffers)  # noqa: S301 - from a process of our own


def create_arena_file() -> int:
    """Create a file for an arena, and return its descriptor. Raises UsageError."""
    if not hasattr(os, "memfd_create"):
        raise UsageError("`isolate` needs Linux", found=sys.platform)
    file = os.memfd_create("fieldslab-batches")
    pages = 4 * os.sysconf("SC_PHYS_PAGES")
    os.ftruncate(file, pages * mmap.PAGESIZE)
    return file
