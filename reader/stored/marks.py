"""Which blocks of an array this process has verified."""

from collections.abc import Sequence

import numpy as np

from fieldslab.schemas.digest import BLOCK


class VerifiedBlocks:
    """One byte a block, over all shards of an array: 1 once the block was found right.

    Marks are only ever set, so threads need no lock: at worst two of them digest the same block.

    Attributes
    ----------
    firsts
        Index of each shard's first block: int64[shards].
    table
        The marks: uint8[blocks].
    complete
        Whether every block is marked.
    """

    def __init__(self, blocks: Sequence[int]) -> None:
        """Take the number of blocks in each shard."""
        ends = np.cumsum(np.array(blocks, np.int64))
        self.firsts = ends - np.array(blocks, np.int64)
        self._firsts: list[int] = self.firsts.tolist()
        self._marks = bytearray(int(ends[-1]) if len(ends) else 0)
        self._settled = 0
        self.table = np.frombuffer(self._marks, np.uint8)
        self.complete = not self._marks

    def find_unmarked(self, shard: int, begin: int, end: int) -> list[int]:
        """Blocks of a shard without a mark that hold any of the data bytes begin..end-1."""
        if self.complete or begin >= end:
            return []
        first = self._firsts[shard]
        blocks = range(begin // BLOCK, (end - 1) // BLOCK + 1)
        return [block for block in blocks if not self._marks[first + block]]

    def locate_blocks(self, indexes: np.ndarray) -> list[tuple[int, int]]:
        """Shard, and block within its array, of each index into `table`."""
        shards = np.searchsorted(self.firsts, indexes, side="right") - 1
        blocks = indexes - self.firsts[shards]
        return list(zip(shards.tolist(), blocks.tolist(), strict=True))

    def mark_block(self, shard: int, block: int) -> None:
        """Mark a block of a shard."""
        self._marks[self._firsts[shard] + block] = 1

    def update_complete(self) -> None:
        """Find out whether all blocks are marked by now; call it after some `mark_block`."""
        if not self.complete:
            unmarked = self._marks.find(0, self._settled)
            self.complete = unmarked < 0
            self._settled = max(unmarked, 0)
