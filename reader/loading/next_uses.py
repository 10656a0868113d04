"""When an order needs each shard of a slab next: what a cache evicts first is needed last."""

import time

import numpy as np

from fieldslab.reader.loading.epoch_plan import EpochPlan
from fieldslab.reader.orders.near import find_shard_ends
from fieldslab.reader.orders.order import Order, ShardSpans
from fieldslab.reader.slab import Slab


class NextUses:
    """When the shards of a slab are needed next, as rows of an epoch are asked for.

    After its last row of an epoch, a shard is needed where the next epoch reads it.
    """

    def __init__(
        self, shards: np.ndarray, current: ShardSpans, following: ShardSpans, plan: EpochPlan
    ) -> None:
        """Take the spans of an epoch and of the next one, of shards int64[n]."""
        self._shards = shards
        self._current = current
        self._following = following
        self._plan = plan
        self._borders = np.unique(current.starts[current.starts < current.stops])
        self._position = plan.start
        self._stage = self._find_stage()
        self._started = time.monotonic()

    def advance(self, rows: int, unread: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Note that so many more rows were asked for; the last `unread` may not be read yet.

        Where the order turns to other shards, return shards, int64[n], and in how many seconds
        each is needed, float64[n]; those that are being read are not among them. Otherwise None.
        """
        world_size = self._plan.world_size
        self._position += rows * world_size
        stage, last_stage = self._find_stage(), self._stage
        if stage == last_stage:
            return None
        self._stage = stage
        read = min(self._borders[max(stage - 2, 0)], self._position - unread * world_size)
        current, following = self._current, self._following
        is_read = (current.stops <= read) | (current.starts >= current.stops)
        is_ahead = (current.starts > self._position) & ~is_read
        has_next_use = is_ahead | (is_read & (following.starts < following.stops))
        starts = np.where(is_read, following.starts + self._plan.length, current.starts)
        elapsed = time.monotonic() - self._started
        pace = elapsed / (self._position - self._plan.start)
        return self._shards[has_next_use], (starts[has_next_use] - self._position) * pace

    def _find_stage(self) -> int:
        return int(np.searchsorted(self._borders, self._position, side="right"))


def make_next_uses(slab: Slab, order: Order, plan: EpochPlan, epoch: int) -> NextUses | None:
    """Make what tells when shards are needed next; None where the order reads any at any time.

    `order` is attached to the slab.
    """
    if not isinstance(slab.view, range) and not slab.view.is_ascending:
        return None
    ends = find_shard_ends(slab)
    groups = {part.start % order.groups for part in plan.find_rank_positions(0)}
    read = sorted(groups) if plan.world_size > 1 else range(order.groups)
    current, following = (
        order.find_shard_spans(number, ends, read) for number in (epoch, epoch + 1)
    )
    if current is None or following is None:
        return None
    starts = np.concatenate([[0], ends[:-1]])
    shards = slab.storage.locate_rows(slab.view, starts).shards
    return NextUses(shards, current, following, plan)
