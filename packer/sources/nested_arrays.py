"""Arrays as Arrow columns: what sources of arrays share, such as HDF5, numpy and Zarr."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

_VALUE_ATTRIBUTES = ("scale_factor", "add_offset", "_FillValue", "missing_value")
"""Attributes by which readers of netCDF change the values that they read."""


class BadValue(ValueError):
    """A value that no type admits: `row` counts from the first that was read."""

    def __init__(self, problem: str, row: int, found: Any) -> None:
        super().__init__(problem)
        self.problem, self.row, self.found = problem, row, found


def nest_lists(flat: pa.Array, kind: pa.DataType, rows: int) -> pa.Array:
    """Nest flat elements in lists of fixed sizes, without a copy."""
    sizes = []
    while pa.types.is_fixed_size_list(kind):
        sizes.append(kind)
        kind = kind.value_type
    counts = [rows]
    for size in sizes:
        counts.append(counts[-1] * size.list_size)
    for size, count in zip(reversed(sizes), reversed(counts[:-1]), strict=True):
        flat = pa.Array.from_buffers(size, count, [None], children=[flat])
    return flat


def make_from_lengths(kind: pa.DataType, values: np.ndarray, lengths: np.ndarray) -> pa.Array:
    """Make lists, or text, of values that follow each other: int64[rows] of them in each."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    data = pa.py_buffer(np.ascontiguousarray(values).view(np.uint8))
    ends = pa.py_buffer(offsets)
    if not pa.types.is_large_list(kind):
        return pa.Array.from_buffers(kind, len(lengths), [None, ends, data])
    inner = pa.Array.from_buffers(kind.value_type, len(values), [None, data])
    return pa.Array.from_buffers(kind, len(lengths), [None, ends], children=[inner])


def describe_idle_attributes(attributes: Mapping[str, Any]) -> str:
    """Say which attributes would change values, and change none here."""
    names = [name for name in _VALUE_ATTRIBUTES if name in attributes]
    return f"; {', '.join(names)} not applied" if names else ""
