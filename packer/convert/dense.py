"""Arrow arrays as numpy arrays: no copy where the layouts agree, never through Python objects."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fieldslab.packer.convert.misfit import InnerNull, Misfit

Read = Callable[[pa.Array], np.ndarray]
"""Turns the innermost elements into ndarray (len, *shape of an element)."""


def strip_layout(array: pa.Array) -> pa.Array:
    """Convert to the same values without extension, run-end or view layouts; keep dictionaries."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.bool8":
            return pc.not_equal(array.storage, pa.scalar(0, pa.int8()))
        return strip_layout(array.storage)
    if pa.types.is_run_end_encoded(kind):
        ends = array.run_ends.to_numpy()
        rows = np.arange(array.offset, array.offset + len(array))
        return strip_layout(array.values).take(pa.array(np.searchsorted(ends, rows, side="right")))
    if pa.types.is_string_view(kind):
        return array.cast(pa.large_string())
    if pa.types.is_binary_view(kind):
        return array.cast(pa.large_binary())
    return array


def decode_layout(array: pa.Array) -> pa.Array:
    """Convert to the same values in a plain layout, without a dictionary."""
    array = strip_layout(array)
    if pa.types.is_dictionary(array.type):
        return decode_layout(strip_layout(array.dictionary).take(array.indices))
    return array


def get_child(parent: pa.Array, index: int) -> pa.Array:
    """Return a child of a struct array in a plain layout, null where the struct is."""
    parent = strip_layout(parent)
    values = strip_layout(parent.field(index))
    if not parent.null_count:
        return values
    return pa.StructArray.from_arrays([values], names=[""], mask=parent.is_null()).flatten()[0]


def find_valid_rows(array: pa.Array) -> np.ndarray | None:
    """Find rows of an array in a plain layout that are not null: bool[len]; None if all are."""
    if not array.null_count and not pa.types.is_dictionary(array.type):
        return None
    valid = array.is_valid()
    if valid.true_count == len(array):
        return None
    return view_numbers(valid, np.dtype(bool))


def view_numbers(array: pa.Array, dtype: np.dtype[Any]) -> np.ndarray:
    """View a primitive array without nulls as ndarray[len] of `dtype`, which has the same width."""
    if pa.types.is_boolean(array.type):
        return array.cast(pa.uint8()).to_numpy(zero_copy_only=False).view(np.bool_)
    if not pa.types.is_primitive(array.type) or array.type.bit_width != 8 * dtype.itemsize:
        raise TypeError(f"{array.type} is not stored as {dtype}")
    data = array.buffers()[1]
    if not len(array) or data is None:
        return np.zeros(len(array), dtype)
    return np.frombuffer(data, dtype, len(array), array.offset * dtype.itemsize)


def view_byte_rows(array: pa.Array) -> np.ndarray:
    """View a fixed_size_binary array without nulls: uint8[len, width]."""
    width = array.type.byte_width
    data = array.buffers()[1]
    if data is None or not len(array) * width:
        return np.zeros((len(array), width), np.uint8)
    flat = np.frombuffer(data, np.uint8, len(array) * width, array.offset * width)
    return flat.reshape(len(array), width)


def view_bytes(array: pa.Array) -> np.ndarray:
    """View the concatenated bytes of a string or binary array without nulls: uint8[total]."""
    offsets = _get_offsets(array)
    data = array.buffers()[2]
    if data is None or offsets[0] == offsets[-1]:
        return np.empty(0, np.uint8)
    return np.frombuffer(data, np.uint8, int(offsets[-1] - offsets[0]), int(offsets[0]))


def compute_lengths(array: pa.Array) -> np.ndarray:
    """Compute the lengths of the lists or byte strings of an array without nulls: int64[len]."""
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        return np.full(len(array), kind.list_size, np.int64)
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return array.sizes.to_numpy().astype(np.int64)
    return np.diff(_get_offsets(array)).astype(np.int64, copy=False)


def get_elements(array: pa.Array) -> pa.Array:
    """Return the concatenated elements of lists that are not null, in a plain layout."""
    return decode_layout(array.flatten())


def convert_lists(array: pa.Array, shape: tuple[int, ...], read: Read) -> np.ndarray:
    """Convert nested lists without null rows to an ndarray (len, *shape, *element shape).

    Raises
    ------
    Misfit
        A list is not as long as `shape` says.
    InnerNull
        A list inside a list is null.
    """
    array = decode_layout(array)
    if not shape:
        return read(array)
    if array.null_count:
        raise InnerNull
    lengths = compute_lengths(array)
    wrong = np.flatnonzero(lengths != shape[0])
    if len(wrong):
        raise Misfit(
            "a list is not as long as those of other rows",
            expected=f"length {shape[0]}",
            found=f"length {lengths[wrong[0]]}",
        )
    inner = convert_lists(get_elements(array), shape[1:], read)
    return inner.reshape(len(array), shape[0], *inner.shape[1:])


def estimate_decoded_bytes(array: pa.Array) -> int:
    """Estimate how many bytes the values of an array take when written out one by one.

    Arrow's own `nbytes` counts shared values once. Categories of text stay shared here as well.
    """
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return estimate_decoded_bytes(array.storage)
    if pa.types.is_struct(kind):
        return sum(estimate_decoded_bytes(array.field(index)) for index in range(kind.num_fields))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return int(array.cast(pa.large_binary()).nbytes)
    if pa.types.is_dictionary(kind):
        shared = array.dictionary
        if is_text(kind.value_type):
            return int(array.indices.nbytes)
    elif pa.types.is_run_end_encoded(kind):
        shared = array.values
    elif pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        each = estimate_decoded_bytes(array.values) // max(len(array.values), 1)
        return int(array.sizes.nbytes) + each * int(pc.sum(array.sizes).as_py() or 0)
    else:
        return int(array.nbytes)
    return len(array) * (estimate_decoded_bytes(shared) // max(len(shared), 1) + 1)


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is one of Arrow's five kinds of list."""
    types = pa.types
    listed = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return listed or types.is_list_view(kind) or types.is_large_list_view(kind)


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is one of Arrow's three kinds of string."""
    types = pa.types
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether a type is one of Arrow's three kinds of binary of any length."""
    types = pa.types
    return types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)


def _get_offsets(array: pa.Array) -> np.ndarray:
    """Return the offsets of an array of strings, binaries or lists: int32 or int64 [len + 1]."""
    kind, types = array.type, pa.types
    wide = types.is_large_list(kind) or types.is_large_string(kind) or types.is_large_binary(kind)
    dtype = np.dtype("<i8" if wide else "<i4")
    data = array.buffers()[1]
    if data is None or not data.size:
        return np.zeros(len(array) + 1, dtype)
    return np.frombuffer(data, dtype, len(array) + 1, array.offset * dtype.itemsize)
