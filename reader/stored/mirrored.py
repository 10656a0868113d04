"""An array of a slab that lies elsewhere: its blocks are there before they are verified."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from fieldslab.schemas.fields import Field, Role

if TYPE_CHECKING:
    from fieldslab.schemas.mirror.mirror import Mirror


class MirroredArray:
    """Where the blocks of one array stand in the marks of a mirror."""

    def __init__(self, mirror: "Mirror", field: Field, role: Role, firsts: np.ndarray) -> None:
        """`firsts` is that of `VerifiedBlocks`."""
        self._mirror = mirror
        self._firsts = firsts
        self._column = mirror.blocks.find_column(field.name, role)
        self._first_positions = mirror.blocks.find_first_positions(self._column)

    def verify(self, blocks: np.ndarray, verify: Callable[[], None]) -> None:
        """Have blocks there, and call `verify` while none of them is evicted.

        `blocks` are indexes as in `VerifiedBlocks`, ascending: int64[n]. Raises what
        `Mirror.verify` raises.
        """
        self._mirror.verify(self.find_positions(blocks), verify)

    def find_positions(self, blocks: np.ndarray) -> np.ndarray:
        """Return the positions of blocks in the mirror's marks: int64[n] in and out."""
        shards = np.searchsorted(self._firsts, blocks, side="right") - 1
        return self._first_positions[shards] + (blocks - self._firsts[shards])

    def find_shards(self, units: np.ndarray) -> list[int]:
        """Find the shards whose array is among some units: int64[n]."""
        folders, columns = np.divmod(units, self._mirror.blocks.width)
        shards = folders[(columns == self._column) & (folders < self._mirror.blocks.shards)]
        return shards.tolist()

    def is_whole(self) -> bool:
        """Tell whether the whole array is present, in every shard."""
        return self._mirror.has_column(self._column)
