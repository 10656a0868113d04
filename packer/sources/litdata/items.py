"""Serialised items in memory, and their leaves: places in a buffer, never an object a row."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

_INLINE = 12
"""A binary view holds values up to so many bytes itself."""


class BadRow(ValueError):
    """A row that is not what the format demands, counted from the first of the piece."""

    def __init__(self, row: int, problem: str, expected: Any = None, found: Any = None) -> None:
        super().__init__(problem)
        self.row, self.problem = row, problem
        self.expected, self.found = expected, found


class RowBytes(NamedTuple):
    """Bytes `starts[i]` to `starts[i] + lengths[i]` of `data` for every row i."""

    data: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray

    def skip(self, size: int) -> "RowBytes":
        """Return the rows without their first bytes, which must exist."""
        return RowBytes(self.data, self.starts + size, self.lengths - size)

    def gather_heads(self, size: int, what: str) -> np.ndarray:
        """Copy the first bytes of every row: uint8[rows, size]. Raises BadRow for a short row."""
        short = np.flatnonzero(self.lengths < size)
        if len(short):
            row = int(short[0])
            raise BadRow(row, f"{what} is cut off", f"{size} bytes", int(self.lengths[row]))
        sizes = np.full(len(self.starts), size, np.int64)
        return get_values(RowBytes(self.data, self.starts, sizes).gather()).reshape(-1, size)

    def gather(self) -> pa.LargeBinaryArray:
        """Copy every row's bytes together."""
        rows, data, lengths = len(self.starts), self.data, self.lengths
        if rows == 1:
            start = int(self.starts[0])
            return make_large_binary(data[start : start + int(lengths[0])], lengths)
        if rows and (lengths == lengths[0]).all():
            return make_large_binary(_gather_windows(data, self.starts, int(lengths[0])), lengths)
        # As views into `data`: Arrow copies them together. Short values stand in the views.
        views = np.zeros((rows, 4), np.int32)
        views[:, 0], views[:, 3] = lengths, self.starts
        short = np.flatnonzero(lengths <= _INLINE)
        inline = _gather_windows(data, self.starts[short], _INLINE).reshape(-1, _INLINE)
        inline[np.arange(_INLINE) >= lengths[short, None]] = 0
        views[short, 1:] = inline.view(np.int32)
        buffers = [None, pa.py_buffer(views), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.binary_view(), rows, buffers).cast(pa.large_binary())


class LeafDecoder(NamedTuple):
    """One leaf: its Arrow type, and how its bytes become an array of that type.

    `dtype` names that of complex numbers, for which Arrow has no type: they are bytes there.
    """

    type: pa.DataType
    read: Callable[[RowBytes], pa.Array]
    dtype: Any = None


def split_leaves(items: RowBytes, count: int) -> list[RowBytes]:
    """Split items into leaves: each begins with `count` sizes of 32 bits.

    Raises BadRow where the sizes do not add up to the item.
    """
    sizes = items.gather_heads(4 * count, "the table of leaf sizes").view("<u4").astype(np.int64)
    total = 4 * count + sizes.sum(axis=1)
    bad_rows = np.flatnonzero(total != items.lengths)
    if len(bad_rows):
        row = int(bad_rows[0])
        length, claimed = int(items.lengths[row]), int(total[row])
        raise BadRow(row, "the leaves' sizes do not add up to the item's", length, claimed)
    ends = items.starts[:, None] + 4 * count + np.cumsum(sizes, axis=1)
    return [RowBytes(items.data, ends[:, i] - sizes[:, i], sizes[:, i]) for i in range(count)]


def make_large_binary(values: np.ndarray, lengths: np.ndarray) -> pa.LargeBinaryArray:
    """Make an Arrow array from the bytes of rows and their lengths."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers)


def get_values(array: pa.LargeBinaryArray) -> np.ndarray:
    """Return the concatenated bytes of an array that `gather` made: uint8[bytes]."""
    ends = np.frombuffer(array.buffers()[1], np.int64, len(array) + 1)
    size = int(ends[-1]) if len(array) else 0
    data = array.buffers()[2]
    return np.empty(0, np.uint8) if not size else np.frombuffer(data, np.uint8, size)


def _gather_windows(data: np.ndarray, starts: np.ndarray, size: int) -> np.ndarray:
    """`size` bytes from each start on, one behind the other; zeros behind the end of `data`."""
    if not size:
        return np.empty(0, np.uint8)
    last = len(data) - size
    inside = starts <= last
    if inside.all():
        return _view_windows(data, size)[starts].view(np.uint8)
    tail = np.concatenate([data[max(last, 0) :], np.zeros(size, np.uint8)])
    windows = np.empty(len(starts), f"V{size}")
    if inside.any():
        windows[inside] = _view_windows(data, size)[starts[inside]]
    windows[~inside] = _view_windows(tail, size)[starts[~inside] - max(last, 0)]
    return windows.view(np.uint8)


def _view_windows(data: np.ndarray, size: int) -> np.ndarray:
    """View the `size` bytes at every offset: an array of overlapping items, without a copy."""
    return np.ndarray(len(data) - size + 1, f"V{size}", data, strides=(1,))
