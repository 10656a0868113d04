"""The forms a column can take: Arrow array without null rows -> values and lengths."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

from fieldslab.packer.convert.casts import LAYOUTS, cast_elements
from fieldslab.packer.convert.dense import (
    compute_lengths,
    convert_lists,
    decode_layout,
    find_valid_rows,
    get_elements,
    is_text,
    view_byte_rows,
    view_bytes,
    view_numbers,
)
from fieldslab.packer.convert.fieldplan import ConvertedRows, FieldPlan
from fieldslab.packer.convert.misfit import InnerNull, Misfit
from fieldslab.packer.convert.tokens import encode_texts
from fieldslab.schemas.fields import MAX_INNER, Role
from fieldslab.schemas.optiontext import mark_option

_NIBBLES = np.full(256, 255, np.uint8)
for _value, _digit in enumerate("0123456789abcdef"):
    _NIBBLES[[ord(_digit), ord(_digit.upper())]] = _value


def read_elements(plan: FieldPlan, array: pa.Array) -> np.ndarray:
    """Read scalars as the field stores them: ndarray (len, *shape of one).

    Raises InnerNull for a null, where `--nulls` gives no value.
    """
    array = decode_layout(array)
    valid = find_valid_rows(array)
    if valid is not None:
        if plan.filler is None:
            raise InnerNull
        valid_rows = read_elements(plan, array.filter(pa.array(valid)))
        values = np.empty((len(array), *valid_rows.shape[1:]), valid_rows.dtype)
        values[valid], values[~valid] = valid_rows, plan.filler
        return values
    if plan.options.cast is not None and plan.options.cast not in LAYOUTS:
        return cast_elements(array, plan.options.cast)
    if pa.types.is_fixed_size_binary(array.type):
        rows = view_byte_rows(array)
        return rows.view(plan.field.storage)[:, 0] if plan.field.storage.kind == "c" else rows
    return view_numbers(array, plan.field.storage)


def _read_dense(plan: FieldPlan, array: pa.Array) -> ConvertedRows:
    """Scalars, or lists in lists that all have the field's shape."""
    return ConvertedRows(
        convert_lists(decode_layout(array), _get_item_shape(plan), partial(read_elements, plan))
    )


def _read_lists(plan: FieldPlan, array: pa.Array) -> ConvertedRows:
    """Lists of any length, of scalars or of lists that all have the field's shape."""
    array = decode_layout(array)
    values = convert_lists(get_elements(array), _get_item_shape(plan), partial(read_elements, plan))
    return ConvertedRows(values, compute_lengths(array))


def _read_nested(plan: FieldPlan, array: pa.Array) -> ConvertedRows:
    """Lists of lists of any length, or of text or bytes."""
    array = decode_layout(array)
    counts, lists = compute_lengths(array), get_elements(array)
    is_bytewise = plan.field.inner != "ragged"
    valid = find_valid_rows(lists)
    if valid is not None and is_bytewise and isinstance(plan.filler, str):
        lists, valid = fill_nulls(lists, plan.filler), None
    if valid is not None:
        if plan.options.nulls != "mask":
            raise InnerNull(of_list=True)
        lists = lists.filter(pa.array(valid))
    if is_bytewise:
        if plan.field.inner == "text":
            _check_text(plan, lists)
        values, lengths = _view_bytes_and_lengths(lists)
    else:
        read = partial(read_elements, plan)
        values = convert_lists(get_elements(lists), _get_item_shape(plan), read)
        lengths = compute_lengths(lists)
    if (longest := int(lengths.max(initial=0))) > MAX_INNER:
        raise Misfit("a list inside a list is too long", expected=f"{MAX_INNER}", found=longest)
    if valid is not None:
        stored = np.full(len(valid), -1, np.int64)
        stored[valid] = lengths
    else:
        stored = lengths
    ends = np.concatenate([[0], np.cumsum(np.maximum(stored, 0))])
    elements = np.diff(ends[np.concatenate([[0], np.cumsum(counts)])])
    other_arrays: dict[Role, np.ndarray] = {
        "lists.values": stored.astype("<i4"),
        "lists.offsets": counts,
    }
    return ConvertedRows(values, elements, other_arrays=other_arrays)


def fill_nulls(array: pa.Array, value: str) -> pa.Array:
    """Text, bytes or categories with a value for nulls."""
    encoded = pa.types.is_dictionary(array.type)
    array = decode_layout(array)
    filled = array.fill_null(pa.scalar(value.encode()).cast(array.type))
    return filled.dictionary_encode() if encoded else filled


def _get_item_shape(plan: FieldPlan) -> tuple[int, ...]:
    """Return the field's shape without the axis that bytes of fixed width have of their own."""
    logical = plan.field.logical
    own_axis = logical is not None and logical.type in ("bytes", "uuid")
    return plan.field.shape[:-1] if own_axis else plan.field.shape


