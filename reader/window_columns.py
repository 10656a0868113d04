"""What becomes of the values of windows once they are gathered: padded rows, and windows of one."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fieldslab.reader.gather import GatheredFields
from fieldslab.reader.image_values import Pictures, Views
from fieldslab.reader.var_len import VarLenValues
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field


def clear_padded_rows(
    columns: GatheredFields, padded: np.ndarray, fields: Mapping[str, Field]
) -> None:
    """Let padded rows, bool[windows, rows], be zeros, rows without elements, and null.

    Zero is the code of a category, so codes are -1, as those of nulls.
    """
    for name, values in columns.values.items():
        if isinstance(values, VarLenValues):
            emptied: Any = values.empty_rows(padded.reshape(-1))
            columns.values[name] = emptied
        elif isinstance(values, Pictures):
            hint = 'Give all one size, such as by Resize, or write edges="repeat".'
            raise UsageError(
                "pictures of different sizes cannot be filled with zeros", field=name, hint=hint
            )
        for array in values if isinstance(values, Views) else [values]:
            if isinstance(array, np.ndarray):
                array[padded] = -1 if _is_categorical(fields.get(name)) else 0
    for each in (*columns.valid.values(), *columns.sizes.values()):
        each[padded] = 0


def _is_categorical(field: Field | None) -> bool:
    return field is not None and field.kind == "categorical"


def drop_row_axis(columns: GatheredFields) -> None:
    """Turn windows of one row, (windows, 1, ...), into rows, (windows, ...)."""
    parts: Any
    for parts in columns:
        for name, each in parts.items():
            if isinstance(each, np.ndarray):
                parts[name] = each[:, 0]
            elif isinstance(each, Views):
                parts[name] = Views(array[:, 0] for array in each)
