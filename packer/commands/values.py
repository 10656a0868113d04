"""Stored values for people and for JSON: images in a few words, times as ISO 8601, names."""

import json
import math
import uuid
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fieldslab.packer.check.arrow_rows import split_lists
from fieldslab.packer.check.stored import StoredRows
from fieldslab.packer.commands.text_format import escape_controls, format_size, truncate_text
from fieldslab.schemas.arrow_arrays import make_inner
from fieldslab.schemas.fields import Field, Logical, Role
from fieldslab.schemas.images import CODECS, PIXELS, detect_format

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_TIMES = ("timestamp", "date", "time", "duration")
_NOT_A_TIME = np.iinfo(np.int64).min


def select_row(rows: StoredRows, index: int) -> StoredRows:
    """Select one of several rows; all arrays keep their first axis, with one item."""
    valid = None if rows.valid is None else rows.valid[index : index + 1]
    if rows.lengths is None:
        return StoredRows(rows.values[index], None, valid)
    start = int(rows.lengths[:index].sum())
    values = rows.values[start : start + int(rows.lengths[index])]
    roles: tuple[Role, ...] = ("size", "codec")
    other_arrays = {
        role: rows.other_arrays[role][index : index + 1]
        for role in roles
        if role in rows.other_arrays
    }
    if "lists.values" in rows.other_arrays:
        counts = rows.other_arrays["lists.offsets"]
        first = int(counts[:index].sum())
        lists = rows.other_arrays["lists.values"][first : first + int(counts[index])]
        other_arrays |= {"lists.values": lists, "lists.offsets": counts[index : index + 1]}
    return StoredRows(values, rows.lengths[index : index + 1], valid, other_arrays)


def find_codec(field: Field, row: StoredRows) -> str | None:
    """Find the codec of one image by its code, its field, or its first bytes; None if unknown."""
    if "codec" in row.other_arrays:
        code = int(row.other_arrays["codec"][0])
        return CODECS[code] if code < len(CODECS) else None
    if field.codec in PIXELS:
        return field.codec
    return detect_format(memoryview(row.values.data))


def value_to_json(field: Field, row: StoredRows, categories: Sequence[str] = ()) -> Any:
    """Return one value as JSON, complete, except for images and bytes.

    An image is `{"codec", "height", "width", "bytes"}`, other bytes are `{"bytes"}`; NaN and
    infinities, which JSON does not have, are texts.
    """
    if row.valid is not None and not row.valid[0]:
        return None
    if field.kind == "nested":
        return [value_to_json(*inner) for inner in _list_inner_rows(field, row)]
    if field.kind == "image":
        height, width = row.other_arrays["size"][0].tolist()
        codec = find_codec(field, row)
        return {"codec": codec, "height": height, "width": width, "bytes": len(row.values)}
    if field.kind == "binary":
        return {"bytes": len(row.values)}
    if field.kind == "text":
        return _decode_text(row.values)
    if field.kind == "categorical":
        return _find_category(int(row.values), categories)
    if _is_hexadecimal(field):
        return _format_hexadecimal(field, row.values)
    return _nest_items(_numbers_to_json(field, row.values), row.values.shape)


def format_value(
    field: Field, row: StoredRows, width: int | None, categories: Sequence[str] = ()
) -> str:
    """Format one value in at most `width` columns of a terminal, cut with `…` if it is longer.

    An image is `image/jpeg 375x500, 61.2 kB`: height x width, as in an array.
    """
    if row.valid is not None and not row.valid[0]:
        return "null"
    if field.kind == "nested":
        lists = [format_value(*inner, width) for inner in _list_inner_rows(field, row, width)]
        count = len(row.other_arrays["lists.values"])
        noun = {"text": "text", "binary": "value"}.get(field.inner or "", "list")
        noun += "" if count == 1 else "s"
        return truncate_text(f"{count} {noun}: {'; '.join(lists)}" if count else "no values", width)
    if field.kind == "image":
        height, width_ = row.other_arrays["size"][0].tolist()
        codec = find_codec(field, row)
        if codec is None:
            return f"no JPEG, PNG or WebP, {format_size(len(row.values))}"
        return f"image/{codec} {height}x{width_}, {format_size(len(row.values))}"
    if field.kind == "binary":
        start = row.values[:16].tobytes().hex(" ")
        return truncate_text(
            f"{format_size(len(row.values))}: {start}" + "…" * (len(row.values) > 16), width
        )
    most = 10**9 if width is None else width + 1
    if field.kind == "text":
        text = json.dumps(_decode_text(row.values[: 4 * most]), ensure_ascii=False)
        return truncate_text(escape_controls(text), width)
    if field.kind == "categorical":
        return truncate_text(escape_controls(_find_category(int(row.values), categories)), width)
    if _is_hexadecimal(field) and row.values.ndim == 1:
        return truncate_text(str(_format_hexadecimal(field, row.values)), width)
    if not row.values.shape:
        return truncate_text(
            escape_controls(_format_item(_numbers_to_json(field, row.values)[0])), width
        )
    return truncate_text(_format_array(field, row.values, most), width)


