"""An order that brings rows of about the same length together, so that little is padded."""

from functools import lru_cache
from typing import Any

import numpy as np

from fieldslab.reader.orders.order import Order, shuffle_positions
from fieldslab.reader.orders.unattached import make_unattached_error
from fieldslab.reader.rows import check_integer
from fieldslab.reader.slab import Slab

BUCKETS = 64
"""Buckets that are sorted together. More make rows in a bucket more alike, and less random."""
_KEPT = 8


class ByLength(Order):
    """Every row once an epoch, in buckets of similar length; the buckets come in random order.

    Rows are shuffled. Then 64 buckets at a time are sorted by length, cut into buckets, and the
    buckets are shuffled. Only the offsets are read.

    Parameters
    ----------
    field
        A ragged, text, binary or image field: its lengths are used.
    bucket
        Rows in a bucket: the batch size times the world size, or a multiple of this, so that no
        batch spans two buckets.
    """

    repeats = False

    def __init__(self, field: str, seed: int = 0, bucket: int = 256) -> None:
        self.field = field
        self.seed = check_integer("seed", seed)
        self.bucket = check_integer("bucket", bucket, least=1)

    def rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        """See `Order`; only an attached one knows lengths."""
        raise make_unattached_error("lengths")

    def attach(self, slab: Slab) -> Order:
        """See `Order`. Raises UnknownField and, for rows of fixed size, UsageError."""
        slab.lengths([], self.field)
        return _AttachedByLength(self, slab)

    def key(self) -> dict[str, Any]:
        """See `Order`."""
        return {
            "name": type(self).__name__,
            "version": 1,
            "field": self.field,
            "seed": self.seed,
            "bucket": self.bucket,
        }

    def __repr__(self) -> str:
        return f"ByLength({self.field!r}, seed={self.seed}, bucket={self.bucket})"


class _AttachedByLength(Order):
    """A ByLength order together with the row lengths of one slab."""

    repeats = False

    def __init__(self, order: ByLength, slab: Slab) -> None:
        self._order = order
        self._slab = slab
        self._sorted = lru_cache(_KEPT)(self._sort_group)

    def rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        size = self._order.bucket * BUCKETS
        parts = [np.empty(0, np.int64)]
        while start < stop:
            group = start // size
            upto = min(stop, (group + 1) * size)
            rows = self._sorted(epoch, group, total)
            parts.append(rows[start - group * size : upto - group * size])
            start = upto
        return np.concatenate(parts)

    def _sort_group(self, epoch: int, group: int, total: int) -> np.ndarray:
        """Sort the rows of a group of buckets, cut them, and shuffle the full buckets."""
        bucket, seed = self._order.bucket, self._order.seed
        start = group * bucket * BUCKETS
        stop = min(start + bucket * BUCKETS, total)
        rows = shuffle_positions("length", (seed, epoch), start, stop, total)
        rows = rows[np.argsort(self._slab.lengths(rows, self._order.field), kind="stable")]
        full = len(rows) // bucket
        # What is left makes the last batch of the epoch. Of any length: else the longest rows
        # would come last in every epoch.
        rest = len(rows) - full * bucket
        if full and rest:
            gap = int(shuffle_positions("rest", (seed, epoch), 0, 1, full + 1)[0]) * bucket
            rows = np.concatenate([rows[:gap], rows[gap + rest :], rows[gap : gap + rest]])
        turns = shuffle_positions("buckets", (seed, epoch, group), 0, full, full)
        rows[: full * bucket] = rows[: full * bucket].reshape(full, bucket)[turns].reshape(-1)
        return rows

    def key(self) -> dict[str, Any]:
        return self._order.key()

    def __reduce__(self) -> tuple[object, ...]:
        return _AttachedByLength, (self._order, self._slab)

    def __repr__(self) -> str:
        return repr(self._order)
