"""Row numbers, and the shard a row lies in."""

from typing import Any

import numpy as np
import pytest

from fieldslab.reader.rows import ShardDirectory, check_index, check_rows
from fieldslab.schemas.errors import RowOutOfRange, UsageError

INTEGERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">i4", ">u8"]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_any_integer_dtype_numbers_rows(dtype: str) -> None:
    """Rows may be of any integer dtype and byte order, and come out as int64."""
    rows = check_rows(np.array([3, 0, 7], dtype), 10)
    assert rows.dtype == np.int64
    assert rows.tolist() == [3, 0, 7]


def test_rows_need_not_be_contiguous() -> None:
    """A strided, reversed or read-only array is taken as what it shows."""
    numbers = np.arange(20)
    numbers.flags.writeable = False
    assert check_rows(numbers[::-3], 20).tolist() == list(range(19, -1, -3))


def test_rows_are_copied() -> None:
    """The caller's array is neither kept nor changed."""
    numbers = np.array([1, -2])
    rows = check_rows(numbers, 5)
    rows[:] = 0
    assert numbers.tolist() == [1, -2]


@pytest.mark.parametrize(
    "rows",
    [[2, -1, 2], (2, -1, 2), np.array([2, -1, 2]), [np.int8(2), np.uint64(0), 1]],
)
def test_lists_and_tuples_number_rows(rows: Any) -> None:
    """A list or tuple of integers of any type is as good as an array."""
    assert check_rows(rows, 3).tolist() == [int(row) for row in rows]


@pytest.mark.parametrize("rows", [[], (), range(0), range(5, 5), np.empty(0, np.int32)])
def test_no_rows_are_rows(rows: Any) -> None:
    """An empty list, tuple, range or integer array gives int64[0]."""
    assert check_rows(rows, 0).dtype == np.int64
    assert len(check_rows(rows, 0)) == 0


@pytest.mark.parametrize(
    "rows",
    [
        range(10),
        range(9, -1, -1),
        range(-10, 10, 3),
        range(2, 2**70, 2**70),
        range(5, -(2**70), -(2**71)),
    ],
)
def test_a_range_numbers_rows(rows: range) -> None:
    """A range stands for its items, however far its stop lies outside."""
    assert check_rows(rows, 10).tolist() == list(rows)


@pytest.mark.parametrize(
    ("rows", "position", "found"),
    [
        (range(11), 10, 10),
        (range(-11, 0), 0, -11),
        (range(2**80), 2**80 - 1, 2**80 - 1),
        (np.array([1, 2**63], np.uint64), 1, 2**63),
        ([0, 2**64], 1, 2**64),
        ([0, -(2**64)], 1, -(2**64)),
        ([2**63, -1], 0, 2**63),
    ],
)
def test_rows_beyond_int64_are_out_of_range(rows: Any, position: int, found: int) -> None:
    """No integer is too large to be refused by name, and none wraps around."""
    with pytest.raises(RowOutOfRange, match=f"position {position} ") as caught:
        check_rows(rows, 10)
    assert caught.value.context["found"] == found
    assert isinstance(caught.value, IndexError)


@pytest.mark.parametrize(
    "rows",
    [
        np.array([True, False]),
        [True, False],
        np.array([1.0, 2.0]),
        [1, 2.5],
        [None],
        ["1"],
        np.array(3),
        5,
        np.zeros((2, 2), int),
        [[1], [2, 3]],
        np.empty(0, float),
        {1, 2},
        "12",
        b"12",
    ],
)
def test_other_things_do_not_number_rows(rows: Any) -> None:
    """Masks, floats, text, scalars and tables of numbers are a UsageError."""
    with pytest.raises(UsageError):
        check_rows(rows, 10)


def test_a_mask_is_told_what_to_write() -> None:
    """The error for a mask names the way to give rows by mask."""
    with pytest.raises(UsageError, match="flatnonzero"):
        check_rows(np.zeros(10, bool), 10)


@pytest.mark.parametrize(("row", "index"), [(0, 0), (-1, 9), (np.uint8(9), 9), (-10, 0)])
def test_one_row_counts_from_either_end(row: Any, index: int) -> None:
    """A single row may be negative, and of any integer type."""
    assert check_index(row, 10) == index


@pytest.mark.parametrize("row", [10, -11, 2**70])
def test_one_row_out_of_range(row: int) -> None:
    """A single row outside -length..length-1 is RowOutOfRange with both bounds."""
    with pytest.raises(RowOutOfRange, match=r"-10\.\.9"):
        check_index(row, 10)


@pytest.mark.parametrize("row", [1.0, "1", None, np.array([1, 2])])
def test_one_row_is_an_integer(row: Any) -> None:
    """A single row of another type is a UsageError."""
    with pytest.raises(UsageError):
        check_index(row, 10)


SHARDS = {
    "one": [5],
    "equal": [10] * 7,
    "many of one row": [1] * 5000,
    "one row each, then a giant": [*[1] * 3000, 10**7],
    "a giant, then one row each": [10**7, *[1] * 3000],
    "unequal": [1, 70_000, 3, 900_000, 1, 1, 5],
    "beyond 32 bits": [2**40, 1, 2**40],
}


@pytest.mark.parametrize("name", SHARDS)
def test_directory_finds_the_shard(name: str) -> None:
    """Bisection and table agree with a plain search at every boundary between shards."""
    directory = ShardDirectory(SHARDS[name])
    starts = directory.starts
    edges = np.unique(np.concatenate([starts[:-1], starts[1:] - 1, starts[1:-1] + 1]))
    for row in edges[edges < starts[-1]].tolist():
        shard = int(np.searchsorted(starts, row, side="right")) - 1
        assert directory.find_shard(row) == (shard, row - starts[shard])
        bucket = row >> directory.shift
        assert directory.table[bucket] <= shard <= directory.table[bucket + 1]


@pytest.mark.parametrize("name", SHARDS)
def test_directory_stays_small(name: str) -> None:
    """The table has at most 65,537 entries, however many rows there are."""
    assert len(ShardDirectory(SHARDS[name]).table) <= 65_537
