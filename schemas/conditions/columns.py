"""Values of fields as Arrow columns, to be compared."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fieldslab.schemas.arrow_arrays import find_scalar_type, is_bfloat16, widen_bfloat16
from fieldslab.schemas.fields import Field

if TYPE_CHECKING:
    import pyarrow as pa

_KINDS = ("fixed", "categorical", "text", "binary")


def is_comparable(field: Field) -> bool:
    """Whether rows of a field are single values that Arrow compares."""
    return field.kind in _KINDS and not field.shape and field.storage.kind != "c"


def find_column_type(field: Field) -> "pa.DataType":
    """Find the type of the columns of a field that is comparable; categories count by name."""
    import pyarrow as pa

    if field.kind == "fixed":
        return find_scalar_type(field)
    return pa.large_binary() if field.kind == "binary" else pa.large_string()


class ColumnMaker:
    """Makes Arrow arrays of the values of a field."""

    def __init__(self, field: Field, categories: Sequence[str] | None) -> None:
        """Take a field that is comparable, and the names of its categories."""
        import pyarrow as pa

        self._widened = is_bfloat16(field)
        self._categories: Any = None
        if categories is not None:
            self._categories = pa.array(list(categories), pa.large_string())
        self._type = find_column_type(field)

    def convert(
        self, values: np.ndarray, offsets: np.ndarray | None, valid: np.ndarray | None
    ) -> "pa.Array":
        """Make the array of n rows, null where `valid` (bool[n]) is False.

        Row `i` of text and binary fields is `values[offsets[i]:offsets[i + 1]]`, of uint8.
        """
        import pyarrow as pa

        hidden = None if valid is None else ~valid
        if self._categories is not None:
            is_null = values < 0 if hidden is None else hidden | (values < 0)
            return self._categories.take(pa.array(values, mask=is_null))
        if self._widened:
            values = widen_bfloat16(values)
        if offsets is None:
            if values.dtype.kind in "iu" and pa.types.is_temporal(self._type):
                return pa.array(values, mask=hidden).cast(self._type)
            return pa.array(values, self._type, mask=hidden)
        bits = None if valid is None else pa.array(valid).buffers()[1]
        content = pa.py_buffer(np.ascontiguousarray(values))
        buffers = [bits, pa.py_buffer(np.ascontiguousarray(offsets)), content]
        return pa.Array.from_buffers(self._type, len(offsets) - 1, buffers)
