"""The files of one HDF5 source side by side: the columns of each, and where they differ."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fieldslab.packer.column_names import make_names_unique
from fieldslab.packer.source import ColumnHint
from fieldslab.packer.sources.hdf5.read import DatasetColumns
from fieldslab.packer.sources.hdf5.scan import Dataset, FileScan
from fieldslab.packer.sources.hdf5.types import HDF5Column, Member
from fieldslab.schemas.errors import SourceInconsistent
from fieldslab.schemas.optiontext import mark_option

Key = tuple[str, Member]
"""A column of any of the files: its dataset's name, and its place in the compound type."""

_MOST_LISTED = 20


@dataclass(frozen=True)
class ScannedFile:
    """One file and its columns."""

    scan: FileScan
    columns: dict[Key, tuple[Dataset, HDF5Column]]

    @staticmethod
    def from_scan(scan: FileScan) -> "ScannedFile":
        """Make the part for a scanned file."""
        columns = {
            (dataset.name, column.member): (dataset, column)
            for dataset in scan.datasets
            for column in dataset.columns
        }
        return ScannedFile(scan, columns)

    @property
    def path(self) -> str:
        """The file."""
        return self.scan.file.path

    def group_columns(self, keys: Iterable[Key]) -> list[DatasetColumns]:
        """Yield the datasets of these columns, each with its columns among them."""
        datasets: dict[str, tuple[Dataset, list[HDF5Column]]] = {}
        for key in keys:
            dataset, column = self.columns[key]
            datasets.setdefault(dataset.name, (dataset, []))[1].append(column)
        return [DatasetColumns(dataset, tuple(columns)) for dataset, columns in datasets.values()]

    def count_rows(self, keys: Sequence[Key], attribute: str | None) -> int:
        """Count the rows of these columns: their length, or what an attribute of the file says.

        Raises SourceInconsistent where that attribute is no number of rows.
        """
        length = min((self.columns[key][0].rows or 0 for key in keys), default=0)
        if attribute is None:
            return length
        rows = self.scan.attributes.get(attribute)
        if isinstance(rows, list) and len(rows) == 1:
            rows = rows[0]
        if type(rows) is not int or not 0 <= rows <= length:
            raise SourceInconsistent(
                f"{mark_option('rows_attr')}: the attribute {attribute} of the file is not a "
                "valid number of rows",
                file=self.path,
                expected=f"0..{length}",
                found="no such attribute" if rows is None else rows,
                hint=f"Its attributes are: {', '.join(self.scan.attributes) or 'none'}.",
            )
        return rows

    def check_lengths(self, keys: Sequence[Key]) -> None:
        """Raise SourceInconsistent where columns differ in length from most of them."""
        lengths = {key: self.columns[key][0].rows for key in keys}
        length = find_most_common(lengths.values())
        others = [key for key, rows in lengths.items() if rows is None or rows != length]
        if not others:
            return
        lines = [_format_column(key, *self.columns[key]) for key in others[:_MOST_LISTED]]
        more = f"; and {len(others) - _MOST_LISTED} more" if len(others) > _MOST_LISTED else ""
        names = list(dict.fromkeys(name for name, _ in others[:_MOST_LISTED]))
        raise SourceInconsistent(
            f"datasets without the {length or 0:,} rows that most have: {'; '.join(lines)}{more}",
            file=self.path,
            hint=f"{mark_option('exclude', names)} leaves them out; {mark_option('fields')} "
            "packs what it names.",
        )

    def check_same_columns(self, columns: "Columns", keys: Sequence[Key]) -> None:
        """Raise SourceInconsistent where these columns are not those of the other files."""
        lines = []
        for key in keys:
            part = columns[key]
            expected = f"{_format_column(key, *part.columns[key], rows=False)} in {part.path}"
            if key not in self.columns:
                lines.append(f"{expected} is missing here")
            elif _make_comparison_key(*part.columns[key]) != _make_comparison_key(
                *self.columns[key]
            ):
                actual = _format_column(key, *self.columns[key], rows=False)
                lines.append(f"{expected}, {actual.partition(': ')[2]} here")
        if lines:
            raise SourceInconsistent(
                f"datasets differ from file to file: {'; '.join(lines[:_MOST_LISTED])}",
                file=self.path,
                hint="Pack the files apart, or choose what they share with "
                f"{mark_option('fields')} or {mark_option('exclude')}.",
            )


Columns = dict[Key, ScannedFile]
"""Every column of any file, and the first file that has it: all others must have the same."""


def collect_columns(parts: Sequence[ScannedFile]) -> Columns:
    """Collect the columns of all files, those of the first file first."""
    columns: Columns = {}
    for part in parts:
        for key in part.columns:
            columns.setdefault(key, part)
    return columns


def describe_columns(columns: Columns) -> tuple[pa.Schema, dict[int, ColumnHint]]:
    """Return the schema of the columns, with unique names, and their hints by index."""
    described = [(key, *part.columns[key]) for key, part in columns.items()]
    names = make_names_unique(key[0] + column.suffix for key, _, column in described)
    fields, hints = [], {}
    for index, (name, (_, dataset, column)) in enumerate(zip(names, described, strict=True)):
        fields.append(pa.field(name, column.make_arrow_type(dataset.row_shape)))
        hints[index] = column.make_hint(dataset.attributes)
    return pa.schema(fields), hints


def collect_warnings(scans: Sequence[FileScan]) -> list[str]:
    """Collect warnings of what was left out, and of attributes that differ from the first file."""
    warnings = [text for scan in scans for text in scan.warnings]
    first = scans[0].attributes
    differing: dict[str, None] = {}
    for scan in scans[1:]:
        names = first.keys() | scan.attributes.keys()
        both = (
            name
            for name in sorted(names)
            if _get_attribute(first, name) != _get_attribute(scan.attributes, name)
        )
        differing |= dict.fromkeys(both)
    if differing:
        warnings.append(
            f"files differ in the attributes {', '.join(differing)}: those of "
            f"{scans[0].file.path} are kept"
        )
    return list(dict.fromkeys(warnings))


def find_most_common(lengths: Iterable[int | None]) -> int | None:
    """Find the most common length; the largest of several."""
    counts = Counter(length for length in lengths if length is not None)
    return max(counts, key=lambda length: (counts[length], length), default=None)


def _get_attribute(attributes: dict[str, Any], name: str) -> tuple[bool, Any]:
    return name in attributes, attributes.get(name)


def _make_comparison_key(dataset: Dataset, column: HDF5Column) -> tuple[Any, ...]:
    """Make a key of what must agree in all files; byte order, filters and chunks may differ."""
    element = column.element
    kind = column.make_arrow_type(dataset.row_shape)
    return kind, element.hint, element.logical, column.refusal is None


def _format_column(key: Key, dataset: Dataset, column: HDF5Column, rows: bool = True) -> str:
    """Format a column with its type and shape, with or without the number of rows."""
    shape = dataset.shape if rows else dataset.row_shape
    text = "no rows" if shape is None else str([*shape, *column.shape])
    return f"{key[0]}{column.suffix}: {column.element.why} {text}"
