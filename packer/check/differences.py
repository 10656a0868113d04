"""Where rows as converted from a source and rows as stored in a slab differ."""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fieldslab.packer.check.stored import StoredRows
from fieldslab.packer.convert.fieldplan import ConvertedRows
from fieldslab.schemas.fields import ArraySpec, Field, Role

_NAMES: dict[Role, str] = {
    "size": "[height, width]",
    "points.values": "index point",
    "lists.values": "length of list",
}
"""What an array holds, in words, where its role does not say that."""


class Difference(NamedTuple):
    """A run of rows that differ.

    `byte` is where the first of them differs, among its items in the array `role`.
    """

    first: int
    last: int
    role: Role
    byte: int
    what: str
    expected: str
    found: str


def find_differences(
    field: Field, source: ConvertedRows, stored: StoredRows, first_row: int
) -> Iterator[Difference]:
    """Find the runs of rows that differ; both hold the same number of rows, from `first_row` on.

    Values are compared byte by byte: two NaN with different bits differ.
    """
    count = len(source.values if source.lengths is None else source.lengths)
    differing_rows = np.flatnonzero(_find_differing_rows(field, source, stored, count))
    cuts = [0, *(np.flatnonzero(np.diff(differing_rows) != 1) + 1).tolist(), len(differing_rows)]
    for start, stop in pairwise(cuts):
        if start < stop:
            first, last = int(differing_rows[start]), int(differing_rows[stop - 1])
            description = _describe_row(field, source, stored, first)
            yield Difference(first_row + first, first_row + last, *description)


def _find_differing_rows(
    field: Field, source: ConvertedRows, stored: StoredRows, count: int
) -> np.ndarray:
    """bool[rows]: which rows differ in anything."""
    differing = _fill_valid(source.valid, count) != _fill_valid(stored.valid, count)
    differing |= _compare_items(source.values, source.lengths, stored.values, stored.lengths)
    for spec in field.list_arrays():
        if spec.role in stored.other_arrays:
            differing |= _compare_items(*_get_items(source, spec), *_get_items(stored, spec))
    return differing


def _compare_items(
    expected: np.ndarray,
    expected_lengths: np.ndarray | None,
    found: np.ndarray,
    found_lengths: np.ndarray | None,
) -> np.ndarray:
    """bool[rows]: which rows differ in one array, of which each has an item, or `lengths` items."""
    size = math.prod(expected.shape[1:]) * expected.dtype.itemsize
    if expected_lengths is None or found_lengths is None:
        count = len(expected)
        expected, found = _view_bytes(expected), _view_bytes(found)
        if np.array_equal(expected, found):
            return np.zeros(count, bool)
        return (expected.reshape(count, -1) != found.reshape(count, -1)).any(axis=1)
    differing: np.ndarray = expected_lengths != found_lengths
    expected, found = _view_bytes(expected), _view_bytes(found)
    if not differing.any():
        if not np.array_equal(expected, found):
            items = np.flatnonzero(expected != found) // size
            differing[np.searchsorted(np.cumsum(expected_lengths), items, side="right")] = True
        return differing
    a, b = _compute_starts(expected_lengths, size), _compute_starts(found_lengths, size)
    for row in np.flatnonzero(~differing).tolist():
        same = np.array_equal(expected[a[row] : a[row + 1]], found[b[row] : b[row + 1]])
        differing[row] = not same
    return differing


def _get_items(
    rows: ConvertedRows | StoredRows, spec: ArraySpec
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the items of an array other than the values, and how many each row has."""
    return rows.other_arrays[spec.role], None if spec.by is None else rows.other_arrays[spec.by]


def _describe_row(
    field: Field, source: ConvertedRows, stored: StoredRows, row: int
) -> tuple[Role, int, str, str, str]:
    """Array, byte in the row's items, what differs, and both values, of one row that differs."""
    valid = [rows.valid is None or bool(rows.valid[row]) for rows in (source, stored)]
    if valid[0] != valid[1]:
        expected_text, found_text = ("a value" if is_valid else "null" for is_valid in valid)
        return "values", 0, "only one is null", expected_text, found_text
    expected, found = _slice_value(source, row), _slice_value(stored, row)
    if len(expected) != len(found):
        unit = "elements" if (field.inner or field.kind) == "ragged" else "bytes"
        return "values", 0, "length", f"{len(expected)} {unit}", f"{len(found)} {unit}"
    differing = np.flatnonzero(_view_bytes(expected) != _view_bytes(found))
    if not len(differing):
        return _describe_other_arrays(field, source, stored, row)
    index = int(differing[0]) // expected.dtype.itemsize
    place = np.unravel_index(index, expected.shape)
    axes = place if field.variable else place[1:]  # a fixed row has an axis of its own in front
    subject = f"element {', '.join(str(int(axis)) for axis in axes)}" if axes else "value"
    byte = index * expected.dtype.itemsize
    return "values", byte, subject, str(expected[place]), str(found[place])


def _describe_other_arrays(
    field: Field, source: ConvertedRows, stored: StoredRows, row: int
) -> tuple[Role, int, str, str, str]:
    """Describe what differs in another array of the field where the values are equal."""
    for spec in field.list_arrays():
        if spec.role not in stored.other_arrays:
            continue
        (expected, expected_lengths), (found, found_lengths) = (
            _get_items(source, spec),
            _get_items(stored, spec),
        )
        if not _compare_items(expected, expected_lengths, found, found_lengths)[row]:
            continue
        name = _NAMES.get(spec.role, spec.role)
        if expected_lengths is None or found_lengths is None:
            return spec.role, 0, name, str(expected[row].tolist()), str(found[row].tolist())
        if expected_lengths[row] != found_lengths[row]:
            return spec.role, 0, f"{name}s", str(expected_lengths[row]), str(found_lengths[row])
        expected, found = (
            _slice_row_items(expected, expected_lengths, row),
            _slice_row_items(found, found_lengths, row),
        )
        index = int(np.argmax((expected != found).reshape(len(expected), -1).any(axis=1)))
        byte = index * spec.item_bytes
        return (
            spec.role,
            byte,
            f"{name} {index}",
            str(expected[index].tolist()),
            str(found[index].tolist()),
        )
    raise AssertionError(f"row {row} does not differ")


def _slice_value(rows: ConvertedRows | StoredRows, row: int) -> np.ndarray:
    """Return the values of one row, with an axis in front."""
    if rows.lengths is None:
        return rows.values[row : row + 1]
    return _slice_row_items(rows.values, rows.lengths, row)


def _slice_row_items(items: np.ndarray, lengths: np.ndarray, row: int) -> np.ndarray:
    """Return the items of one row of an array whose rows have different numbers of items."""
    start = int(lengths[:row].sum())
    return items[start : start + int(lengths[row])]


def _fill_valid(valid: np.ndarray | None, count: int) -> np.ndarray:
    return np.ones(count, bool) if valid is None else valid


def _view_bytes(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def _compute_starts(lengths: np.ndarray, item: int) -> list[int]:
    starts: list[int] = (np.concatenate([[0], np.cumsum(lengths)]) * item).tolist()
    return starts
