"""What a slab gives, row by row, in a form that is easily compared."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fieldslab.reader import Slab

Row = bytes | str | None
"""Text and the names of categories as `str`, null as None, all else as the bytes of the row."""


def as_row(value: Any) -> Row:
    """A value that `slab[i]` or a batch gives."""
    if value is None or isinstance(value, str | bytes):
        return value
    return bytes(value.tobytes())


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
