"""Rows of different lengths, laid out in rows of one length: a kernel, and its use on arrays."""

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from fieldslab.reader.buffers import Allocator
from fieldslab.reader.kernels import AHEAD, copy_row
from fieldslab.schemas.jit import fence, kernel, memcpy, prefetch
from fieldslab.schemas.mapping import get_address

_Array = np.ndarray


def pad_rows(
    values: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    length: int,
    fill: Any,
    memory: Allocator,
) -> np.ndarray:
    """Copy runs of `values` into rows of one length, and fill what is left of each.

    Parameters
    ----------
    values
        (elements, *shape).
    starts, counts
        First element and number of elements of each row: int64[rows]; no count above `length`.
    fill
        What stands where a row has no element.
    memory
        Where the result is allocated: (rows, length, *shape).
    """
    wrong = (starts < 0) | (counts < 0) | (counts > length) | (starts > len(values) - counts)
    if wrong.any():
        raise ValueError("rows do not lie within the values")
    values = np.ascontiguousarray(values)
    starts, counts = (np.ascontiguousarray(each, np.int64) for each in (starts, counts))
    out = memory.allocate_array(None, (len(starts), length, *values.shape[1:]), values.dtype)
    if out.size:
        item = out.nbytes // (len(starts) * length)
        shards, addresses = np.zeros(len(starts), np.int64), np.array([get_address(values)])
        copy = prepare_copy(out, fill, left=False)
        copy(shards, starts, counts, item, addresses, get_address(out), False)
    return out


def pad_packed_rows(
    values: np.ndarray,
    offsets: np.ndarray,
    length: int | None,
    fill: Any,
    memory: Allocator,
    left: bool = False,
) -> np.ndarray:
    """Copy rows that lie one behind the other into rows of one length, and fill what is left.

    Parameters
    ----------
    values
        (elements, *shape).
    offsets
        Row i is `values[offsets[i]:offsets[i + 1]]`: int64[rows + 1].
    length
        Elements in each padded row; longer rows are cut. None: the length of the longest row.
    fill
        What stands where a row has no element.
    memory
        Where the result is allocated: (rows, length, *shape).
    left
        Whether rows are filled and cut at their beginning.
    """
    values, offsets = np.ascontiguousarray(values), np.ascontiguousarray(offsets, np.int64)
    longest = _find_longest_row(offsets, len(values))
    if longest < 0:
        raise ValueError("rows do not lie within the values")
    length = longest if length is None else length
    out = memory.allocate_array(None, (len(offsets) - 1, length, *values.shape[1:]), values.dtype)
    if out.size:
        blank = np.full(out.shape[1:], fill, values.dtype)
        item = out.nbytes // (len(out) * length)
        addresses = get_address(values), get_address(out), get_address(blank)
        _pad_packed_rows(offsets, item, length, *addresses, left)
    return out


def prepare_copy(out: np.ndarray, fill: Any, left: bool) -> Callable[..., int]:
    """Return a function like `kernels.copy_rows` that also pads each row of `out`.

    `out` is (rows, length, *shape).
    """
    blank = np.full(out.shape[1:], fill, out.dtype)
    address = get_address(blank)

    pad: Any = _copy_and_pad_rows

    def copy_and_pad(*arguments: Any) -> int:
        end_address: int = pad(*arguments, len(blank), left, address)
        return end_address

    return copy_and_pad


def make_padding_mask(
    counts: np.ndarray, length: int, left: bool, memory: Allocator, key: Hashable
) -> np.ndarray:
    """Make a mask that is True where padded rows have elements: bool[rows, length]."""
    mask = memory.allocate_array(key, (len(counts), length), np.dtype(np.bool_))
    columns = np.arange(length)
    if left:
        np.greater_equal(columns, length - counts[:, None], out=mask)
    else:
        np.less(columns, counts[:, None], out=mask)
    return mask


@kernel(
    "int64(int64[::1], int64[::1], int64[::1], int64, int64[::1], int64, boolean,"
    "int64, boolean, int64)"
)
def _copy_and_pad_rows(
    shards: _Array,
    places: _Array,
    counts: _Array,
    item: int,
    addresses: _Array,
    out: int,
    stream: bool,
    length: int,
    left: bool,
    fill: int,
) -> int:
    """Copy as `kernels.copy_rows` does, and fill each row up to `length` items from `fill`."""
    last = len(places) - 1
    for i in range(len(places)):
        coming = min(i + AHEAD, last)
        source = addresses[shards[coming]] + places[coming] * item
        prefetch(source)
        prefetch(source + 64)
        prefetch(source + 128)
        prefetch(source + 192)
        size = counts[i] * item
        rest = length * item - size
        source = addresses[shards[i]] + places[i] * item
        if left:
            memcpy(out, fill, rest)
            copy_row(out + rest, source, size, stream)
        else:
            copy_row(out, source, size, stream)
            memcpy(out + size, fill, rest)
        out += size + rest
    if stream:
        fence()
    return out


@kernel("int64(int64[::1], int64)")
def _find_longest_row(offsets: _Array, elements: int) -> int:
    """Find the length of the longest row; -1 if rows do not lie one behind the other in values."""
    longest: Any = np.int64(0)
    for i in range(len(offsets) - 1):
        if not 0 <= offsets[i] <= offsets[i + 1] <= elements:
            return -1
        longest = max(longest, offsets[i + 1] - offsets[i])
    return longest


@kernel("void(int64[::1], int64, int64, int64, int64, int64, boolean)")
def _pad_packed_rows(
    offsets: _Array, item: int, length: int, values: int, out: int, fill: int, left: bool
) -> None:
    """Copy up to `length` items of each row from the address `values`, and fill from `fill`."""
    for i in range(len(offsets) - 1):
        size = min(offsets[i + 1] - offsets[i], length) * item
        rest = length * item - size
        if left:
            memcpy(out, fill, rest)
            copy_row(out + rest, values + offsets[i + 1] * item - size, size, False)
        else:
            copy_row(out, values + offsets[i] * item, size, False)
            memcpy(out + size, fill, rest)
        out += size + rest