def _list_inner_rows(
    field: Field, row: StoredRows, most: int | None = None
) -> list[tuple[Field, StoredRows]]:
    """List the lists inside one row of a nested field, `most` at most: rows of a field each."""
    inner = make_inner(field)
    lists, _ = split_lists(field, row)
    ends = lists.offsets[: None if most is None else most + 1].tolist()
    valid = np.ones(len(lists.offsets) - 1, bool) if lists.valid is None else lists.valid
    return [
        (
            inner,
            StoredRows(row.values[start:stop], np.array([stop - start]), valid[index : index + 1]),
        )
        for index, (start, stop) in enumerate(pairwise(ends))
    ]


def _format_array(field: Field, values: np.ndarray, most: int) -> str:
    """`16 values: 0.5, 0.25, ...`, `3x2 values: ...` with the first of them."""
    if not values.size:
        return "no values"
    shown = _numbers_to_json(field, values.reshape(-1)[: most // 2 + 1])
    dims = "x".join(map(str, values.shape))
    noun = "value" if values.size == 1 else "values"
    return f"{dims} {noun}: {escape_controls(', '.join(map(_format_item, shown)))}"


def _numbers_to_json(field: Field, values: np.ndarray) -> list[Any]:
    """Return the numbers of an array as a flat list of the JSON values that they stand for."""
    flat, logical = values.reshape(-1), field.logical
    # A manifest may claim anything: what does not go with the dtype is shown as plain numbers.
    if logical is not None and flat.dtype.kind in "iu":
        if logical.type == "bfloat16" and field.dtype == "uint16":
            return _shorten_floats((flat.astype("<u4") << 16).view("<f4"))
        if logical.type in ("class_label", "enum"):
            return [_find_label(logical, number) for number in flat.tolist()]
        if logical.type in _TIMES and flat.dtype.kind == "i":
            return [_format_time(logical, number) for number in flat.tolist()]
    if flat.dtype.kind == "f":
        return _shorten_floats(flat)
    if flat.dtype.kind == "c":
        return [str(number) for number in flat]
    items: list[Any] = flat.tolist()
    return items


def _shorten_floats(numbers: np.ndarray) -> list[Any]:
    """Return the shortest decimals that give the same floats of this width."""
    if numbers.dtype.itemsize < 8:
        floats = [float(str(number)) for number in numbers]
    else:
        floats = numbers.tolist()
    return [value if math.isfinite(value) else _name_non_finite(value) for value in floats]


def _name_non_finite(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def _find_label(logical: Logical, number: int) -> Any:
    """Return the name of a class, or the number itself if it has none."""
    names = logical.names or ()
    if logical.codes is not None:
        return dict(zip(logical.codes, names, strict=True)).get(number, number)
    return names[number] if 0 <= number < len(names) else number


def _format_time(logical: Logical, number: int) -> str:
    unit = logical.unit or "ns"
    if number == _NOT_A_TIME:
        return "NaT"
    if logical.type == "date":
        return str(np.datetime64(number, unit).astype("<M8[D]"))
    if logical.type in ("time", "duration") and unit == "D":
        return f"{number} D"
    if logical.type == "timestamp":
        # A zone is kept beside the values, which count from 1970 in UTC.
        return str(np.datetime64(number, unit)) + ("Z" if logical.timezone else "")
    seconds, part = divmod(abs(number), _PER_SECOND[unit])
    digits = len(str(_PER_SECOND[unit])) - 1
    fraction = f".{part:0{digits}d}" if digits else ""
    sign = "-" if number < 0 else ""
    if logical.type == "duration":
        return f"{sign}PT{seconds}{fraction}S"
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return f"{sign}{hours:02d}:{minutes:02d}:{seconds % 60:02d}{fraction}"


def _is_hexadecimal(field: Field) -> bool:
    """Return True if each row, or each element, is a few bytes that belong together."""
    logical = field.logical
    return logical is not None and logical.type in ("uuid", "bytes") and bool(field.shape)


def _format_hexadecimal(field: Field, values: np.ndarray) -> Any:
    if values.ndim > 1:
        return [_format_hexadecimal(field, value) for value in values]
    data = values.tobytes()
    assert field.logical is not None
    if field.logical.type == "uuid" and len(data) == 16:
        return str(uuid.UUID(bytes=data))
    return data.hex()


def _find_category(code: int, categories: Sequence[str]) -> str:
    return categories[code] if 0 <= code < len(categories) else f"code {code}"


def _decode_text(values: np.ndarray) -> str:
    return values.tobytes().decode(errors="replace")


def _format_item(item: Any) -> str:
    return item if isinstance(item, str) else json.dumps(item)


def _nest_items(items: list[Any], shape: tuple[int, ...]) -> Any:
    """Nest a flat list into lists of lists of a shape; return the item itself for shape ()."""
    nested = np.empty(shape, object)
    nested.reshape(-1)[:] = items
    return nested.tolist()
