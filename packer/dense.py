"""Arrow arrays as numpy arrays: no copy where the layouts agree, never through Python objects."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class Uneven(ValueError):
    """Lists of unequal length where one length is needed. `row` is the first that differs."""

    def __init__(self, row: int, expected: int, found: int) -> None:
        super().__init__(f"row {row} has length {found}, not {expected}")
        self.row, self.expected, self.found = row, expected, found


class InnerNull(ValueError):
    """A null inside a list: `row` of the outermost array holds the first."""

    def __init__(self, row: int) -> None:
        super().__init__(f"row {row} holds a null")
        self.row = row


def plain(array: pa.Array) -> pa.Array:
    """The same values without extension, run-end or view layouts; dictionaries stay."""
    if isinstance(array.type, pa.BaseExtensionType):
        return plain(array.storage)
    if pa.types.is_run_end_encoded(array.type):
        return plain(pc.run_end_decode(array))
    if pa.types.is_string_view(array.type):
        return array.cast(pa.large_string())
    if pa.types.is_binary_view(array.type):
        return array.cast(pa.large_binary())
    return array


def numbers(array: pa.Array, dtype: np.dtype[Any]) -> np.ndarray:
    """A primitive array without nulls as ndarray[len] of `dtype`, which has the same width."""
    if pa.types.is_boolean(array.type):
        return array.cast(pa.uint8()).to_numpy(zero_copy_only=False).view(np.bool_)
    data = array.buffers()[1]
    if not len(array) or data is None:
        return np.zeros(len(array), dtype)
    return np.frombuffer(data, dtype, len(array), array.offset * dtype.itemsize)


def lengths_of(array: pa.Array) -> np.ndarray:
    """Lengths of the lists or byte strings of an array without nulls: int64[len]."""
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        return np.full(len(array), kind.list_size, np.int64)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return np.diff(_byte_offsets(array, np.dtype("<i4"))).astype(np.int64)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return np.diff(_byte_offsets(array, np.dtype("<i8")))
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return array.sizes.to_numpy().astype(np.int64)
    return np.diff(array.offsets.to_numpy()).astype(np.int64)


def bytes_of(array: pa.Array) -> np.ndarray:
    """The concatenated bytes of a string or binary array without nulls: uint8[total]."""
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    offsets = _byte_offsets(array, np.dtype("<i8" if wide else "<i4"))
    data = array.buffers()[2]
    if data is None or offsets[0] == offsets[-1]:
        return np.empty(0, np.uint8)
    return np.frombuffer(data, np.uint8, int(offsets[-1] - offsets[0]), int(offsets[0]))


def dense(array: pa.Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """Nested lists without null rows as ndarray (len, *shape).

    Raises Uneven where a list is not as long as `shape` says, InnerNull for a null inside.
    """
    array = plain(array)
    if not shape:
        return numbers(array, dtype)
    if pa.types.is_fixed_size_binary(array.type):
        width = array.type.byte_width
        data = array.buffers()[1]
        if not len(array) or data is None:
            return np.zeros((len(array), *shape), dtype)
        flat = np.frombuffer(data, np.uint8, len(array) * width, array.offset * width)
        return flat.view(dtype).reshape(len(array), *shape)
    lengths = lengths_of(array)
    wrong = np.flatnonzero(lengths != shape[0])
    if len(wrong):
        raise Uneven(int(wrong[0]), shape[0], int(lengths[wrong[0]]))
    try:
        inner = dense(elements(array), dtype, shape[1:])
    except (Uneven, InnerNull) as error:
        error.row //= max(shape[0], 1)
        raise
    return inner.reshape(len(array), *shape)


def elements(array: pa.Array) -> pa.Array:
    """The concatenated elements of lists without null rows.

    Raises InnerNull where one of the elements is null.
    """
    inner = plain(array.flatten())
    if inner.null_count:
        first = int(np.flatnonzero(inner.is_null().to_numpy(zero_copy_only=False))[0])
        ends = np.cumsum(lengths_of(array))
        raise InnerNull(int(np.searchsorted(ends, first, side="right")))
    return inner


def valid_rows(array: pa.Array) -> np.ndarray | None:
    """bool[len], or None where no row is null."""
    if not array.null_count and not pa.types.is_dictionary(array.type):
        return None
    valid = array.is_valid()
    if valid.true_count == len(array):
        return None
    return numbers(valid, np.dtype(bool))


def fill(array: pa.Array, value: Any) -> pa.Array:
    """Nulls at the leaves of (nested lists of) a type replaced by `value` (text or a scalar).

    Raises pa.ArrowInvalid where the value does not fit the type. Null lists stay null.
    """
    array = plain(array)
    kind = array.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = fill(array.values, value)
        return type(array).from_arrays(array.offsets, inner, mask=_mask(array))
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        inner = fill(array.values.slice(array.offset * size, len(array) * size), value)
        return pa.FixedSizeListArray.from_arrays(inner, size, mask=_mask(array))
    if not array.null_count:
        return array
    if pa.types.is_dictionary(kind):
        array, kind = array.dictionary_decode(), kind.value_type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        scalar = pa.scalar(str(value).encode(), kind)
    else:
        scalar = pa.scalar(str(value)).cast(kind)
    return array.fill_null(scalar)


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _byte_offsets(array: pa.Array, dtype: np.dtype[Any]) -> np.ndarray:
    data = array.buffers()[1]
    if data is None or not data.size:
        return np.zeros(len(array) + 1, dtype)
    return np.frombuffer(data, dtype, len(array) + 1, array.offset * dtype.itemsize)
