"""Types of numpy: the columns that arrays become, and their values in Arrow."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import numpy as np
import pyarrow as pa

from fieldslab.packer.source import ColumnHint
from fieldslab.packer.sources.nested_arrays import (
    BadValue,
    describe_idle_attributes,
    make_from_lengths,
    nest_lists,
)
from fieldslab.schemas.fields import DtypeName
from fieldslab.schemas.optiontext import mark_option

_UNITS = ("s", "ms", "us", "ns")
_COARSE_UNITS = {"W": 604_800, "D": 86_400, "h": 3600, "m": 60}
"""Seconds of the units that become seconds."""
BYTES: np.dtype[Any] = np.dtype("O", metadata={"vlen": bytes})
"""The dtype of bytes of any length."""
_NO_TEXT = (ValueError, TypeError, UnicodeError, SystemError, pa.ArrowException)
"""What is raised on values that are no text: SystemError on letters beyond Unicode."""
_NAT = np.iinfo(np.int64).min
_EXCLUDE = f"{mark_option('exclude', ['{}'])} leaves it out."


@dataclass(frozen=True)
class ArrayColumn:
    """A column: an array, or a member of a structured one.

    `dtype` is that of an element, `shape` that of a row, `type` that of an element in Arrow.
    """

    array: str
    member: tuple[str, ...]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    type: pa.DataType
    hint: ColumnHint

    @property
    def name(self) -> str:
        """The name of the array, followed by that of the member."""
        return ".".join([*([self.array] if self.array else []), *self.member])

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of a row."""
        kind = self.type
        for length in reversed(self.shape):
            kind = pa.list_(kind, length)
        return kind

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return max(prod(self.shape) * self.dtype.itemsize, 1)

    def is_like(self, other: "ArrayColumn") -> bool:
        """Return whether two columns can be one behind the other."""
        return (self.type, self.shape, self.hint.dtype) == (
            other.type,
            other.shape,
            other.hint.dtype,
        )

    def describe(self) -> str:
        """Return dtype and shape, for people."""
        return f"{self.dtype}{list(self.shape)}" if self.shape else str(self.dtype)


def list_columns(
    array: str,
    dtype: np.dtype[Any],
    shape: tuple[int, ...] | None,
    attributes: Mapping[str, Any],
    refusal: tuple[str, str] | None = None,
    member: tuple[str, ...] = (),
) -> Iterator[ArrayColumn]:
    """List the columns of an array: one, or those of the members of a structured dtype.

    `shape` is that of a row; None for a single value, which is no row. `refusal` is why the array
    cannot be packed.
    """
    if dtype.subdtype is not None:
        base, dims = dtype.subdtype
        yield from list_columns(array, base, (*(shape or ()), *dims), attributes, refusal, member)
        return
    if dtype.names is not None and shape is not None:
        for name in dtype.names:
            inner = dtype[name]
            yield from list_columns(array, inner, shape, attributes, refusal, (*member, name))
        return
    kind, logical, why = _describe_dtype(dtype)
    if shape is None:
        refusal = refusal or ("a single value has no rows", _EXCLUDE)
    elif 0 in shape:
        refusal = refusal or ("an axis after that of the rows has length 0", _EXCLUDE)
    if kind is None:
        refusal = refusal or (why, _EXCLUDE)
    described = f"{dtype}{describe_idle_attributes(attributes)}"
    hint = ColumnHint(dtype=logical, attributes=attributes, why=described, refusal=refusal)
    shape = () if refusal else shape or ()
    yield ArrayColumn(array, member, dtype, shape, pa.null() if refusal else kind, hint)


