"""Fields as the commands show them: as text and as JSON."""

from typing import Any

import msgspec

from fieldslab.packer.commands.text_format import format_count, format_size
from fieldslab.schemas.fields import Field


def format_type(field: Field) -> str:
    """Format the type of a row: `float32[16]`, `int32[*]`, `jpeg`, `timestamp[us, UTC]`."""
    compressed = [] if field.compression is None else [field.compression.codec]
    return ", ".join([text for text in (_format_plain_type(field), *compressed) if text])


def _format_plain_type(field: Field) -> str:
    logical = field.logical
    if field.kind == "image":
        every = "row" if field.index == 0 else f"{field.index} MCUs"
        index = f"index every {every}" if field.index is not None else ""
        return ", ".join(text for text in (field.codec, index) if text)
    if field.kind == "categorical":
        known = field.categories is not None
        count = len(field.categories or ()) if known else field.table.count if field.table else 0
        return "codes" if not count else f"{count:,} categories"
    if field.kind in ("text", "binary"):
        return logical.type if logical is not None else ""
    if field.inner in ("text", "binary"):
        return f"{field.inner}[*]"
    name: str = field.dtype
    if logical is not None and logical.type in ("timestamp", "time", "duration"):
        zone = f", {logical.timezone}" if logical.timezone else ""
        name = f"{logical.type}[{logical.unit}{zone}]"
    elif logical is not None and logical.type in ("date", "bfloat16"):
        name = logical.type
    elif logical is not None and logical.names is not None:
        name = f"{field.dtype}, {format_count(len(logical.names), 'name')}"
    elif logical is not None and logical.type == "uuid":
        return "uuid" + {"fixed": "", "ragged": "[*]"}.get(field.kind, "[*,*]")
    dims = ["*"] * {"ragged": 1, "nested": 2}.get(field.kind, 0) + list(map(str, field.shape))
    return f"{name}[{','.join(dims)}]" if dims else name


def format_field_bytes(field: Field, stored: int) -> str:
    """Format the bytes of a field, and the ratio of compression if it is compressed."""
    if field.compression is None or not stored:
        return format_size(stored)
    return f"{format_size(stored)} ({field.compression.decoded / stored:.1f}x)"


def field_to_json(field: Field) -> dict[str, Any]:
    """Return the members of a field that describe its type; a category table only by its size."""
    members = msgspec.to_builtins(field)
    names = (
        "name",
        "kind",
        "inner",
        "dtype",
        "shape",
        "codec",
        "index",
        "coded",
        "logical",
        "categories",
        "table",
        "compression",
    )
    values = {"dtype": field.dtype, "shape": list(field.shape)} | members
    return {name: values[name] for name in names if values.get(name) is not None}
