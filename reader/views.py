"""Views: which rows of a slab they have, as a range or as a list of row numbers."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np

from fieldslab.reader.rowfiles import digest_array, is_ascending
from fieldslab.reader.rows import wrap_rows


class ChosenRows(Sequence[int]):
    """Rows of a slab by number, in any order: what `range` is for views that are slices.

    Attributes
    ----------
    rows
        Row numbers of the slab, read-only: int64 or uint32, of shape (n,). May be mapped from a
        file.
    total
        Rows of the slab.
    """

    def __init__(self, rows: np.ndarray, total: int) -> None:
        """Take numbers that lie in 0..total-1."""
        self.rows = rows.view(np.ndarray)
        self.rows.flags.writeable = False
        self.total = total

    @cached_property
    def is_ascending(self) -> bool:
        """Whether each row is above the one before it."""
        return is_ascending(self.rows)

    def find_borders(self, starts: np.ndarray) -> np.ndarray | None:
        """Find how many rows lie before each of these rows of the slab; None unless ascending."""
        return np.searchsorted(self.rows, starts) if self.is_ascending else None

    @cached_property
    def digest(self) -> dict[str, Any]:
        """Count and digest of the numbers, by which two views are told apart: ready for JSON."""
        return digest_array(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, key: int) -> int: ...
    @overload
    def __getitem__(self, key: slice) -> "ChosenRows": ...
    def __getitem__(self, key: int | slice) -> "int | ChosenRows":
        if isinstance(key, slice):
            return ChosenRows(self.rows[key], self.total)
        return int(self.rows[key])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ChosenRows):
            return NotImplemented
        return self.total == other.total and np.array_equal(self.rows, other.rows)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return ChosenRows, (np.array(self.rows), self.total)

    def __repr__(self) -> str:
        return f"ChosenRows({self.digest} of {self.total:,})"


View = range | ChosenRows


def find_stored_rows(view: View, rows: np.ndarray) -> np.ndarray:
    """Find the rows of the slab that stand at places 0..len(view)-1 of a view: int64[n]."""
    if isinstance(view, range):
        return view.start + view.step * rows
    return view.rows[rows].astype(np.int64, copy=False)


def resolve_rows(view: View, rows: np.ndarray) -> tuple[range, np.ndarray]:
    """Return a range, and int64[n] rows of it, that stand for rows of a view.

    Negative `rows` (int64[n]) of chosen rows are made positive in place. Raises RowOutOfRange for
    those; rows of a range are not looked at.
    """
    if isinstance(view, range):
        return view, rows
    return range(view.total), find_stored_rows(view, wrap_rows(rows, len(view)))


def choose_rows(view: View, rows: np.ndarray, total: int) -> ChosenRows:
    """Choose rows of a view of a slab with `total` rows. Raises RowOutOfRange."""
    numbers = wrap_rows(rows, len(view))
    return ChosenRows(find_stored_rows(view, numbers), total)


def describe_view(view: View) -> list[int] | dict[str, Any]:
    """Describe a view for the state of a loader: ready for JSON."""
    if isinstance(view, range):
        return [view.start, view.stop, view.step]
    return view.digest
