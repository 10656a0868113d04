"""Rows of different lengths, laid out in rows of one length."""

import numpy as np

from fieldslab.reader.stored.array import get_address
from fieldslab.schemas.jit import kernel, memcpy

_Array = np.ndarray


def pad(
    values: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    fill: np.ndarray,
    left: bool,
    out: np.ndarray,
) -> None:
    """Copy runs of `values` into the rows of `out`, and fill what is left of each row.

    Parameters
    ----------
    values
        (elements, *shape), in C order.
    starts, counts
        First element and number of elements of each row: int64[rows]; no count above `length`.
    fill
        What a row without elements looks like: (length, *shape).
    left
        Whether the filling stands in front of the elements.
    out
        (rows, length, *shape), in C order, of the dtype of `values` and `fill`.
    """
    wrong = (starts < 0) | (counts < 0) | (counts > len(fill)) | (starts > len(values) - counts)
    if wrong.any() or out.shape != (len(starts), *fill.shape) or fill.dtype != values.dtype:
        raise ValueError("rows do not lie within the values, or `out` has no room for them")
    if out.size:
        item = out.nbytes // (out.shape[0] * out.shape[1])
        addresses = get_address(values), get_address(fill), get_address(out)
        _pad(starts, counts, item, len(fill), left, *addresses)


@kernel("void(int64[::1], int64[::1], int64, int64, boolean, int64, int64, int64)")
def _pad(
    starts: _Array,
    counts: _Array,
    item: int,
    length: int,
    left: bool,
    values: int,
    fill: int,
    out: int,
) -> None:
    """`values`, `fill` and `out` are addresses; `item` is the bytes of one element."""
    for i in range(len(starts)):
        size = counts[i] * item
        rest = length * item - size
        if left:
            memcpy(out, fill, rest)
            memcpy(out + rest, values + starts[i] * item, size)
        else:
            memcpy(out, values + starts[i] * item, size)
            memcpy(out + size, fill, rest)
        out += size + rest
