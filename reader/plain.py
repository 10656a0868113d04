"""Windows of plain values, each array by one kernel call, without arrays of positions between.

Values are plain that are stored as a batch has them: of fixed size, or elements of rows, without
nulls and conversions. What the kernel does not answer, such as windows in blocks that are still to
be verified, or rows that there are not, takes the way of `pieces`, which verifies, and raises what
is to be raised.
"""

import math
from ctypes import addressof, c_char
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fieldslab.reader.buffers import MUCH, Allocator
from fieldslab.reader.kernels import AHEAD, BLOCK_BITS, copy_row, find_shard, load_i64
from fieldslab.reader.processor_cache import get_cache_budget
from fieldslab.reader.rows import ShardDirectory
from fieldslab.reader.stored.array import StoredArray
from fieldslab.reader.stored.field import StoredField
from fieldslab.reader.stored.maps import map_keeper
from fieldslab.schemas.jit import fence, kernel, load_u8, prefetch
from fieldslab.schemas.mapping import get_address

if TYPE_CHECKING:
    from fieldslab.reader.pieces import Bounds

_Array = np.ndarray
_BYTE = np.dtype(np.uint8)
_RING = 15
"""Mask of the places of windows that are located ahead: one less than a power of two."""
_STREAMED = 2 << 20
"""Bytes from which a batch of windows is written past the caches.

Measured with windows of 16 KiB to 1 MiB, 4 MiB a batch, on a busy machine with 32 MiB of last-level
cache: 1.1 to 1.5 times as fast, and as fast together with a first look at the whole batch.
"""


class PlainWindows(NamedTuple):
    """An array of which windows are copied.

    Attributes
    ----------
    name
        Name of the field.
    first, length
        Items of a window, from `first` on, counted from its start.
    shape
        Shape of a window in a batch.
    item_bytes
        Bytes of one item.
    """

    name: str
    array: StoredArray
    first: int
    length: int
    shape: tuple[int, ...]
    item_bytes: int

    def copy(
        self,
        directory: ShardDirectory,
        view_start: int,
        starts: np.ndarray,
        bounds: "Bounds",
        memory: Allocator,
        batches_in_turn: int,
    ) -> np.ndarray | None:
        """Copy windows, as `pieces.find_pieces` has them; None where that takes more.

        Negative `starts`, int64[n], may be made positive in either case.
        """
        array, marks = self.array, self.array.marks
        shape = len(starts), *self.shape
        if not array.all_mapped and math.prod(shape) * array.dtype.itemsize > MUCH:
            return None  # files are compared with the manifest before so much memory is taken
        out = memory.allocate_array((self.name, array.role), shape, array.dtype)
        if not out.nbytes:
            return None
        windows = starts, self.first, self.length, self.item_bytes, *directory.lookup, bounds.total
        if (
            marks is not None
            and not marks.complete
            and not are_verified(
                *windows, view_start, get_address(marks.firsts), get_address(marks.table)
            )
        ):
            return None
        lease = map_keeper.lease  # what the kernel finds mapped stays in memory
        is_complete = copy_windows(
            *(*windows, bounds.lows, bounds.highs, view_start, array.mapped),
            *(np.empty(_RING + 1, np.int64), addressof(c_char.from_buffer(out.view(_BYTE).data))),
            out.nbytes >= _STREAMED or batches_in_turn * out.nbytes > get_cache_budget(),
        )
        del lease
        return out if is_complete else None


def find_plain_windows(
    stored: StoredField, first: int, length: int, shape: tuple[int, ...]
) -> PlainWindows | None:
    """Find how windows of rows of a field are copied; None where its values are not plain."""
    other_arrays = stored.offsets, stored.frames, stored.valid, stored.size, stored.codes
    if other_arrays.count(None) < len(other_arrays) or stored.conversion is not None:
        return None
    array = stored.values
    if not math.prod(array.shape):
        return None
    return PlainWindows(
        stored.field.name, array, first, length, (*shape, *array.shape), array.item_bytes
    )


