"""An order that keeps the rows of a group together, such as those of a patient."""

from functools import lru_cache
from typing import Any

import numpy as np

from fieldslab.reader.orders.order import Order, shuffle_positions
from fieldslab.reader.orders.sources import RowGroups, group_rows
from fieldslab.reader.orders.unattached import make_unattached_error
from fieldslab.reader.rows import check_integer
from fieldslab.reader.slab import Slab

_KEPT = 4
"""Epochs whose sequence of groups is remembered."""


class Grouped(Order):
    """Every row once an epoch; rows with the same value of a field follow each other.

    Groups come in a new random order in each epoch, and so do the rows of a group. A batch has the
    rows of as few groups as fit; where a group is longer than what is left of a batch, it goes on
    in the next one. To have whole groups on one side of a split, as scikit-learn's
    `GroupShuffleSplit` does, split first: see docs/howto/splits.md.

    Parameters
    ----------
    by
        An integer, boolean or categorical field, such as the patient. Its values are read when a
        loader is made, and 4 bytes are kept for each row.
    seed
        Seed of the shuffles.
    """

    repeats = False

    def __init__(self, by: str, seed: int = 0) -> None:
        self.by = by
        self.seed = check_integer("seed", seed)

    def rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        """See `Order`; only an attached one knows the groups."""
        raise make_unattached_error("groups")

    def attach(self, slab: Slab) -> Order:
        """See `Order`. Raises UnknownField, UsageError."""
        return _AttachedGrouped(self, group_rows(slab, self.by))

    def key(self) -> dict[str, Any]:
        """See `Order`."""
        return {"name": type(self).__name__, "version": 1, "by": self.by, "seed": self.seed}

    def __repr__(self) -> str:
        return f"Grouped({self.by!r}, seed={self.seed})"


class _AttachedGrouped(Order):
    """A `Grouped` order together with the groups of one slab."""

    repeats = False

    def __init__(self, order: Grouped, groups: RowGroups) -> None:
        from fieldslab.reader.draws.permutation import compute_sides

        self._order = order
        self._groups = groups
        self._sizes = np.diff(groups.ends, prepend=0)
        self._sides = compute_sides(self._sizes)
        self._shuffle = lru_cache(_KEPT)(self._shuffle_groups)

    def rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        from fieldslab.reader.draws.permutation import make_keys, permute_each_position

        sequence, begins = self._shuffle(epoch)
        positions = np.arange(start, stop, dtype=np.int64)
        turns = np.searchsorted(begins, positions, side="right") - 1
        groups = sequence[turns]
        key = make_keys("grouped rows", self._order.seed, epoch)
        places = permute_each_position(positions - begins[turns], self._sides[groups], groups, key)
        ends, sizes = self._groups.ends[groups], self._sizes[groups]
        return self._groups.row_index[ends - sizes + places].astype(np.int64)

    def _shuffle_groups(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Groups in the sequence of an epoch, and the position at which each begins."""
        count = len(self._sizes)
        sequence = shuffle_positions("groups", (self._order.seed, epoch), 0, count, count)
        ends = np.cumsum(self._sizes[sequence])
        return sequence, ends - self._sizes[sequence]

    def key(self) -> dict[str, Any]:
        return self._order.key()

    def __reduce__(self) -> tuple[object, ...]:
        return _AttachedGrouped, (self._order, self._groups)

    def __repr__(self) -> str:
        return repr(self._order)
