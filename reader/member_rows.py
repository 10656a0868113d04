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
    slab_starts
        The same of each slab, of which members may have several: int64[slabs + 1].
    """

    def __init__(self, names: Sequence[str], counts: Sequence[int]) -> None:
        """Take name and rows of each slab; those of one name, which follow each other, are one."""
        ends = np.cumsum(np.asarray(counts, np.int64))
        following = [*names[1:], None]
        last = [name != other for name, other in zip(names, following, strict=True)]
        self.names = tuple(name for name, is_last in zip(names, last, strict=True) if is_last)
        self.starts = np.concatenate([[0], ends[last]])
        self.slab_starts = np.concatenate([[0], ends])

    def find_ranges(self, view: View) -> Mapping[str, range]:
        """Find the positions in a view that each member has, by its name.

        Raises UsageError if the rows of the view do not ascend.
        """
        borders = _find_places(view, self.starts)
        if borders is None:
            raise UsageError(
                "the rows of a member are scattered over the view",
                hint="Sort the rows before you select them.",
            )
        ends = np.sort([borders[:-1], borders[1:]], axis=0).tolist()
        ranges = map(range, *ends)
        return MappingProxyType(dict(zip(self.names, ranges, strict=True)))

    def find_borders(self, view: View) -> np.ndarray:
        """Find the positions in a view whose row is of another slab than the one before: int64[n].

        They ascend.
        """
        inner = self.slab_starts[1:-1]
        if not len(inner) or not len(view):
            return np.empty(0, np.int64)
        places = _find_places(view, inner)
        if places is None:
            slabs = np.searchsorted(inner, find_stored_rows(view, np.arange(len(view))), "right")
            return np.flatnonzero(slabs[1:] != slabs[:-1]) + 1
        return np.unique(places[(places > 0) & (places < len(view))])

    def find_members(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Find the index of the member of each row of a view: int64[n] in and out."""
        stored_rows = find_stored_rows(view, rows)
        return np.searchsorted(self.starts[1:], stored_rows, side="right")


def _find_places(view: View, starts: np.ndarray) -> np.ndarray | None:
    """Find how many rows of a view lie before each of these rows of all slabs: int64[n].

    Of a view in reverse: how many do not. None where rows of the view have no such sequence.
    """
    if not isinstance(view, range):
        return view.find_borders(starts)
    if view.step > 0:
        places = -((view.start - starts) // view.step)
    else:
        places = (view.start - starts) // -view.step + 1
    return np.clip(places, 0, len(view))
