"""What a slab gives, row by row, in a form that is easily compared."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from fieldslab.reader import Slab, VarLenValues

Row = bytes | str | None
"""Text and the names of categories as `str`, null as None, lists of lists as JSON text of their
rows, bytes in hexadecimal digits; all else as the bytes of the row."""


def as_row(value: Any) -> Row:
    """A value that `slab[i]` or a batch gives."""
    if value is None or isinstance(value, str | bytes):
        return value
    if isinstance(value, list | VarLenValues):
        return nested_row([as_row(item) for item in value])
    return bytes(value.tobytes())


def nested_row(rows: Sequence[Row]) -> str:
    """Lists inside a list, as the text that stands for them here."""
    items = [row.hex() if isinstance(row, bytes) else row for row in rows]
    return json.dumps(items, ensure_ascii=False)


def gathered(slab: Slab, rows: Sequence[int], name: str) -> list[Row]:
    """Rows of a field, gathered in one batch."""
    batch, field = slab.gather(rows, [name]), slab.fields[name]
    values: Any = batch[name]
    if field.kind == "categorical":
        names = slab.categories(name)
        actual: list[Row] = [
            names[code] if 0 <= code < len(names) else None for code in values.tolist()
        ]
    else:
        actual = [as_row(values[index]) for index in range(len(rows))]
    valid = batch.valid.get(name, np.ones(len(rows), bool))
    return [row if present else None for row, present in zip(actual, valid, strict=True)]
