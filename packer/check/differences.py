"""Where rows as converted from a source and rows as stored in a slab differ."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fieldslab.packer.check.stored import StoredRows
from fieldslab.packer.convert.fieldplan import Converted, Pictures
from fieldslab.schemas.fields import Field


class Difference(NamedTuple):
    """A run of rows that differ; `byte` is where in the first row's value, the rest says how."""

    first: int
    last: int
    byte: int
    what: str
    expected: str
    found: str


def find_differences(
    field: Field, source: Converted, stored: StoredRows, first_row: int
) -> Iterator[Difference]:
    """The runs of rows that differ; both hold the same number of rows, from `first_row` on.

    Values are compared byte by byte: two NaN with different bits differ.
    """
    count = len(source.values if source.lengths is None else source.lengths)
    wrong = np.flatnonzero(_differing(field, source, stored, count))
    cuts = [0, *(np.flatnonzero(np.diff(wrong) != 1) + 1).tolist(), len(wrong)]
    for start, stop in pairwise(cuts):
        if start < stop:
            first, last = int(wrong[start]), int(wrong[stop - 1])
            how = _describe(field, source, stored, first)
            yield Difference(first_row + first, first_row + last, *how)


def _differing(field: Field, source: Converted, stored: StoredRows, count: int) -> np.ndarray:
    """bool[rows]: which rows differ in anything."""
    wrong = _valid(source.valid, count) != _valid(stored.valid, count)
    ours, theirs = _bytes(source.values), _bytes(stored.values)
    if source.lengths is None or stored.lengths is None:
        if not np.array_equal(ours, theirs):
            wrong |= (ours.reshape(count, -1) != theirs.reshape(count, -1)).any(axis=1)
        return wrong
    other_length = source.lengths != stored.lengths
    wrong |= other_length
    item = field.item_bytes
    if not other_length.any():
        if not np.array_equal(ours, theirs):
            elements = np.flatnonzero(ours != theirs) // item
            wrong[np.searchsorted(np.cumsum(source.lengths), elements, side="right")] = True
    else:
        a, b = _starts(source.lengths, item), _starts(stored.lengths, item)
        for row in np.flatnonzero(~other_length).tolist():
            same = np.array_equal(ours[a[row] : a[row + 1]], theirs[b[row] : b[row + 1]])
            wrong[row] |= not same
    if source.pictures is not None:
        wrong |= (source.pictures.sizes != stored.size).any(axis=1)
        if stored.codes is not None:
            wrong |= source.pictures.codes != stored.codes
        if stored.points is not None and stored.counts is not None:
            wrong |= _other_points(source.pictures, stored.points, stored.counts)
    return wrong


def _other_points(source: Pictures, points: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """bool[rows]: which rows have other index points."""
    wrong = source.counts != counts
    if not wrong.any() and np.array_equal(source.points, points):
        return wrong
    ours, theirs = np.cumsum(source.counts), np.cumsum(counts)
    for row in np.flatnonzero(~wrong & (counts > 0)).tolist():
        own = source.points[ours[row] - counts[row] : ours[row]]
        wrong[row] = not np.array_equal(own, points[theirs[row] - counts[row] : theirs[row]])
    return wrong


def _describe(
    field: Field, source: Converted, stored: StoredRows, row: int
) -> tuple[int, str, str, str]:
    """Byte in the row's value, what differs, and both values, of one row that differs."""
    valid = [one.valid is None or bool(one.valid[row]) for one in (source, stored)]
    if valid[0] != valid[1]:
        ours_is, theirs_is = ("a value" if is_valid else "null" for is_valid in valid)
        return 0, "only one is null", ours_is, theirs_is
    ours, theirs = _value(source, row), _value(stored, row)
    if len(ours) != len(theirs):
        unit = "elements" if field.kind == "ragged" else "bytes"
        return 0, "length", f"{len(ours)} {unit}", f"{len(theirs)} {unit}"
    at = np.flatnonzero(_bytes(ours) != _bytes(theirs))
    if not len(at):
        assert source.pictures is not None
        return 0, *_describe_beside(source.pictures, stored, row)
    index = int(at[0]) // ours.dtype.itemsize
    place = np.unravel_index(index, ours.shape)
    axes = place if field.variable else place[1:]  # a fixed row has an axis of its own in front
    what = f"element {', '.join(str(int(axis)) for axis in axes)}" if axes else "value"
    byte = index * ours.dtype.itemsize
    return byte, what, str(ours[place]), str(theirs[place])


def _describe_beside(source: Pictures, stored: StoredRows, row: int) -> tuple[str, str, str]:
    """What differs beside the bytes of an image: its size, its code or its index points."""
    assert stored.size is not None
    (height, width), (own_height, own_width) = source.sizes[row], stored.size[row]
    if (height, width) != (own_height, own_width):
        return "height x width", f"{height}x{width}", f"{own_height}x{own_width}"
    if stored.codes is not None and source.codes[row] != stored.codes[row]:
        return "codec", str(source.codes[row]), str(stored.codes[row])
    assert stored.points is not None
    assert stored.counts is not None
    count, own_count = int(source.counts[row]), int(stored.counts[row])
    if count != own_count:
        return "index points", str(count), str(own_count)
    ours = source.points[int(source.counts[:row].sum()) :][:count]
    theirs = stored.points[int(stored.counts[:row].sum()) :][:count]
    point = int(np.argmax((ours != theirs).any(axis=1)))
    return f"index point {point}", str(ours[point].tolist()), str(theirs[point].tolist())


def _value(rows: Converted | StoredRows, row: int) -> np.ndarray:
    """The values of one row, with an axis in front."""
    if rows.lengths is None:
        return rows.values[row : row + 1]
    start = int(rows.lengths[:row].sum())
    return rows.values[start : start + int(rows.lengths[row])]


def _valid(valid: np.ndarray | None, count: int) -> np.ndarray:
    return np.ones(count, bool) if valid is None else valid


def _bytes(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def _starts(lengths: np.ndarray, item: int) -> list[int]:
    starts: list[int] = (np.concatenate([[0], np.cumsum(lengths)]) * item).tolist()
    return starts
