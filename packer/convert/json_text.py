"""Any Arrow array as JSON text, for `--cast COLUMN=json`.

Strict RFC 8259, one value a row. What JSON has no word for becomes a string: NaN, Infinity and
-Infinity by their names, bytes in base64, decimals with every digit, dates and times in ISO 8601.
Durations are integers in the column's unit, intervals objects, maps arrays of [key, value].
"""

import base64
import json
import math
import uuid
from collections.abc import Callable
from itertools import islice, repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fieldslab.packer.column_names import make_names_unique
from fieldslab.packer.convert.dense import (
    compute_lengths,
    decode_layout,
    get_child,
    get_elements,
    is_bytes,
    is_list,
    is_text,
)

_INTERVAL = ("months", "days", "nanoseconds")


def convert_to_json(array: pa.Array) -> pa.Array:
    """Convert each row to JSON text: large_string, null where the row is null.

    Raises pa.ArrowException where text is not UTF-8 or a time zone is unknown.
    """
    texts = [None if value is None else _dump_json(value) for value in _convert_values(array)]
    return pa.array(texts, pa.large_string())


def _dump_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _convert_values(array: pa.Array) -> list[Any]:
    """Yield values that `json` takes, one for each row; None for a null."""
    if isinstance(array.type, pa.UuidType):
        return _convert_each(lambda value: str(uuid.UUID(bytes=value)), array.storage.to_pylist())
    array = decode_layout(array)
    kind, types = array.type, pa.types
    if types.is_union(kind):
        return _convert_union(array)
    if types.is_struct(kind):
        return _convert_structs(array)
    if types.is_map(kind):
        return _convert_maps(array)
    if is_list(kind):
        return _convert_lists(array)
    if is_text(kind):
        array.validate(full=True)
        return array.to_pylist()
    if types.is_floating(kind):
        return _convert_each(_name_non_finite, array.to_pylist())
    if is_bytes(kind) or types.is_fixed_size_binary(kind):
        return _convert_each(
            lambda value: base64.b64encode(value).decode("ascii"), array.to_pylist()
        )
    if types.is_interval(kind):
        return _convert_each(
            lambda value: dict(zip(_INTERVAL, value, strict=True)), array.to_pylist()
        )
    if types.is_duration(kind):
        return array.cast(pa.int64()).to_pylist()
    if types.is_timestamp(kind):
        text = array.cast(pa.string())
        return pc.replace_substring(text, " ", "T", max_replacements=1).to_pylist()
    if types.is_temporal(kind) or types.is_decimal(kind):
        return array.cast(pa.string()).to_pylist()
    return array.to_pylist()


def _convert_lists(array: pa.Array) -> list[Any]:
    inner = iter(_convert_values(get_elements(array)))
    valid = array.is_valid().to_pylist()
    lengths = compute_lengths(array).tolist()
    return [
        list(islice(inner, length)) if is_valid else None
        for is_valid, length in zip(valid, lengths, strict=True)
    ]


def _convert_maps(array: pa.Array) -> list[Any]:
    pair = pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])
    return [
        None if pairs is None else [list(pair.values()) for pair in pairs]
        for pairs in _convert_lists(array.cast(pa.list_(pair)))
    ]


def _convert_structs(array: pa.Array) -> list[Any]:
    names = make_names_unique([field.name for field in array.type])
    columns = [_convert_values(get_child(array, index)) for index in range(len(names))]
    rows = zip(*columns, strict=True) if columns else repeat((), len(array))
    valid = array.is_valid().to_pylist()
    return [
        dict(zip(names, row, strict=True)) if is_valid else None
        for is_valid, row in zip(valid, rows, strict=True)
    ]


def _convert_union(array: pa.Array) -> list[Any]:
    children = {
        code: _convert_values(array.field(index))
        for index, code in enumerate(array.type.type_codes)
    }
    # From the buffers: the properties of the array leave its offset out.
    codes = np.frombuffer(array.buffers()[1], np.int8, len(array), array.offset)
    rows = np.arange(len(array))
    if array.type.mode == "dense":
        rows = np.frombuffer(array.buffers()[2], np.int32, len(array), 4 * array.offset)
    return [children[code][row] for code, row in zip(codes.tolist(), rows.tolist(), strict=True)]


def _convert_each(convert: Callable[[Any], Any], values: list[Any]) -> list[Any]:
    return [None if value is None else convert(value) for value in values]


def _name_non_finite(value: float) -> float | str:
    value = float(value)
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