@kernel("boolean(int64[::1], int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def are_verified(
    windows: _Array,
    first: int,
    length: int,
    item: int,
    starts: int,
    table: int,
    shift: int,
    total: int,
    view_start: int,
    firsts: int,
    marks: int,
) -> Any:
    """Return True if there are these windows, and all blocks under them were verified.

    `firsts` and `marks` are the addresses of the firsts and the table of `VerifiedBlocks`; for
    other parameters see `copy_windows`.
    """
    for i in range(len(windows)):
        start = windows[i]
        if start < 0:
            start += total
        row = start + first
        stop = row + length
        if start < 0 or start >= total or row < 0 or stop > total:
            return False
        row += view_start
        stop += view_start
        while row < stop:
            shard = find_shard(row, starts, table, shift)
            start = load_i64(starts + 8 * shard)
            run = min(stop, load_i64(starts + 8 * shard + 8)) - row
            begin = (row - start) * item
            block = load_i64(firsts + 8 * shard)
            last = block + ((begin + run * item - 1) >> BLOCK_BITS)
            block += begin >> BLOCK_BITS
            while block <= last:
                if (load_u8(marks + (block >> 3)) >> (block & 7)) & 1 == 0:
                    return False
                block += 1
            row += run
    return True


@kernel(
    "boolean(int64[::1], int64, int64, int64, int64, int64, int64, int64, int64[::1], int64[::1],"
    "int64, int64[::1], int64[::1], int64, boolean)"
)
def copy_windows(
    windows: _Array,
    first: int,
    length: int,
    item: int,
    starts: int,
    table: int,
    shift: int,
    total: int,
    lows: _Array,
    highs: _Array,
    view_start: int,
    mapped: _Array,
    ring: _Array,
    out: int,
    stream: bool,
) -> Any:
    """Copy windows one behind the other to the address `out`; False where that takes more.

    Window `i` has `length` items from `windows[i] + first` on. `mapped` is that of `StoredArray`;
    `ring`, int64[_RING + 1], is for windows that are located ahead. For other parameters see
    `pieces.find_pieces`, `Bounds` and `find_shard`.
    """
    size, last = length * item, len(windows) - 1
    mask = 0 if len(lows) == 1 else -1
    begin = end = base = 0
    for i in range(-AHEAD, len(windows)):
        coming = i + AHEAD
        if coming <= last:
            start = windows[coming]
            if start < 0:
                start += total
            row = start + first
            stop = row + length
            low, high = lows[coming & mask], highs[coming & mask]
            if start < 0 or start >= total or row < low or stop > high:
                return False
            if windows[coming] != start:
                windows[coming] = start
            row += view_start
            if row < begin or row >= end:
                shard = find_shard(row, starts, table, shift)
                begin = load_i64(starts + 8 * shard)
                end = load_i64(starts + 8 * shard + 8)
                base = mapped[shard]
                if base == 0:
                    return False
            source = base + (row - begin) * item
            ring[coming & _RING] = source if row + length <= end else 0
            prefetch(source)
            if size > 128:
                prefetch(source + 64)
                prefetch(source + 128)
                prefetch(source + 192)
        if i < 0:
            continue
        source = ring[i & _RING]
        if source != 0:
            copy_row(out, source, size, stream)
            out += size
            continue
        row = windows[i] + first + view_start
        stop = row + length
        while row < stop:  # it goes on in the next shard
            shard = find_shard(row, starts, table, shift)
            low = load_i64(starts + 8 * shard)
            run = min(stop, load_i64(starts + 8 * shard + 8)) - row
            if mapped[shard] == 0:
                return False
            copy_row(out, mapped[shard] + (row - low) * item, run * item, stream)
            out += run * item
            row += run
    if stream:
        fence()
    return True
