"""What `--cast` does: numbers to numbers by numpy, all else by Arrow; never a silent wrap.

To an integer, a value must be that integer and in range. To a float, it is rounded to the nearest
one and must not overflow. To bool, it must be 0 or 1. Text is parsed; temporal values count as
the integers that they are stored as.
"""

import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fieldslab.packer.convert.dense import (
    decode_layout,
    get_elements,
    is_list,
    is_text,
    strip_layout,
    view_numbers,
)
from fieldslab.packer.convert.json_text import convert_to_json
from fieldslab.packer.convert.misfit import Misfit

LAYOUTS = ("text", "binary", "json", "categorical", "nested")
"""Casts that give a column another layout; all others give its elements another dtype."""

_MANTISSA = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
"""Bits of an integer that a float can hold."""

_INFINITE = r"(?i)^[+-]?inf(inity)?$"


def cast_layout(array: pa.Array, target: str) -> pa.Array:
    """Cast a column to large_string (text, json), large_binary or dictionary of large_string.

    Raises pa.ArrowException where the type or a value does not allow that.
    """
    if target == "nested":
        return array
    if target == "json":
        if isinstance(array.type, pa.JsonType):
            return array.storage.cast(pa.large_string())
        return convert_to_json(array)
    if target == "categorical":
        if pa.types.is_dictionary(array.type) and is_text(array.type.value_type):
            return array
        return cast_layout(array, "text").dictionary_encode()
    if isinstance(array.type, pa.UuidType) and target == "text":
        return _format_uuids(array.storage)
    return decode_layout(array).cast(pa.large_string() if target == "text" else pa.large_binary())


def cast_elements(array: pa.Array, target: str) -> np.ndarray:
    """Cast scalars without nulls to ndarray[len] of dtype `target`; bfloat16 as uint16 bits.

    Raises
    ------
    Misfit
        A value that `target` cannot hold.
    pa.ArrowException
        The type cannot be cast, or text cannot be parsed.
    """
    array = decode_layout(array)
    if target == "bfloat16":
        return _round_to_bfloat16(cast_elements(array, "float32"))
    dtype = np.dtype(target)
    if is_text(array.type):
        return _parse_numbers(array, dtype)
    if pa.types.is_decimal(array.type):
        # Through text: Arrow's own casts are not always the nearest float64, and refuse some
        # integers that fit. Without digits behind the point, the text is that of an integer.
        if dtype.kind != "f":
            array = array.cast(pa.decimal256(76, 0))
        return cast_elements(array.cast(pa.string()), target)
    if pa.types.is_null(array.type):
        return np.zeros(len(array), dtype)
    return _cast_exactly(_read_storage(array), dtype)


def count_rounded(array: pa.Array, target: str) -> int:
    """Count the integers of a column, in lists or not, that `target` cannot hold exactly.

    0 unless integers become floats: what else does not fit is an error, and of floats that become
    shorter it is expected.
    """
    if target not in _MANTISSA:
        return 0
    array = decode_layout(array)
    while is_list(array.type):
        array = get_elements(array)
    if not pa.types.is_integer(array.type):
        return 0
    kind = np.dtype(array.type.to_pandas_dtype())
    values = view_numbers(array.drop_null(), kind).astype(
        np.int64 if kind.kind == "i" else np.uint64
    )
    size = np.where(values < 0, -values, values).view(np.uint64)
    bits = _MANTISSA[target]
    lowest = size & (~size + np.uint64(1))  # its lowest bit that is set
    return int(np.count_nonzero((size >> np.uint64(bits)) >= np.maximum(lowest, 1)))


def _read_storage(array: pa.Array) -> np.ndarray:
    """Read numbers as they are stored, temporal values as integers."""
    kind = array.type
    if pa.types.is_boolean(kind):
        return view_numbers(array, np.dtype(bool))
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return view_numbers(array, np.dtype(f"<i{kind.bit_width // 8}"))
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise pa.ArrowNotImplementedError(f"{kind} holds no numbers")
    return view_numbers(array, np.dtype(kind.to_pandas_dtype()))


def _cast_exactly(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    if values.dtype == dtype:
        return values
    if dtype.kind == "b":
        _check_all((values == 0) | (values == 1), values, "neither 0 nor 1")
        return values.astype(dtype)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            rounded = values.astype(dtype)
        if values.dtype.kind == "f" or dtype.itemsize == 2:
            overflow = np.isinf(rounded) & np.isfinite(values)
            _check_all(~overflow, values, f"too large for {dtype}")
        return rounded
    limits = np.iinfo(dtype)
    if values.dtype.kind == "f":
        wide = values.astype(np.float64, copy=False)
        _check_all(np.trunc(wide) == wide, values, "not an integer")
        fits = (wide >= float(limits.min)) & (wide < float(int(limits.max) + 1))
        _check_all(fits, values, f"outside of {dtype}")
    elif values.dtype.kind != "b" and len(values):
        low, high = int(values.min()), int(values.max())
        if low < limits.min or high > limits.max:
            outside = low if low < limits.min else high
            raise Misfit(f"a value outside of {dtype}", found=outside)
    return values.astype(dtype)


def _check_all(is_valid: np.ndarray, values: np.ndarray, problem: str) -> None:
    if not is_valid.all():
        raise Misfit(f"a value is {problem}", found=values[int(np.argmin(is_valid))])


def _parse_numbers(array: pa.Array, dtype: np.dtype[Any]) -> np.ndarray:
    """Parse numbers from text. What overflows a float is an error, not infinite."""
    if dtype.kind == "b":
        return view_numbers(array.cast(pa.bool_()), dtype)
    if dtype.kind != "f":
        return view_numbers(array.cast(pa.from_numpy_dtype(dtype)), dtype)
    wide = np.dtype("f4" if dtype.itemsize == 4 else "f8")
    values = view_numbers(array.cast(pa.from_numpy_dtype(wide)), wide)
    infinite = np.isinf(values)
    if infinite.any():
        texts = array.filter(pa.array(infinite))
        wrong = texts.filter(pc.invert(pc.match_substring_regex(texts, _INFINITE)))
        if len(wrong):
            raise Misfit(f"a value is too large for {dtype}", found=wrong[0].as_py())
    return _cast_exactly(values, dtype)


def _round_to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Round float32 to nearest even in 16 bits, as uint16; NaN stays NaN."""
    bits = values.view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    nan = np.isnan(values)
    rounded[nan] = (bits[nan] >> 16) | 0x40
    overflow = ((rounded & 0x7FFF) == 0x7F80) & np.isfinite(values)
    _check_all(~overflow, values, "too large for bfloat16")
    return rounded


def _format_uuids(storage: pa.Array) -> pa.Array:
    values = strip_layout(storage).to_pylist()
    texts = [None if value is None else str(uuid.UUID(bytes=value)) for value in values]
    return pa.array(texts, pa.large_string())
