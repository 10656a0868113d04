"""An order that takes rows of all classes equally often."""

from typing import Any

import numpy as np

from fieldslab.reader.orders.mixed import AttachedMixed
from fieldslab.reader.orders.order import Order
from fieldslab.reader.orders.sources import group_by_field
from fieldslab.reader.orders.unattached import make_unattached_error
from fieldslab.reader.rows import check_integer
from fieldslab.reader.slab import Slab


class Balanced(Order):
    """Rows of all classes equally often, in every part of an epoch.

    Classes take turns. Each is shuffled by itself, and anew whenever all its rows had their turn:
    rows of small classes come more often, but none comes twice as often as another of its class.
    An epoch of as many rows as the slab has does not visit every row of a large class; the next
    one goes on with those that are left.

    Where `torch.utils.data.WeightedRandomSampler` draws with replacement, every batch here has its
    share of each class, within the few rows that `Mixed` tells of.

    Parameters
    ----------
    by
        An integer, boolean or categorical field: each of its values is a class. The values are
        read when a loader is made, and 4 bytes are kept for each row.
    seed
        Seed of the shuffles.
    length
        Rows of an epoch. Default: the number of rows of the slab.
    """

    def __init__(self, by: str, seed: int = 0, *, length: int | None = None) -> None:
        self.by = by
        self.seed = check_integer("seed", seed)
        self.epoch_length = None if length is None else check_integer("length", length, least=0)

    def rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        """See `Order`; only an attached one knows the classes."""
        raise make_unattached_error("classes")

    def attach(self, slab: Slab) -> "AttachedMixed":
        """See `Order`. Raises UnknownField, UsageError."""
        from fieldslab.reader.orders.interleaving import Interleaving, Timeline

        sources, names = group_by_field(slab, self.by)
        length = len(slab) if self.epoch_length is None else self.epoch_length
        timeline = Timeline(Interleaving, np.ones(max(len(names), 1), np.int64))
        return AttachedMixed(self, self.seed, names, sources, timeline, length if names else 0)

    def key(self) -> dict[str, Any]:
        """See `Order`."""
        return {
            "name": type(self).__name__,
            "version": 1,
            "by": self.by,
            "seed": self.seed,
            "length": self.epoch_length,
        }

    def __repr__(self) -> str:
        length = "" if self.epoch_length is None else f", length={self.epoch_length}"
        return f"Balanced({self.by!r}, seed={self.seed}{length})"
