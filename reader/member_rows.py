"""Which rows of a slab come from which of its members."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from fieldslab.reader.views import View, find_stored_rows
from fieldslab.schemas.errors import UsageError


class MemberRows:
    """The rows of each member of a slab: that of one is `starts[k]` up to `starts[k + 1]`.

    Attributes
    ----------
    names
        Names of the members, in the order of their rows.
    starts
        The first row of each member, and the number of all rows: int64[members + 1].
    """

    def __init__(self, names: Sequence[str], counts: Sequence[int]) -> None:
        """Take name and rows of each slab; those of one name, which follow each other, are one."""
        ends = np.cumsum(np.asarray(counts, np.int64))
        following = [*names[1:], None]
        last = [name != other for name, other in zip(names, following, strict=True)]
        self.names = tuple(name for name, is_last in zip(names, last, strict=True) if is_last)
        self.starts = np.concatenate([[0], ends[last]])

    def find_ranges(self, view: View) -> Mapping[str, range]:
        """Find the positions in a view that each member has, by its name.

        Raises UsageError if the rows of the view do not ascend.
        """
        if not isinstance(view, range):
            borders = view.find_borders(self.starts)
            if borders is None:
                raise UsageError(
                    "the rows of a member are scattered over the view",
                    hint="Sort the rows before you select them.",
                )
            firsts, lasts = borders[:-1], borders[1:]
        elif view.step > 0:
            borders = -((view.start - self.starts) // view.step)
            firsts, lasts = borders[:-1], borders[1:]
        else:
            borders = (view.start - self.starts) // -view.step + 1
            firsts, lasts = borders[1:], borders[:-1]
        ends = np.clip(np.stack([firsts, lasts]), 0, len(view)).tolist()
        ranges = map(range, *ends)
        return MappingProxyType(dict(zip(self.names, ranges, strict=True)))

    def find_members(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Find the index of the member of each row of a view: int64[n] in and out."""
        stored_rows = find_stored_rows(view, rows)
        return np.searchsorted(self.starts[1:], stored_rows, side="right")
