"""A visit number distinguishes repeated occurrences of a row in one epoch.

What is random about a row, such as its crop, is a function of (seed, epoch, row, visit). Visit 0
is drawn from the row alone, so that an epoch without repeated rows does not depend on visits.
What `make_draw_numbers` returns is frozen: runs resume by it.
"""

from typing import Any

import numpy as np

from fieldslab.schemas.errors import UsageError


def make_draw_numbers(rows: np.ndarray, visits: np.ndarray | None) -> np.ndarray:
    """Make the numbers that seed draws: the row at its visit 0, else a hash of row and visit.

    Parameters
    ----------
    rows
        Rows of the whole slab: int64[n].
    visits
        Numbers from 0 that tell visits of a row apart: int64[n]; None for visit 0 everywhere.

    Returns
    -------
    uint64[n]
    """
    numbers = rows.astype(np.uint64)
    if visits is None or not visits.any():
        return numbers
    from fieldslab.reader.draws.permutation import hash_numbers, make_keys

    key = make_keys("visit")
    later_numbers = hash_numbers(numbers + hash_numbers(visits.astype(np.uint64), key), key)
    return np.where(visits == 0, numbers, later_numbers)


def count_visits(rows: np.ndarray) -> np.ndarray:
    """Count how often each row came earlier in `rows`: int64[n], zeros if none repeats."""
    turns = np.argsort(rows, kind="stable")
    ordered = rows[turns]
    begins = np.ones(len(rows), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    visits = np.zeros(len(rows), np.int64)
    if begins.all():
        return visits
    places = np.arange(len(rows))
    firsts = np.maximum.accumulate(np.where(begins, places, 0))
    visits[turns] = places - firsts
    return visits


def check_visits(visits: Any, rows: np.ndarray) -> np.ndarray:
    """Check a caller's visits of `rows` (int64[n]), or count them if there are none: int64[n].

    Raises UsageError.
    """
    if visits is None:
        return count_visits(rows)
    numbers = np.asarray(visits)
    if numbers.shape != rows.shape or (len(numbers) and numbers.dtype.kind not in "iu"):
        raise UsageError(
            "`visits` must have one number for each row",
            expected=f"{len(rows)} integers",
            found=visits,
        )
    if len(numbers) and int(numbers.min()) < 0:
        raise UsageError("`visits` must not be negative", found=int(numbers.min()))
    return numbers.astype(np.int64)


class Visit(int):
    """A row number that knows which visit of the row it stands for; samplers hand them over.

    Attributes
    ----------
    visit
        How often the row came earlier in the epoch.
    """

    visit: int

    def __new__(cls, row: int, visit: int) -> "Visit":
        """Take the row and its visit."""
        number = super().__new__(cls, row)
        number.visit = visit
        return number

    def __reduce__(self) -> tuple[Any, ...]:
        return Visit, (int(self), self.visit)


def get_visits(rows: Any) -> np.ndarray | None:
    """Return the visits of row numbers, 0 for those without one; None if no row has one."""
    if not isinstance(rows, list) or not any(isinstance(row, Visit) for row in rows):
        return None
    return np.array([getattr(row, "visit", 0) for row in rows], np.int64)
