"""Which rows of a slab come from which of its members."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np


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

    def find_ranges(self, view: range) -> Mapping[str, range]:
        """Find the positions in a view that each member has, by its name."""
        step = view.step
        if step > 0:
            borders = -((view.start - self.starts) // step)
            firsts, lasts = borders[:-1], borders[1:]
        else:
            borders = (view.start - self.starts) // -step + 1
            firsts, lasts = borders[1:], borders[:-1]
        ends = np.clip(np.stack([firsts, lasts]), 0, len(view)).tolist()
        ranges = map(range, *ends)
        return MappingProxyType(dict(zip(self.names, ranges, strict=True)))

    def find_members(self, view: range, rows: np.ndarray) -> np.ndarray:
        """Find the index of the member of each row of a view: int64[n] in and out."""
        stored = view.start + view.step * rows
        return np.searchsorted(self.starts[1:], stored, side="right")
