"""Numbers that a caller gives: rows, with the shard in which each lies, and other integers."""

import operator
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NoReturn, SupportsIndex

import numpy as np

from fieldslab.schemas.errors import RowOutOfRange, UsageError
from fieldslab.schemas.mapping import get_address

Rows = np.ndarray | Sequence[int] | range

_MOST_BUCKET_BITS = 16
_BUCKETS_PER_SHARD_BITS = 6
_LARGEST = 2**63 - 1
_INT64 = np.dtype(np.int64)


class ShardDirectory:
    """Which shard holds a row: by bisection for one row, by a small table for a batch.

    Shard `s` holds rows `starts[s]` up to `starts[s + 1]` (int64[shards + 1]). Rows are cut into
    equal buckets of `1 << shift` rows, about 64 a shard and at most 65,536; the shards that bucket
    `b` touches are `table[b]` to `table[b + 1]` (int64[buckets + 1]).
    """

    def __init__(self, shard_rows: Sequence[int] | np.ndarray) -> None:
        """Take the number of rows of each shard, none of them 0."""
        self.starts = np.zeros(len(shard_rows) + 1, np.int64)
        np.cumsum(np.asarray(shard_rows, np.int64), out=self.starts[1:])
        self._starts: list[int] = self.starts.tolist()
        self._last = max(self._starts[-1] - 1, 0)
        bits = min(len(shard_rows).bit_length() + _BUCKETS_PER_SHARD_BITS, _MOST_BUCKET_BITS)
        self.shift = max(self._last.bit_length() - bits, 0)

    @cached_property
    def table(self) -> np.ndarray:
        """Shards of the first row of each bucket; made when the first batch is gathered."""
        firsts = np.arange((self._last >> self.shift) + 2, dtype=np.int64) << self.shift
        shards = np.searchsorted(self.starts[1:], firsts, side="right").astype(np.int64)
        return np.minimum(shards, len(self._starts) - 2)

    @cached_property
    def lookup(self) -> tuple[int, int, int]:
        """For kernels: the addresses of `starts` and of `table`, and `shift`."""
        return get_address(self.starts), get_address(self.table), self.shift

    def find_shard(self, row: int) -> tuple[int, int]:
        """Find the shard of an existing row of the slab, and its place in the shard."""
        shard = bisect_right(self._starts, row) - 1
        return shard, row - self._starts[shard]

    def split_by_shard(self, first: int, last: int) -> list[tuple[int, int, int]]:
        """Split rows `first` up to `last` by shard: number, and first and last row in it."""
        spans = []
        while first < last:
            shard, place = self.find_shard(first)
            end = min(last, self._starts[shard + 1])
            spans.append((shard, place, place + end - first))
            first = end
        return spans


def check_index(row: SupportsIndex, length: int) -> int:
    """Convert a row number to 0..length-1; negative ones count from the end.

    Raises
    ------
    UsageError
        It is not an integer.
    RowOutOfRange
        It is an integer outside -length..length-1.
    """
    try:
        number = operator.index(row)
    except TypeError:
        _refuse_rows(f"row numbers must be integers, not by {type(row).__name__}", found=repr(row))
    if not -length <= number < length:
        raise make_out_of_range_error(number, length)
    return number + length if number < 0 else number


def check_rows(rows: Rows, length: int) -> np.ndarray:
    """Convert row numbers to a new int64 array, not yet compared with `length`.

    Raises
    ------
    UsageError
        They are not integers in one dimension.
    RowOutOfRange
        One is too large even for int64, or a `range` leaves the slab.
    """
    if type(rows) is np.ndarray and rows.dtype is _INT64 and rows.ndim == 1:
        return rows.copy("C")
    if isinstance(rows, range):
        return _convert_range(rows, length)
    try:
        numbers = np.asarray(rows)
    except ValueError:  # lists of different lengths
        _refuse_rows("rows must have one dimension")
    if numbers.ndim != 1:
        _refuse_rows("rows must have one dimension", found=numbers.ndim)
    if numbers.dtype.kind in "iu":
        if numbers.dtype.itemsize == 8 and numbers.dtype.kind == "u" and len(numbers):
            position = int(np.argmax(numbers > _LARGEST))
            if numbers[position] > _LARGEST:
                raise make_out_of_range_error(int(numbers[position]), length, position)
        return np.array(numbers, np.int64, order="C")
    if isinstance(rows, np.ndarray) or numbers.dtype.kind not in "Of":
        _refuse_dtype(numbers)
    return _convert_list(rows, length)


def wrap_rows(rows: np.ndarray, length: int) -> np.ndarray:
    """Convert row numbers, int64[n], to 0..length-1 in place. Raises RowOutOfRange."""
    wrong = (rows < -length) | (rows >= length)
    if wrong.any():
        position = int(wrong.argmax())
        raise make_out_of_range_error(int(rows[position]), length, position)
    rows[rows < 0] += length
    return rows


def check_integer(name: str, value: Any, least: int | None = None) -> int:
    """Convert a parameter to an int. Raises UsageError."""
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"`{name}` must be an integer", found=repr(value)) from None
    if least is not None and number < least:
        raise UsageError(f"`{name}` is too small", expected=f"at least {least}", found=number)
    return number


def make_out_of_range_error(row: int, length: int, position: int | None = None) -> RowOutOfRange:
    """Make the error for a row outside -length..length-1, at `position` of the rows asked for."""
    where = "" if position is None else f" at position {position} of the rows asked for"
    expected = f"{-length}..{length - 1}" if length else "none, there are no rows"
    return RowOutOfRange(f"row out of range{where}", expected=expected, found=row)


def _convert_range(rows: range, length: int) -> np.ndarray:
    if not rows:
        return np.empty(0, np.int64)
    for row in (rows[0], rows[-1]):
        if not -length <= row < length:
            raise make_out_of_range_error(row, length, rows.index(row))
    step = rows.step if len(rows) > 1 else 1
    return rows[0] + step * np.arange(len(rows), dtype=np.int64)


def _convert_list(rows: Any, length: int) -> np.ndarray:
    """Convert row numbers from a list that numpy does not take for integers, or refuse it."""
    numbers = np.empty(len(rows), np.int64)
    for position, row in enumerate(rows):
        try:
            numbers[position] = check_index(row, length)
        except RowOutOfRange:
            raise make_out_of_range_error(operator.index(row), length, position) from None
    return numbers


def _refuse_dtype(numbers: np.ndarray) -> NoReturn:
    if numbers.dtype.kind == "b":
        _refuse_rows(
            "a mask is not a list of row numbers",
            found=f"dtype {numbers.dtype}",
            hint="Write numpy.flatnonzero(mask).",
        )
    _refuse_rows(
        "row numbers must be integers",
        found=f"dtype {numbers.dtype}",
        hint="Convert them: rows.astype(numpy.int64).",
    )


def _refuse_rows(problem: str, hint: str | None = None, **context: Any) -> NoReturn:
    raise UsageError(problem, hint=hint or "Give integers, as in [4, 2, -1].", **context)
