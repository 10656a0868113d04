"""Arrays whose first axis is the rows: what files of numpy and Zarr share.

Such a source lists its arrays, part by part, and says how some rows of them are read. Arrays are
columns; parts, such as files, follow each other.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa

from fieldslab.packer.column_names import make_names_unique
from fieldslab.packer.source import SAMPLE_ROWS, Source, Unit
from fieldslab.packer.sources.array_types import ArrayColumn, list_columns, make_array
from fieldslab.packer.sources.nested_arrays import BadValue
from fieldslab.schemas.errors import SourceInconsistent, SourceUnreadable
from fieldslab.schemas.optiontext import mark_option

WINDOW_BYTES = 32 << 20
"""About so many bytes are read at a time."""
MOST_WINDOW_BYTES = 128 << 20
"""Windows are made of whole chunks up to this size; larger chunks are decoded several times."""


@dataclass(frozen=True)
class StoredArray:
    """An array of a part.

    Attributes
    ----------
    name
        What its column is called.
    shape, dtype
        Those of the whole array.
    attributes
        Kept with the field, ready for JSON.
    chunk_rows
        Rows that can only be read together.
    refusal
        Why it cannot be packed, and what to do about it.
    value_bytes
        An estimate of the bytes of a value, where values differ in length.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    chunk_rows: int = 1
    refusal: tuple[str, str] | None = None
    value_bytes: int | None = None

    @property
    def rows(self) -> int | None:
        """The length of the first axis; None for a single value."""
        return self.shape[0] if self.shape else None

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, of all members."""
        return max(prod(self.shape[1:]) * (self.value_bytes or self.dtype.itemsize), 1)

    def list_columns(self) -> list[ArrayColumn]:
        """List the columns that it becomes."""
        shape = self.shape[1:] if self.shape else None
        return list(list_columns(self.name, self.dtype, shape, self.attributes, self.refusal))


@dataclass(frozen=True)
class ArrayPart:
    """Arrays side by side: `path` is what they are called together, `arrays` are by name.

    `divided` tells whether some rows can be read without those in front of them.
    """

    path: str
    arrays: Mapping[str, StoredArray]
    divided: bool = True

    @cached_property
    def columns(self) -> dict[str, ArrayColumn]:
        """The columns by name."""
        columns = [column for array in self.arrays.values() for column in array.list_columns()]
        names = make_names_unique(column.name for column in columns)
        return dict(zip(names, columns, strict=True))


class ArraySource(Source):
    """Arrays of one or many parts."""

    rereadable = True
    _parts: Sequence[ArrayPart]

    @abstractmethod
    def read_arrays(
        self, part: int, names: Sequence[str], start: int, stop: int
    ) -> Iterator[dict[str, np.ndarray]]:
        """Read rows `start` to `stop` of some arrays of a part, in pieces of any number of rows.

        Raises SourceUnreadable where they are damaged, SourceChanged where they are others now.
        """

    def set_parts(self, parts: Sequence[ArrayPart]) -> None:
        """Set what is packed: schema, hints and units follow."""
        self._parts = parts
        self._columns = parts[0].columns
        if not self._columns:
            raise SourceUnreadable("there is no array that can be packed", file=parts[0].path)
        self.schema = pa.schema((name, each.arrow_type) for name, each in self._columns.items())
        self.hints = {index: each.hint for index, each in enumerate(self._columns.values())}
        lengths = Counter(
            parts[0].arrays[each.array].rows
            for each in self._columns.values()
            if each.hint.refusal is None
        )
        usual = max(lengths, key=lambda length: lengths[length], default=None)
        default = [
            name
            for name, each in self._columns.items()
            if each.hint.refusal is None and parts[0].arrays[each.array].rows == usual
        ]
        self.units = list(self._cut_units(default))

    def check(self, columns: list[int]) -> None:
        """Settle on these columns: from now on, `units` are about them.

        Raises SourceInconsistent where parts differ in them, or arrays in their length.
        """
        names = [self.schema.names[column] for column in columns]
        has_all = len(names) == len(self._columns)
        for part in self._parts:
            lines = _find_differences(self._columns, part.columns, names, has_all)
            if lines:
                raise SourceInconsistent(
                    f"arrays differ from those of {self._parts[0].path}: {'; '.join(lines)}",
                    file=part.path,
                    hint="Pack them apart, or choose common arrays with "
                    f"{mark_option('fields')} or {mark_option('exclude')}.",
                )
            _check_lengths(part, [part.columns[name].array for name in names])
        self.units = list(self._cut_units(names))

    def read(self, unit: Unit, columns: list[int], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Read some rows of a part, in batches near `batch_bytes`."""
        number, start, stop = unit.key
        names = [self.schema.names[column] for column in columns]
        chosen = [self._parts[number].columns[name] for name in names]
        step = max(1, batch_bytes // max(sum(column.row_bytes for column in chosen), 1))
        arrays = list(dict.fromkeys(column.array for column in chosen))
        schema = pa.schema([self.schema.field(column) for column in columns])
        row = start
        for piece in self.read_arrays(number, arrays, start, stop):
            rows = len(piece[arrays[0]])
            for first in range(0, rows, step):
                column_arrays = [
                    self._make_array(unit, column, piece[column.array][first : first + step], row)
                    for column in chosen
                ]
                row += len(column_arrays[0])
                yield pa.RecordBatch.from_arrays(column_arrays, schema=schema)

    def sample(self, columns: list[int]) -> list[pa.RecordBatch]:
        """Read a few rows from the start, the middle and the end of the first part."""
        names = [self.schema.names[column] for column in columns]
        part = self._parts[0]
        arrays = [part.arrays[part.columns[name].array] for name in names]
        rows = min((array.rows or 0 for array in arrays), default=0)
        if not rows:
            return []
        count = min(SAMPLE_ROWS, rows)
        starts = sorted({0, max(rows // 2 - count, 0), rows - count}) if part.divided else [0]
        units = [Unit(part.path, count, None, (0, start, start + count)) for start in starts]
        return [batch for unit in units for batch in self.read(unit, columns, 1 << 40)]

    def null_count(self, path: tuple[int, ...]) -> int | None:
        """Return 0: there are no nulls."""
        return 0

    def column_bytes(self, path: tuple[int, ...]) -> int | None:
        """Count the bytes of all values."""
        name = self.schema.names[path[0]]
        pairs = [
            (part.columns[name], part.arrays[part.columns[name].array])
            for part in self._parts
            if name in part.columns
        ]
        return sum(
            (array.row_bytes if array.value_bytes else column.row_bytes) * (array.rows or 0)
            for column, array in pairs
        )

    def _cut_units(self, names: Sequence[str]) -> Iterator[Unit]:
        for number, part in enumerate(self._parts):
            columns = part.columns
            array_names = {columns[name].array for name in names if name in columns}
            arrays = [part.arrays[name] for name in sorted(array_names)]
            rows = min((array.rows or 0 for array in arrays), default=0)
            if not rows:
                continue
            row_bytes = sum(array.row_bytes for array in arrays)
            step = _choose_window(arrays, row_bytes) if part.divided else rows
            for start in range(0, rows, step):
                stop = min(start + step, rows)
                name = f"{part.path} rows {start}-{stop - 1}" if step < rows else part.path
                size = (stop - start) * row_bytes
                yield Unit(name, stop - start, size, (number, start, stop), file=part.path)

    def _make_array(
        self, unit: Unit, column: ArrayColumn, values: np.ndarray, row: int
    ) -> pa.Array:
        try:
            return make_array(column, values)
        except BadValue as error:
            raise SourceUnreadable(
                error.problem,
                file=self._parts[unit.key[0]].path,
                field=column.name,
                row=row + error.row,
                found=error.found,
                hint=f"{mark_option('exclude', [column.name])} leaves the array out.",
            ) from error


def _choose_window(arrays: Sequence[StoredArray], row_bytes: int) -> int:
    """Choose how many rows are read at a time: whole chunks, unless they are large."""
    rows = max(1, WINDOW_BYTES // row_bytes)
    chunk = max(array.chunk_rows for array in arrays)
    whole = -(-rows // chunk) * chunk
    return (
        whole if whole * row_bytes <= MOST_WINDOW_BYTES else max(1, MOST_WINDOW_BYTES // row_bytes)
    )


def _check_lengths(part: ArrayPart, names: Sequence[str]) -> None:
    """Raise SourceInconsistent where arrays have different numbers of rows."""
    lengths = {name: part.arrays[name].rows or 0 for name in names}
    counts = Counter(lengths.values())
    if len(counts) < 2:
        return
    usual = max(counts, key=lambda length: (counts[length], length))
    usual_names = [name for name, length in lengths.items() if length == usual]
    others = [f"{name}: {length:,}" for name, length in lengths.items() if length != usual]
    raise SourceInconsistent(
        "the arrays have different numbers of rows",
        file=part.path,
        expected=f"{usual:,} rows, as {', '.join(usual_names[:5])}",
        found=", ".join(others[:20]),
        hint=f"Leave the others out with {mark_option('exclude')}, or choose some with "
        f"{mark_option('fields')}.",
    )


def _find_differences(
    first: Mapping[str, ArrayColumn],
    other: Mapping[str, ArrayColumn],
    names: Sequence[str],
    has_all: bool,
) -> list[str]:
    lines = []
    for name in names:
        if name not in other:
            lines.append(f"{name}: {first[name].describe()} there, missing here")
        elif not first[name].is_like(other[name]):
            lines.append(f"{name}: {first[name].describe()} there, {other[name].describe()} here")
    return lines + [f"{name}: only here" for name in other if has_all and name not in first]
