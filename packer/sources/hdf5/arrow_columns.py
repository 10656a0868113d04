"""What was read from HDF5 as Arrow arrays; numbers stay where they lie."""

from functools import cache

import h5py
import numpy as np
import pyarrow as pa

from fieldslab.packer.sources.hdf5.elements import Element
from fieldslab.packer.sources.hdf5.types import HDF5Column, encode_member_name
from fieldslab.packer.sources.nested_arrays import BadValue, make_from_lengths, nest_lists

_ROWS_AT_ONCE = 1 << 16


def make_array(column: HDF5Column, read: np.ndarray, row_shape: tuple[int, ...]) -> pa.Array:
    """Make one column of what was read.

    Parameters
    ----------
    read
        (rows, *row_shape, *shape of an array type), structured where the type is a compound.
    row_shape
        Shape of a row of the dataset.

    Raises BadValue for a bool that is neither 0 nor 1.
    """
    values = read
    for name in column.member:
        values = values[encode_member_name(name)]
    rows = len(read)
    flat = np.ascontiguousarray(values).reshape(-1)
    kind = column.make_arrow_type(row_shape)
    per_row = len(flat) // max(rows, 1)
    array = _MAKE[column.element.form](column.element, flat, per_row)
    return nest_lists(array, kind, rows)


def _make_numbers(element: Element, flat: np.ndarray, per_row: int) -> pa.Array:
    if element.dtype.str[0] == ">":
        flat = flat.astype(element.dtype.newbyteorder("<"))
    return pa.Array.from_buffers(element.type, len(flat), [None, pa.py_buffer(flat.view(np.uint8))])


def _make_bools(element: Element, flat: np.ndarray, per_row: int) -> pa.Array:
    if len(flat) and flat.max() > 1:
        first = int(np.argmax(flat > 1))
        raise BadValue("a bool is neither 0 nor 1", first // per_row, int(flat[first]))
    return pa.array(flat)


def _make_bytes(element: Element, flat: np.ndarray, per_row: int) -> pa.Array:
    return pa.Array.from_buffers(element.type, len(flat), [None, pa.py_buffer(flat.view(np.uint8))])


def _make_fixed_text(element: Element, flat: np.ndarray, per_row: int) -> pa.Array:
    """Make a column of text of fixed length without its padding."""
    width = element.dtype.itemsize
    letters = flat.view(np.uint8).reshape(len(flat), width)
    if element.padding == "first":
        ends = letters == 0
        lengths = np.where(ends.any(axis=1), ends.argmax(axis=1), width)
    else:
        is_text = letters[:, ::-1] != (0 if element.padding == "null" else ord(" "))
        lengths = np.where(is_text.any(axis=1), width - is_text.argmax(axis=1), 0)
    if (lengths == width).all():
        return make_from_lengths(element.type, letters.reshape(-1), lengths)
    inside = np.arange(width) < lengths[:, None]
    return make_from_lengths(element.type, letters[inside], lengths)


def _make_variable_text(element: Element, flat: np.ndarray, per_row: int) -> pa.Array:
    """Make a column of text of any length; UTF-8 is checked later."""
    data = pa.array(flat, pa.large_binary())
    return pa.Array.from_buffers(element.type, len(data), data.buffers())


def _make_variable_lists(element: Element, flat: np.ndarray, per_row: int) -> pa.Array:
    """Make a column of lists, one Python object each: h5py reads them no other way."""
    base = element.base
    assert base is not None
    lengths = np.fromiter(map(len, flat), np.int64, len(flat))
    stored = base.newbyteorder("<")
    # h5py hands out big-endian numbers as if they were little-endian (seen in 3.16).
    read_as = base if _is_byte_order_swapped() else stored
    parts = [
        np.concatenate([np.empty(0, stored), *flat[first : first + _ROWS_AT_ONCE]])
        for first in range(0, len(flat), _ROWS_AT_ONCE)
    ]
    values = np.concatenate([np.empty(0, stored), *parts])
    if read_as.str[0] == ">":
        values = values.view(read_as).astype(stored)
    return make_from_lengths(element.type, values, lengths)


@cache
def _is_byte_order_swapped() -> bool:
    """Whether this h5py hands out big-endian arrays of variable length in the file's order."""
    with h5py.File("byte order", "w", driver="core", backing_store=False) as file:
        dataset = file.create_dataset("x", 1, h5py.vlen_dtype(np.dtype(">i2")))
        dataset[0] = np.array([1], ">i2")
        return bool(dataset[0][0] != 1)


_MAKE = {
    "number": _make_numbers,
    "flag": _make_bools,
    "raw": _make_bytes,
    "text": _make_fixed_text,
    "texts": _make_variable_text,
    "lists": _make_variable_lists,
}