def _describe_dtype(dtype: np.dtype[Any]) -> tuple[pa.DataType | None, DtypeName | None, str]:
    """Return the type in Arrow, what Arrow's type does not say, and why there is no type."""
    if dict(dtype.metadata or {}) == dict(BYTES.metadata or {"": ""}):
        return pa.large_binary(), None, ""
    if dtype.hasobject and dtype.kind != "T":
        return None, None, "an array of Python objects is a pickle, which is never read"
    if not dtype.itemsize:
        return None, None, "values without bytes cannot be packed"
    if dtype.kind == "b":
        return pa.uint8(), "bool", ""
    if dtype.kind in "iuf" and dtype.itemsize <= 8:
        return pa.from_numpy_dtype(dtype.newbyteorder("=")), None, ""
    if dtype.kind == "c" and dtype.itemsize <= 16:
        return pa.binary(dtype.itemsize), cast(DtypeName, dtype.newbyteorder("=").name), ""
    if dtype.kind in "mM":
        unit, count = np.datetime_data(dtype)
        make: Any = pa.timestamp if dtype.kind == "M" else pa.duration
        if count == 1 and unit in _UNITS:
            return make(unit), None, ""
        if count == 1 and unit in _COARSE_UNITS:
            return make("s"), None, ""
        return None, None, f"times in a unit of {count} {unit} cannot be packed"
    if dtype.kind in "SUT":
        return pa.large_string(), None, ""
    if dtype.kind == "V":
        return pa.binary(dtype.itemsize), None, ""
    return None, None, f"values of the dtype {dtype} cannot be packed"


def make_array(column: ArrayColumn, values: np.ndarray) -> pa.Array:
    """Make the Arrow array of a column.

    Parameters
    ----------
    values
        (rows, *row shape) of the array, structured where the column is a member.

    Raises BadValue for a bool that is neither 0 nor 1, and for what is no text or no time.
    """
    for name in column.member:
        values = values[name]
    rows, per_row = len(values), max(prod(column.shape), 1)
    flat = np.ascontiguousarray(values).reshape(-1)
    try:
        array = _make_elements(column, flat)
    except BadValue as error:
        error.row //= per_row
        raise
    return nest_lists(array, column.arrow_type, rows)


def _make_elements(column: ArrayColumn, flat: np.ndarray) -> pa.Array:
    kind = flat.dtype.kind
    if kind == "S":
        return _make_bytes_text(flat)
    if kind in "UTO":
        return _make_values(column.type, flat)
    if kind == "b":
        flat = flat.view(np.uint8)
        if len(flat) and flat.max() > 1:
            first = int(np.argmax(flat > 1))
            raise BadValue("a bool is neither 0 nor 1", first, int(flat[first]))
    elif kind in "mM":
        flat = _count_units(flat)
    elif flat.dtype.byteorder == ">":
        flat = flat.astype(flat.dtype.newbyteorder("<"))
    data = pa.py_buffer(flat.view(np.uint8)) if len(flat) else pa.py_buffer(b"")
    return pa.Array.from_buffers(column.type, len(flat), [None, data])


def _count_units(flat: np.ndarray) -> np.ndarray:
    """Return int64 of times, in seconds where the unit is coarser; NaT stays the least integer."""
    unit, _ = np.datetime_data(flat.dtype)
    counts = flat.view(flat.dtype.str[0] + "i8").astype("<i8")
    factor = _COARSE_UNITS.get(unit, 1)
    large = (np.abs(counts) > np.iinfo(np.int64).max // factor) & (counts != _NAT)
    if factor > 1 and large.any():
        first = int(np.argmax(large))
        raise BadValue("a time does not fit into seconds of 64 bits", first, int(counts[first]))
    return counts if factor == 1 else np.where(counts == _NAT, _NAT, counts * factor)


def _make_bytes_text(flat: np.ndarray) -> pa.Array:
    """Make text of bytes of one length, without the zeros behind it; UTF-8 is checked later."""
    width = flat.dtype.itemsize
    letters = flat.view(np.uint8).reshape(len(flat), width)
    is_text = letters[:, ::-1] != 0
    lengths = np.where(is_text.any(axis=1), width - is_text.argmax(axis=1), 0)
    inside = np.arange(width) < lengths[:, None]
    return make_from_lengths(pa.large_string(), letters[inside], lengths)


def _make_values(kind: pa.DataType, flat: np.ndarray) -> pa.Array:
    """Make text or bytes of any length of objects of Python."""
    try:
        return pa.array(flat.tolist(), kind)
    except _NO_TEXT:
        pass
    for row in range(len(flat)):
        try:
            pa.array(flat[row : row + 1].tolist(), kind)
        except _NO_TEXT as error:
            text = " ".join(str(error).split())
            raise BadValue(
                f"is no {kind}: {text}", row, flat[row : row + 1].tobytes()[:80]
            ) from None
    raise AssertionError("each value can be converted alone, but not all together")
