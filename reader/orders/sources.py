"""Named groups of rows, of which orders take rows by turns."""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from fieldslab.reader.rowfiles import check_bounds, digest_array, open_row_file
from fieldslab.reader.rows import check_rows
from fieldslab.reader.slab import Slab
from fieldslab.schemas.errors import DamagedArray, UsageError

CHUNK = 1 << 20
"""Rows whose values are looked at together."""


class Sources(NamedTuple):
    """Groups of rows: `sizes`, and where each has its rows.

    Group `g` has the rows `starts[g] + steps[g] * place`, or those that `arrays[g]` lists. With
    `row_index`, these are places of it, and it has the rows.
    """

    sizes: np.ndarray
    starts: np.ndarray
    steps: np.ndarray
    arrays: Mapping[int, np.ndarray]
    row_index: np.ndarray | None = None

    def find_rows(self, groups: np.ndarray, places: np.ndarray, total: int) -> np.ndarray:
        """Find the rows at places of groups: int64[n] for int64[n] each."""
        rows: np.ndarray = self.starts[groups] + self.steps[groups] * places
        for group in np.unique(groups).tolist() if self.arrays else ():
            if group in self.arrays:
                some = groups == group
                rows[some] = self.arrays[group][places[some]]
        if self.row_index is not None:
            return self.row_index[rows].astype(np.int64)
        return np.where(rows < 0, rows + total, rows)


class RowGroups(NamedTuple):
    """Rows grouped by a number of theirs.

    Number `values[g]` has the rows `row_index[ends[g - 1]:ends[g]]`, ascending. It is uint32 where
    that is enough.
    """

    values: np.ndarray
    ends: np.ndarray
    row_index: np.ndarray


def make_sources(groups: Mapping[str, Any], slab: Slab) -> Sources:
    """Make sources of ranges, arrays, and `.npy` files of rows.

    Raises UsageError, RowOutOfRange.
    """
    ranges, arrays = [], {}
    for number, (name, rows) in enumerate(groups.items()):
        if isinstance(rows, str | os.PathLike):
            rows = arrays[number] = open_row_file(rows)
        elif not isinstance(rows, range):
            rows = arrays[number] = check_rows(rows, len(slab))
        if not len(rows):
            raise UsageError(f"the group {name!r} has no rows")
        if number in arrays:
            check_bounds(rows, len(slab))
            ranges.append((len(rows), 0, 0))
        else:
            check_bounds(np.array([rows[0], rows[-1]]), len(slab))
            ranges.append((len(rows), rows.start, rows.step))
    sizes, starts, steps = np.array(ranges, np.int64).reshape(-1, 3).T.copy()
    return Sources(sizes, starts, steps, arrays)


def make_group_key(rows: Any) -> Any:
    """Return what tells a group of rows from another one, ready for JSON."""
    if isinstance(rows, range):
        return [rows.start, rows.stop, rows.step]
    if isinstance(rows, str | os.PathLike):
        return digest_array(open_row_file(rows))
    return digest_array(check_rows(rows, 2**62))


def group_rows(slab: Slab, name: str) -> RowGroups:
    """Group the rows of a slab by an integer, boolean or categorical field; its values are read.

    Raises UnknownField, and UsageError for other fields and where a value is null.
    """
    slab.names([name])
    field = slab.fields[name]
    if field.shape or field.kind not in ("fixed", "categorical"):
        _refuse_field(
            name, f"{field.kind}, of shape {list(field.shape)}" if field.shape else field.kind
        )
    if slab[name].dtype.kind not in "iub":
        _refuse_field(name, str(slab[name].dtype))
    return group_by_number(lambda: _read_chunks(slab, name), len(slab))


def group_by_number(
    read_chunks: Callable[[], Iterator[tuple[int, np.ndarray]]],
    total: int,
    merge: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
) -> RowGroups:
    """Group rows by a number that each has.

    Parameters
    ----------
    read_chunks
        Reads the numbers from the first row to the last: the first row of a chunk, and its numbers.
        It is called twice.
    total
        How many rows there are.
    merge
        Takes the different numbers, ascending, and how many rows have each (int64[n]); returns the
        largest number of each group, where a group is to have several.
    """
    values, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    for _, chunk in read_chunks():
        some, several = np.unique(chunk, return_counts=True)
        joined, places = np.unique(np.concatenate([values, some]), return_inverse=True)
        sums = np.zeros(len(joined), np.int64)
        np.add.at(sums, places, np.concatenate([counts, several]))
        values, counts = joined, sums
    if merge is not None:
        largest = merge(values, counts)
        last = np.searchsorted(values, largest, side="right") - 1
        values, counts = largest, np.diff(np.cumsum(counts)[last], prepend=0)
    ends = np.cumsum(counts)
    index = np.empty(total, np.uint32 if total <= 2**32 else np.int64)
    begins = ends - counts
    narrow = np.uint16 if len(values) <= 2**16 else np.int64  # sorted by its digits: quickly
    for first, chunk in read_chunks():
        groups = np.searchsorted(values, chunk).astype(narrow)
        turns = np.argsort(groups, kind="stable")
        counts = np.bincount(groups, minlength=len(values))
        offsets = np.repeat(begins - (np.cumsum(counts) - counts), counts)
        index[offsets + np.arange(len(chunk))] = first + turns
        begins = begins + counts
    return RowGroups(values, ends, index)


def name_values(slab: Slab, field: str, values: np.ndarray) -> list[str]:
    """Name the values of a field: categories and classes by their names, others as numbers."""
    described = slab.fields[field]
    if described.kind == "categorical":
        categories = slab.categories(field)
        return [str(categories[code]) for code in values.tolist()]
    logical = described.logical
    if logical is not None and logical.type == "class_label" and logical.names is not None:
        names = logical.names
        return [names[value] if 0 <= value < len(names) else str(value) for value in values]
    return [str(value) for value in values.tolist()]


def group_by_field(slab: Slab, field: str) -> tuple[Sources, list[str]]:
    """Group rows by the values of a field, and name these.

    Raises UnknownField, UsageError.
    """
    groups = group_rows(slab, field)
    sizes = np.diff(groups.ends, prepend=0)
    starts = groups.ends - sizes
    sources = Sources(sizes, starts, np.ones_like(sizes), {}, groups.row_index)
    return sources, name_values(slab, field, groups.values)


def _read_chunks(slab: Slab, name: str) -> Iterator[tuple[int, np.ndarray]]:
    for first in range(0, len(slab), CHUNK):
        batch = slab.gather(range(first, min(first + CHUNK, len(slab))), [name])
        if batch.failures:
            failure = batch.failures[0]
            raise DamagedArray(failure.reason, file=slab.path, field=name, row=failure.row)
        valid = batch.valid.get(name)
        if valid is not None and not valid.all():
            raise UsageError(
                "rows cannot be grouped by a null",
                field=name,
                row=first + int(np.argmin(valid)),
                hint="Leave out such rows with a Subset, or give `groups`.",
            )
        values: Any = batch[name]
        yield first, values


def _refuse_field(name: str, found: str) -> None:
    raise UsageError(
        "rows are grouped by fields of integers, booleans or categories",
        field=name,
        found=found,
        hint="Pack the column as categorical.",
    )
