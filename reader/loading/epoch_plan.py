"""How an epoch is cut into batches, and a batch into the shares of ranks."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fieldslab.reader.orders.order import Order
from fieldslab.reader.rows import check_integer
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.optiontext import mark_option


class PositionRange(NamedTuple):
    """Positions of an epoch, from `start` up to `stop`, each `step` behind the one before it.

    `lap` counts how often the epoch began anew before them: 0, but where shares are filled up.
    """

    start: int
    stop: int
    lap: int
    step: int = 1


@dataclass(frozen=True)
class EpochPlan:
    """Batches of one rank, from a position of an epoch to its end.

    A step of all ranks together takes the next `batch_size * world_size` positions; they are cut
    into equal shares, one behind the other. So after each step everything in front of one
    position was visited, and nothing behind it, whatever the number of ranks: that position is
    all there is to resume by.

    Where the last step has less: without it (`drop_last`), or with shares that are smaller, and
    equal because the first rows of the epoch are visited again to fill them up.
    """

    length: int
    batch_size: int
    rank: int = 0
    world_size: int = 1
    drop_last: bool = False
    start: int = 0
    groups: int = 1

    @cached_property
    def positions_per_step(self) -> int:
        """Positions that all ranks take together."""
        return self.batch_size * self.world_size

    @property
    def batch_count(self) -> int:
        """Number of batches: the same on every rank."""
        left = max(self.length - self.start, 0)
        return (
            left // self.positions_per_step
            if self.drop_last
            else -(-left // self.positions_per_step)
        )

    def check_index(self, index: int) -> int:
        """Return the index of a batch. Raises UsageError if there is no such batch."""
        if index >= self.batch_count:
            expected = f"0..{self.batch_count - 1}" if self.batch_count else "none"
            raise UsageError("the epoch has no such step", expected=expected, found=index)
        return index

    def find_rank_positions(self, index: int) -> list["PositionRange"]:
        """Return this rank's positions in a batch; several ranges if the epoch wraps around."""
        first = self.start + index * self.positions_per_step
        count = min(self.positions_per_step, self.length - first)
        size = -(-count // self.world_size)
        begin = self.rank * size
        parts = list(self._find_group_positions(first, first + count, begin, begin + size))
        missing = begin + size - max(count, begin)
        position = self.length + max(begin - count, 0)  # the epoch begins anew
        while missing > 0:
            start = position % self.length
            stop = min(start + missing, self.length)
            parts.append(PositionRange(start, stop, position // self.length))
            missing -= stop - start
            position += stop - start
        return parts

    def _find_group_positions(
        self, start: int, stop: int, begin: int, end: int
    ) -> Iterator["PositionRange"]:
        """Positions `start` up to `stop` by group; of this sequence those from `begin` to `end`."""
        groups = self.groups if self.world_size > 1 else 1
        for group in range(groups):
            positions = range(start + (group - start) % groups, stop, groups)
            part = positions[max(begin, 0) : max(end, 0)]
            if part:
                yield PositionRange(part[0], part[-1] + 1, 0, groups)
            begin -= len(positions)
            end -= len(positions)

    def find_position_after(self, index: int) -> int:
        """Return the position of the epoch after every rank had its batch of this index."""
        return min(self.start + (index + 1) * self.positions_per_step, self.length)


@dataclass(frozen=True, eq=False)
class BatchPlan(EpochPlan):
    """Batches of one rank, where the order makes them: a step takes one for each rank.

    `batches` are those of `Order.find_batches`. The last step is filled up with the first batches
    of the epoch, or left out (`drop_last`).
    """

    batches: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))

    @cached_property
    def _first(self) -> int:
        """Number of the batch at `start`."""
        return int(np.searchsorted(self.batches, self.start))

    @property
    def batch_count(self) -> int:
        """See `EpochPlan`."""
        left = len(self.batches) - 1 - self._first
        return left // self.world_size if self.drop_last else -(-left // self.world_size)

    def find_rank_positions(self, index: int) -> list[PositionRange]:
        """See `EpochPlan`."""
        number = self._first + index * self.world_size + self.rank
        lap, number = divmod(number, len(self.batches) - 1)
        start, stop = self.batches[number : number + 2].tolist()
        return [PositionRange(start, stop, lap)]

    def find_position_after(self, index: int) -> int:
        """See `EpochPlan`."""
        number = self._first + (index + 1) * self.world_size
        return int(self.batches[min(number, len(self.batches) - 1)])


def make_plan(
    order: Order,
    total: int,
    epoch: int,
    batch_size: int,
    rank: int,
    world_size: int,
    drop_last: bool,
    start: int,
) -> EpochPlan:
    """Make the plan of an order that is attached to `total` rows."""
    cut = order.length(total), batch_size, rank, world_size, drop_last, start, order.groups
    batches = order.find_batches(epoch)
    return EpochPlan(*cut) if batches is None else BatchPlan(*cut, batches)


def choose_batch_size(batch_size: int | None, batches: np.ndarray | None) -> int:
    """Check a batch size, or compute the mean of the batches that an order makes.

    Raises UsageError.
    """
    if batches is None:
        if batch_size is None:
            hint = "Only an order that makes batches, such as TokenBudget, does without."
            raise UsageError(f"{mark_option('batch_size')} is missing", hint=hint)
        return check_integer("batch_size", batch_size, least=1)
    if batch_size is not None:
        hint = f"Leave out {mark_option('batch_size')}."
        raise UsageError("the order decides how many rows a batch has", found=batch_size, hint=hint)
    return max(int(batches[-1]) // max(len(batches) - 1, 1), 1)


def compute_rank_rows(
    order: Order, epoch: int, plan: EpochPlan, index: int, total: int
) -> np.ndarray:
    """Compute the rows of a batch of a rank: int64[n]. `order` is attached to `total` rows."""
    parts = [
        order.rows(epoch, part.start, part.stop, total)
        if part.step == 1
        else order.rows_at(epoch, np.arange(*part[:2], part.step, dtype=np.int64), total)
        for part in plan.find_rank_positions(index)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def find_rank_and_size(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Rank and world size: those given, or those of torch.distributed if it runs, or 0 and 1.

    Raises UsageError.
    """
    if (rank is None) != (world_size is None):
        raise UsageError("give both `rank` and `world_size`, or neither")
    if rank is not None and world_size is not None:
        if not 0 <= rank < world_size:
            raise UsageError("`rank` is out of range", expected=f"0..{world_size - 1}", found=rank)
        return rank, world_size
    # Whoever uses it has imported it; nobody else waits for that.
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()
