"""Runs of neighbouring rows with the same value, such as episodes or days."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fieldslab.reader.batch import Batch
from fieldslab.reader.rowfiles import digest_array
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.jit import kernel, load_u8, load_u64
from fieldslab.schemas.mapping import get_address
from fieldslab.schemas.row_batches import read_batches

_MOST_ROWS = 2**62
"""Sums of a first row and a length stay within int64."""


class Runs:
    """Runs of neighbouring rows, such as episodes; `Slab.runs` finds those of a field.

    Attributes
    ----------
    starts
        The first row of each run, ascending: int64[runs].
    lengths
        Rows of each run: int64[runs].
    """

    def __init__(self, starts: Any, lengths: Any) -> None:
        """Take first rows and lengths. Raises UsageError for runs that overlap."""
        self.starts, self.lengths = _convert_rows(starts), _convert_rows(lengths)
        if self.starts.shape != self.lengths.shape:
            raise _make_runs_error("arrays of different lengths")
        overlaps = self.starts[1:] < (self.starts + self.lengths)[:-1]
        if overlaps.any():
            run = int(np.argmax(overlaps)) + 1
            raise UsageError("runs of rows overlap", row=int(self.starts[run]))

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def digest(self) -> list[dict[str, Any]]:
        """What tells these runs from others: ready for JSON."""
        return [digest_array(self.starts), digest_array(self.lengths)]

    def check_rows(self, rows: int) -> None:
        """Raise UsageError where they go beyond so many rows, or there are none for any row."""
        if rows and not len(self):
            raise UsageError(
                "there are no runs of rows",
                hint="`slab.episodes` is empty for views, and for slabs that were packed without "
                "episodes: name a field whose value is the same in a run of rows.",
            )
        if len(self) and int(self.starts[-1] + self.lengths[-1]) > rows:
            raise UsageError(
                "the runs are those of another slab or view",
                expected=f"up to {rows:,} rows",
                found=f"{int(self.starts[-1] + self.lengths[-1]):,}",
                hint="Take them from the slab or view itself.",
            )

    def cut(self, borders: np.ndarray) -> "Runs":
        """Cut runs in two at each of these rows, int64[n], which ascend."""
        if not len(borders) or not len(self):
            return self
        ends = self.starts + self.lengths
        runs = np.searchsorted(self.starts, borders, side="left") - 1
        inside = borders[(runs >= 0) & (borders < ends[runs])]
        starts = np.concatenate([self.starts, inside])
        stops = np.concatenate([ends, inside])
        turns = np.argsort(starts, kind="stable")
        return Runs(starts[turns], np.sort(stops) - starts[turns])

    def find_bounds(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find the first row, and the row behind the last one, of the run of each row: int64[n].

        Raises UsageError for a row in no run.
        """
        runs = np.searchsorted(self.starts, rows, side="right") - 1
        lows = self.starts[runs]
        highs = lows + self.lengths[runs]
        wrong = (runs < 0) | (rows >= highs)
        if wrong.any():
            raise UsageError("a row is in no run", row=int(rows[np.argmax(wrong)]))
        return lows, highs

    def __repr__(self) -> str:
        return f"Runs(<{len(self):,} runs of {int(self.lengths.sum()):,} rows>)"


def _convert_rows(numbers: Any) -> np.ndarray:
    """Convert numbers of rows to int64[n] that nobody changes. Raises UsageError."""
    numbers = np.asarray(numbers)
    if numbers.ndim != 1 or not (numbers.dtype.kind in "iu" or not len(numbers)):
        raise _make_runs_error(f"{numbers.dtype}{list(numbers.shape)}")
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() <= _MOST_ROWS:
        raise _make_runs_error(f"{numbers.min()} to {numbers.max()}")
    rows = np.array(numbers, np.int64)
    rows.flags.writeable = False  # kernels rely on what was checked
    return rows


def _make_runs_error(found: str) -> UsageError:
    return UsageError(
        "runs are told by their first rows and their lengths",
        expected=f"two arrays of integers from 0 to {_MOST_ROWS}, as long as each other",
        found=found,
    )


def find_runs(name: str, gather: Callable[[range, list[str]], Batch], total: int) -> Runs:
    """Find the runs of rows 0..total-1 in which a field has one value, or is null.

    `gather` reads fields of a range of rows.
    """
    parts = [np.zeros(min(total, 1), np.int64)]
    # Each batch begins with the last row of the one before.
    for rows, batch in read_batches(
        lambda rows: gather(range(max(rows.start - 1, 0), rows.stop), [name]), total
    ):
        first = max(rows.start - 1, 0)
        changes = _find_changes(batch[name], batch.valid.get(name))
        parts.append(np.flatnonzero(changes) + first + 1)
    starts = np.concatenate(parts)
    return Runs(starts, np.diff(starts, append=total))


def _find_changes(values: Any, valid: np.ndarray | None) -> np.ndarray:
    """Tell which rows but the first differ from the one before: bool[rows - 1]."""
    if isinstance(values, np.ndarray):
        data, rows = np.ascontiguousarray(values), len(values)
        offsets = np.arange(rows + 1, dtype=np.int64) * (data.nbytes // max(rows, 1))
    else:
        data, offsets, rows = np.ascontiguousarray(values.values), values.offsets, len(values)
        item = data.nbytes // max(len(data), 1)
        offsets = np.ascontiguousarray(offsets) * item
    changes = np.zeros(max(rows - 1, 0), np.uint8)
    _compare_neighbours(get_address(data), offsets, changes)
    result = changes.view(np.bool_)
    if valid is not None:
        result &= valid[1:] & valid[:-1]
        result |= valid[1:] != valid[:-1]
    return result


@kernel("void(int64, int64[::1], uint8[::1])")
def _compare_neighbours(address: int, offsets: np.ndarray, out: np.ndarray) -> None:
    """Set `out` to 1 where a row differs from the one before; `offsets` (bytes) divides rows."""
    for i in range(len(out)):
        place = address + offsets[i]
        other = address + offsets[i + 1]
        left = other - place
        same = left == offsets[i + 2] - offsets[i + 1]
        while same and left >= 8:
            same = load_u64(place) == load_u64(other)
            place += 8
            other += 8
            left -= 8
        while same and left > 0:
            same = load_u8(place) == load_u8(other)
            place += 1
            other += 1
            left -= 1
        out[i] = 0 if same else 1
