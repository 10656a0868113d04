"""How an epoch is cut into batches, and a batch into the shares of ranks."""

import sys
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from fieldslab.schemas.errors import UsageError


class PositionRange(NamedTuple):
    """Neighbouring positions of an epoch, from `start` up to `stop`.

    `lap` counts how often the epoch began anew before them: 0, but where shares are filled up.
    """

    start: int
    stop: int
    lap: int


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

    @cached_property
    def step(self) -> int:
        """Positions that all ranks take together."""
        return self.batch_size * self.world_size

    @property
    def batches(self) -> int:
        """How many there are: the same on every rank."""
        left = max(self.length - self.start, 0)
        return left // self.step if self.drop_last else -(-left // self.step)

    def find_rank_positions(self, index: int) -> list["PositionRange"]:
        """This rank's positions in a batch; in several parts if they begin anew."""
        first = self.start + index * self.step
        count = min(self.step, self.length - first)
        size = -(-count // self.world_size)
        position = first + self.rank * size
        parts = []
        while size > 0:
            begin = position % self.length
            end = min(begin + size, self.length)
            parts.append(PositionRange(begin, end, position // self.length))
            size -= end - begin
            position += end - begin
        return parts

    def find_position_after(self, index: int) -> int:
        """Where the epoch stands when every rank has had its batch of this index."""
        return min(self.start + (index + 1) * self.step, self.length)


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
