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
        self.starts = np.array(starts, np.int64)
        self.lengths = np.array(lengths, np.int64)
        same = self.starts.ndim == 1 and self.starts.shape == self.lengths.shape
        if not same or (self.lengths < 0).any() or (self.starts < 0).any():
            raise UsageError(
                "runs are told by their first rows and their lengths",
                expected="two arrays of numbers from 0, as long as each other",
            )
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


def find_runs(
    name: str,
    gather: Callable[[range, list[str]], Batch],
    find_members: Callable[[np.ndarray], np.ndarray] | None,
    total: int,
) -> Runs:
    """Find the runs of rows 0..total-1 in which a field has one value, or is null.

    `gather` reads fields of a range of rows. With `find_members`, which finds the slab of each row
    (int64[n] in and out), runs end where a slab ends, too.
    """
    parts = [np.zeros(min(total, 1), np.int64)]
    # Each batch begins with the last row of the one before.
    for rows, batch in read_batches(
        lambda rows: gather(range(max(rows.start - 1, 0), rows.stop), [name]), total
    ):
        first = max(rows.start - 1, 0)
        changes = _find_changes(batch[name], batch.valid.get(name))
        if find_members is not None:
            members = find_members(np.arange(first, rows.stop))
            changes |= members[1:] != members[:-1]
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