def _read_flat(plan: FieldPlan, array: pa.Array) -> ConvertedRows:
    """Flat lists that hold a whole nd array each, row-major."""
    array = decode_layout(array)
    return _reshape_values(
        plan, read_elements(plan, get_elements(array)), compute_lengths(array), "elements"
    )


def _read_permuted(plan: FieldPlan, array: pa.Array) -> ConvertedRows:
    """arrow.fixed_shape_tensor: axis i of a row is axis permutation[i] of what is stored."""
    order = plan.permutation
    stored = tuple(plan.field.shape[order.index(axis)] for axis in range(len(order)))
    flat = read_elements(plan, get_elements(decode_layout(array)))
    rows = flat.reshape(len(array), *stored)
    return ConvertedRows(np.ascontiguousarray(rows.transpose(0, *(axis + 1 for axis in order))))


def _read_raw(plan: FieldPlan, array: pa.Array) -> ConvertedRows:
    """Raw bytes or hexadecimal digits as a tensor."""
    assert plan.options.tensor is not None
    field, array = plan.field, decode_layout(array)
    digits = is_text(array.type)
    data, lengths = _view_bytes_and_lengths(array)
    if not digits and not field.variable and field.item_bytes and len(array):
        digits = bool((lengths == 2 * field.item_bytes).all())
    if digits:
        data, lengths = _decode_hex(data, lengths)
    stored = field.storage.newbyteorder(">") if plan.options.tensor.big_endian else field.storage
    odd = np.flatnonzero(lengths % stored.itemsize)
    if len(odd):
        raise Misfit(
            f"not a whole number of {field.dtype}",
            expected=f"a multiple of {stored.itemsize} bytes",
            found=f"{lengths[odd[0]]} bytes",
        )
    if stored.kind == "b" and data.size and data.max() > 1:
        raise Misfit("a byte is not a bool", expected="0 or 1", found=int(data.max()))
    values = data.view(stored).astype(field.storage, copy=False)
    return _reshape_values(plan, values, lengths // stored.itemsize, f"{field.dtype} values")


def _reshape_values(
    plan: FieldPlan, values: np.ndarray, lengths: np.ndarray, unit: str
) -> ConvertedRows:
    """Flat values, `lengths` of them a row, in the shape of the field."""
    field = plan.field
    item = math.prod(field.shape)
    if field.variable:
        wrong, expected = np.flatnonzero(lengths % item), f"a multiple of {item} {unit}"
    else:
        wrong, expected = np.flatnonzero(lengths != item), f"{item} {unit}"
    if len(wrong):
        raise Misfit(
            "the length does not match the shape",
            expected=f"{expected} for {list(field.shape)}",
            found=f"{lengths[wrong[0]]} {unit}",
        )
    if field.variable:
        return ConvertedRows(values.reshape(-1, *field.shape), lengths // item)
    return ConvertedRows(values.reshape(len(lengths), *field.shape))


def _decode_hex(data: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    odd = np.flatnonzero(lengths % 2)
    if len(odd):
        raise Misfit("an odd number of hexadecimal digits", found=f"{lengths[odd[0]]} digits")
    nibbles = _NIBBLES[data]
    if nibbles.size and nibbles.max() > 15:
        digit = bytes(data[[int(nibbles.argmax())]])
        raise Misfit("not hexadecimal digits", found=digit)
    return nibbles[::2] << 4 | nibbles[1::2], lengths // 2


def _read_bytes(plan: FieldPlan, array: pa.Array) -> ConvertedRows:
    """Read text and bytes."""
    array = decode_layout(array)
    if plan.field.kind == "text":
        _check_text(plan, array)
    return ConvertedRows(*_view_bytes_and_lengths(array))


def _read_tokens(plan: FieldPlan, array: pa.Array) -> ConvertedRows:
    """Read text as its tokens."""
    array = decode_layout(array)
    _check_text(plan, array)
    return encode_texts(plan, array)


def _view_bytes_and_lengths(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    if pa.types.is_fixed_size_binary(array.type):
        rows = view_byte_rows(array)
        return rows.reshape(-1), np.full(len(rows), rows.shape[1], np.int64)
    return view_bytes(array), compute_lengths(array)


def _check_text(plan: FieldPlan, array: pa.Array) -> None:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        hint = None
        if plan.options.tokenize is None:
            hint = f"{mark_option('cast', 'binary', column=plan.columns[0])} packs it as bytes."
        raise Misfit("text is not UTF-8", hint=hint) from error


FORMS: dict[str, Callable[[FieldPlan, pa.Array], ConvertedRows]] = {
    "dense": _read_dense,
    "list": _read_lists,
    "nested": _read_nested,
    "flat": _read_flat,
    "permuted": _read_permuted,
    "raw": _read_raw,
    "bytes": _read_bytes,
    "tokens": _read_tokens,
}
