"""Slabs and batches as HTML, for notebooks. Everything that comes from data is escaped."""

from collections.abc import Container, Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from fieldslab.reader.png_thumbnails import make_thumbnail_url
from fieldslab.schemas.errors import FieldslabError
from fieldslab.schemas.images import PIXELS

ROWS, FIELDS = 5, 20
"""So many are shown."""
SIDE = 64
"""Pixels of the longer side of a thumbnail."""
_LONGEST, _VALUES = 60, 6
_MOST_BYTES = 2**24
"""A row that is larger is not read only to be looked at."""
_CELL = "text-align:left;vertical-align:top;max-width:20em;overflow-wrap:break-word"


def format_slab(name: str, length: int, columns: Iterable[Any], fields: int) -> str:
    """Format the first rows of some columns (`Column`) of a slab of so many rows and fields."""
    rows = range(min(ROWS, length))
    lines = []
    for column in columns:
        head = _format_text(column.field.name), _format_text(column.field.describe())
        lines.append([*head, *(_format_stored_value(column, row) for row in rows)])
    return _format_table(f"{name}: {length:,} rows", [f"row {row}" for row in rows], lines, fields)


def format_batch(
    values: Mapping[str, Any],
    rows: np.ndarray,
    valid: Mapping[str, np.ndarray],
    images: Container[str],
) -> str:
    """Format a batch's fields and their values in its first rows; `images` names its images."""
    shown_rows = rows[:ROWS].tolist()
    lines = []
    for name in list(values)[:FIELDS]:
        mask, column = valid.get(name), values[name]
        # Of windows, the first row of each where rows differ in length.
        step = 1 if isinstance(column, tuple) else len(column) // max(len(rows), 1)
        cells = [
            "null"
            if mask is not None and not np.any(mask[place])
            else _format_gathered_value(column, place * step, name in images)
            for place in range(len(shown_rows))
        ]
        lines.append([_format_text(name), _format_text(_describe_type(column)), *cells])
    title = f"Batch({len(rows):,} rows)"
    return _format_table(title, [f"row {row}" for row in shown_rows], lines, len(values))


def _format_table(
    title: str, head: Sequence[str], lines: Iterable[Sequence[str]], fields: int
) -> str:
    """Cells are HTML already; everything else is text."""
    parts = [f"<div><p><b>{_format_text(title)}</b></p><table><thead><tr>"]
    parts += [f"<th style='{_CELL}'>{_format_text(word)}</th>" for word in ("field", "type", *head)]
    parts.append("</tr></thead><tbody>")
    for line in lines:
        cells = "".join(f"<td style='{_CELL}'>{cell}</td>" for cell in line)
        parts.append(f"<tr>{cells}</tr>")
    parts.append("</tbody></table>")
    if fields > FIELDS:
        parts.append(f"<p>and {fields - FIELDS:,} more fields</p>")
    return "".join([*parts, "</div>"])


def _format_stored_value(column: Any, row: int) -> str:
    """Format one value of a slab, or say why it cannot be read."""
    field = column.field
    try:
        if column.row_bytes(row) > _MOST_BYTES:
            return f"{column.row_bytes(row):,} bytes"
        value = column[row]
    except FieldslabError as error:
        return f"<em>{_escape(error.text)}</em>"
    if field.kind == "image" and value is not None and field.codec not in PIXELS:
        return _format_picture(value, f"image, {len(value):,} bytes")
    return _format_value(value)


def _format_gathered_value(values: Any, row: int, encoded: bool) -> str:
    """Format one value of a batch."""
    if isinstance(values, tuple):  # views, an array for each size
        return "<br>".join(_format_gathered_value(array, row, False) for array in values)
    value = values[row]
    if encoded and isinstance(value, bytes) and len(value) <= _MOST_BYTES:
        return _format_picture(value, f"image, {len(value):,} bytes")
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.shape[2:] == (3,):
        return _format_picture(value, "x".join(map(str, value.shape)))
    return _format_value(value)


def _format_picture(image: Any, text: str) -> str:
    url = make_thumbnail_url(image, SIDE)
    shown = _format_text(text)
    return shown if url is None else f"<img src='{url}' alt='{shown}' title='{shown}'>"


def _format_value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    if isinstance(value, str):
        return _format_text(value)
    if isinstance(value, np.ndarray) and value.ndim:
        shape = "x".join(map(str, value.shape))
        first = ", ".join(str(number) for number in value.reshape(-1)[:_VALUES])
        more = ", …" if value.size > _VALUES else ""
        return _format_text(f"{shape}: {first}{more}") if value.size else f"{shape}: no values"
    if hasattr(value, "offsets"):  # lists inside a list
        value = value[:_VALUES].tolist()
    return _format_text(str(value))


def _describe_type(values: Any) -> str:
    if isinstance(values, np.ndarray):
        return f"{values.dtype}{list(values.shape[1:]) or ''}"
    if isinstance(values, tuple):
        return ", ".join(map(_describe_type, values))
    return type(values).__name__


def _format_text(text: str) -> str:
    """Format text as HTML, cut if it is long."""
    return _escape(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")


def _escape(text: str) -> str:
    return escape(text.encode("utf-8", "backslashreplace").decode())
