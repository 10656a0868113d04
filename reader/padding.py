"""Rows of different lengths, laid out in rows of one length: a kernel, and its use on arrays."""

from collections.abc import Hashable
from typing import Any

import numpy as np

from fieldslab.reader.buffers import Allocator
from fieldslab.reader.kernels import AHEAD, copy_row
from fieldslab.schemas.jit import fence, kernel, memcpy, prefetch

_Array = np.ndarray


def pad(
    values: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    length: int,
    fill: Any,
    left: bool,
    memory: Allocator,
    key: Hashable = None,
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
    left
        Whether the filling stands in front of the elements.
    memory, key
        Where the result is allocated: (rows, length, *shape).
    """
    wrong = (starts < 0) | (counts < 0) | (counts > length) | (starts > len(values) - counts)
    if wrong.any():
        raise ValueError("rows do not lie within the values")
    values = np.ascontiguousarray(values)
    starts, counts = (np.ascontiguousarray(each, np.int64) for each in (starts, counts))
    out = memory.empty(key, (len(starts), length, *values.shape[1:]), values.dtype)
    addresses = np.array([_find_address(values)], np.int64)
    shards = np.zeros(len(starts), np.int64)
    pad_rows(shards, starts, counts, addresses, fill, left, out, False)
    return out


def pad_rows(
    shards: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    addresses: np.ndarray,
    fill: Any,
    left: bool,
    out: np.ndarray,
    stream: bool,
) -> None:
    """Copy runs of elements into `out`, (rows, length, *shape) in C order, and fill its rest.

    Row i takes `counts[i]` elements, at most `length`, from `starts[i]` on of the array that begins
    at `addresses[shards[i]]`. The caller knows that they lie in there. `stream` as in `copy`.
    """
    if not out.size:
        return
    blank = np.full(out.shape[1:], fill, out.dtype)
    item = blank.nbytes // len(blank)
    places = _find_address(blank), _find_address(out)
    _pad(shards, starts, counts, item, addresses, len(blank), left, *places, stream)


def make_mask(
    counts: np.ndarray, length: int, left: bool, memory: Allocator, key: Hashable
) -> np.ndarray:
    """True where padded rows have elements: bool[rows, length]."""
    mask = memory.empty(key, (len(counts), length), np.dtype(np.bool_))
    columns = np.arange(length)
    if left:
        np.greater_equal(columns, length - counts[:, None], out=mask)
    else:
        np.less(columns, counts[:, None], out=mask)
    return mask


@kernel(
    "void(int64[::1], int64[::1], int64[::1], int64, int64[::1], int64, boolean, int64, int64,"
    "boolean)"
)
def _pad(
    shards: _Array,
    starts: _Array,
    counts: _Array,
    item: int,
    addresses: _Array,
    length: int,
    left: bool,
    fill: int,
    out: int,
    stream: bool,
) -> None:
    """`fill` and `out` are addresses; `item` is the bytes of one element."""
    last = len(starts) - 1
    for i in range(len(starts)):
        coming = min(i + AHEAD, last)
        source = addresses[shards[coming]] + starts[coming] * item
        prefetch(source)
        prefetch(source + 64)
        size = counts[i] * item
        rest = length * item - size
        source = addresses[shards[i]] + starts[i] * item
        if left:
            memcpy(out, fill, rest)
            copy_row(out + rest, source, size, stream)
        else:
            copy_row(out, source, size, stream)
            memcpy(out + size, fill, rest)
        out += size + rest
    if stream:
        fence()


def _find_address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
