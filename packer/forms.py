"""The forms a column can take, and what `--cast` does: Arrow array -> values and lengths."""

import binascii
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from fieldslab.packer.dense import (
    InnerNull,
    Uneven,
    bytes_of,
    dense,
    elements,
    lengths_of,
    numbers,
    plain,
    valid_rows,
)
from fieldslab.packer.fieldplan import Converted, FieldPlan


def cast_array(array: pa.Array, target: str) -> pa.Array:
    """An Arrow array as `--cast` asks; lists are cast element by element.

    Raises pa.ArrowException where a value does not survive.
    """
    array = plain(array)
    if target == "json":
        texts = [None if value is None else _json(value) for value in array.to_pylist()]
        return pa.array(texts, pa.large_string())
    if pa.types.is_dictionary(array.type) and target != "categorical":
        array = array.dictionary_decode()
    if target == "categorical":
        return array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    if target == "bfloat16":
        return _bfloat16(array.cast(pa.float32()))
    if pa.types.is_nested(array.type) and target not in ("text", "binary"):
        return array.cast(_with_element(array.type, ARROW_TYPES[target]))
    return array.cast(ARROW_TYPES[target])


ARROW_TYPES = {
    "bool": pa.bool_(), "float16": pa.float16(), "float32": pa.float32(), "float64": pa.float64(),
    "text": pa.large_string(), "binary": pa.large_binary(),
} | {
    f"{sign}int{bits}": getattr(pa, f"{sign}int{bits}")()
    for sign in ("", "u") for bits in (8, 16, 32, 64)
}  # fmt: skip


def _with_element(kind: pa.DataType, element: pa.DataType) -> pa.DataType:
    if not pa.types.is_nested(kind):
        return element
    inner = _with_element(kind.value_type, element)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(inner, kind.list_size)
    return pa.large_list(inner)


def _bfloat16(array: pa.Array) -> pa.Array:
    """float32 rounded to nearest even in 16 bits, as uint16; NaN stays NaN."""
    valid = valid_rows(array)
    bits = numbers(array, np.dtype("<u4"))
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    rounded[nan] = (bits[nan] >> 16) | 0x40
    return pa.array(rounded.astype(np.uint16), mask=None if valid is None else ~valid)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _dense(plan: FieldPlan, array: pa.Array) -> Converted:
    return Converted(dense(array, plan.field.storage, plan.field.shape))


def _flat(plan: FieldPlan, array: pa.Array) -> Converted:
    """Flat lists that hold a whole nd array each, row-major."""
    shape = plan.field.shape
    flat = dense(array, plan.field.storage, (math.prod(shape),))
    return Converted(flat.reshape(len(array), *shape))


def _bool8(plan: FieldPlan, array: pa.Array) -> Converted:
    return Converted(numbers(array, np.dtype(np.int8)) != 0)


def _permuted(plan: FieldPlan, array: pa.Array) -> Converted:
    """arrow.fixed_shape_tensor: axis i of a row is axis permutation[i] of what is stored."""
    inner = numbers(elements(array), plan.field.storage)
    stored = [0] * len(plan.permutation)
    for axis, source in enumerate(plan.permutation):
        stored[source] = plan.field.shape[axis]
    order = (0, *(axis + 1 for axis in plan.permutation))
    return Converted(np.ascontiguousarray(inner.reshape(len(array), *stored).transpose(order)))


def _raw(plan: FieldPlan, array: pa.Array) -> Converted:
    """Raw bytes or hexadecimal digits as a tensor."""
    field, tensor = plan.field, plan.tensor
    assert tensor is not None
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    data, lengths = bytes_of(array), lengths_of(array)
    digits = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    if not field.variable and not digits and len(array):
        digits = bool((lengths == 2 * field.item_bytes).all()) and field.item_bytes > 0
    if digits:
        data, lengths = _from_hex(data, lengths)
    item = max(field.item_bytes, 1)
    wrong = lengths % item if field.variable else lengths != field.item_bytes
    bad = np.flatnonzero(wrong)
    if len(bad):
        raise Uneven(int(bad[0]), field.item_bytes, int(lengths[bad[0]]))
    stored = field.storage.newbyteorder(">") if tensor.big_endian else field.storage
    values = data.view(stored).astype(field.storage, copy=False)
    if field.variable:
        return Converted(values.reshape(-1, *field.shape), lengths // item)
    return Converted(values.reshape(len(array), *field.shape))


def _from_hex(data: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    odd = np.flatnonzero(lengths % 2)
    if len(odd):
        raise pa.ArrowInvalid(f"{lengths[odd[0]]} hexadecimal digits are not whole bytes")
    try:
        return np.frombuffer(binascii.unhexlify(data.tobytes()), np.uint8), lengths // 2
    except binascii.Error as error:
        raise pa.ArrowInvalid("not hexadecimal digits") from error


def _list(plan: FieldPlan, array: pa.Array) -> Converted:
    lengths = lengths_of(array)
    inner = elements(array)
    try:
        values = dense(inner, plan.field.storage, plan.field.shape)
    except (Uneven, InnerNull) as error:
        error.row = int(np.searchsorted(np.cumsum(lengths), error.row, side="right"))
        raise
    return Converted(values, lengths)


def _bytes(plan: FieldPlan, array: pa.Array) -> Converted:
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    if plan.field.kind == "text":
        _check_text(plan, array)
    return Converted(bytes_of(array), lengths_of(array))


def _check_text(plan: FieldPlan, array: pa.Array) -> None:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(
            f"text is not UTF-8 (pack it as bytes with --cast {plan.columns[0]}=binary)"
        ) from error


FORMS: dict[str, Callable[[FieldPlan, pa.Array], Converted]] = {
    "dense": _dense, "flat": _flat, "bool8": _bool8, "permuted": _permuted, "raw": _raw,
    "list": _list, "bytes": _bytes,
}  # fmt: skip
