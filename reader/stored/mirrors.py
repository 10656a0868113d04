"""The mirrors of a slab, of which each has the blocks of one member that lies elsewhere.

Positions of blocks count through the marks of all mirrors.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fieldslab.schemas.cancelling import get_cancelled, set_cancelled
from fieldslab.schemas.fields import Field, Role
from fieldslab.schemas.unions.members import Members

if TYPE_CHECKING:
    from fieldslab.schemas.mirror.mirror import Mirror

_THREADS = 8
"""Mirrors that are waited for at a time."""


class MirroredShards(NamedTuple):
    """A mirror, which shards of the slab it has, and the first of its positions."""

    mirror: "Mirror"
    first: int
    last: int
    base: int

    def select_shards(self, shards: np.ndarray) -> np.ndarray:
        """Select those that the mirror has: their numbers there, int64[n]."""
        return shards[(shards >= self.first) & (shards < self.last)] - self.first


class Mirrors:
    """All mirrors of a slab, for who asks for blocks. Any number of threads may use it.

    Attributes
    ----------
    parts
        Each mirror, with the shards that it has.
    mark_bytes
        Bytes of all marks.
    limit
        Bytes that mirrors may take, the least where they differ; None without a limit.
    """

    def __init__(self, members: Members) -> None:
        self.parts: list[MirroredShards] = []
        self.mark_bytes = 0
        for index, files in enumerate(members.files):
            if files.mirror is not None:
                first, last = members.first_shards[index : index + 2].tolist()
                part = MirroredShards(files.mirror, first, last, 8 * self.mark_bytes)
                self.parts.append(part)
                self.mark_bytes += files.mirror.blocks.mark_bytes
        self._bases = np.array([part.base for part in self.parts], np.int64)
        limits = [part.mirror.origin.limit for part in self.parts]
        self.limit = min((limit for limit in limits if limit is not None), default=None)

    @property
    def waits(self) -> int:
        """How often somebody had to wait for blocks."""
        return sum(part.mirror.waits for part in self.parts)

    def require(self, positions: np.ndarray, *, demand: bool = True) -> None:
        """Have the blocks at these positions there: see `Mirror.require`."""
        split = [
            (mirror, some)
            for mirror, some in self._split(positions)
            if not mirror.presence.are_present(some).all()
        ]
        if len(split) < 2:
            for mirror, some in split:
                mirror.require(some, demand=demand)
            return
        cancelled = get_cancelled()

        def fetch(mirror: "Mirror", some: np.ndarray) -> None:
            set_cancelled(cancelled)
            mirror.require(some, demand=demand)

        with ThreadPoolExecutor(min(len(split), _THREADS), "fieldslab-fetch") as threads:
            list(threads.map(fetch, *zip(*split, strict=True)))

    def are_present(self, positions: np.ndarray) -> np.ndarray:
        """Say which blocks are there: int64[n], ascending, to bool[n]."""
        present = [mirror.presence.are_present(some) for mirror, some in self._split(positions)]
        return np.concatenate(present) if present else np.empty(0, np.bool_)

    def prefetch(self, positions: np.ndarray, share: float, done: Callable[[], None]) -> bool:
        """Have blocks fetched some time: see `Mirror.prefetch`."""
        split = list(self._split(positions))
        left, lock = len(split) + 1, Lock()

        def finish(count: int = 1) -> None:
            nonlocal left
            with lock:
                left -= count
                if left:
                    return
            done()

        requested = [mirror.prefetch(some, share, finish) for mirror, some in split]
        if not any(requested):
            return False
        finish(1 + requested.count(False))
        return True

    def cancel_prefetch(self) -> None:
        """Have nothing fetched any more that nobody waits for."""
        for part in self.parts:
            part.mirror.cancel_prefetch()

    def after_fork(self) -> None:
        """Put new locks in place of those inherited; called in a forked child."""
        for part in self.parts:
            part.mirror.after_fork()

    def _split(self, positions: np.ndarray) -> Iterator[tuple["Mirror", np.ndarray]]:
        """Split ascending positions by mirror, each with the positions there."""
        if not len(positions):
            return
        cuts = np.searchsorted(positions, self._bases)
        for part, first, last in zip(self.parts, cuts, [*cuts[1:], len(positions)], strict=True):
            if first < last:
                yield part.mirror, positions[first:last] - part.base


class _Placed(NamedTuple):
    """One array in the shards of a mirror: its blocks in the slab, and where these stand."""

    shards: MirroredShards
    column: int
    first_blocks: np.ndarray
    end: int
    first_positions: np.ndarray


class MirroredArray:
    """Where the blocks of one array stand in the marks of mirrors."""

    def __init__(
        self, mirrors: Mirrors, field: Field, role: Role, firsts: np.ndarray, blocks: int
    ) -> None:
        """`firsts` is that of `VerifiedBlocks`; there are so many blocks."""
        self._placed: list[_Placed] = []
        for part in mirrors.parts:
            with suppress(KeyError):  # the slab has no such array
                column = part.mirror.blocks.find_column(field.name, role)
                end = int(firsts[part.last]) if part.last < len(firsts) else blocks
                positions = part.mirror.blocks.find_first_positions(column)
                first_blocks = firsts[part.first : part.last]
                self._placed.append(_Placed(part, column, first_blocks, end, positions))

    def verify(self, blocks: np.ndarray, verify: Callable[[np.ndarray], None]) -> None:
        """Have blocks there, and call `verify` with them while none of them is evicted.

        `blocks` are indexes as in `VerifiedBlocks`, ascending: int64[n]. Blocks that are in no
        mirror are verified as well. Raises what `Mirror.verify` raises.
        """
        done = 0
        for placed, first, last in self._split(blocks):
            if done < first:
                verify(blocks[done:first])
            some = blocks[first:last]
            placed.shards.mirror.verify(_locate(placed, some), partial(verify, some))
            done = last
        if done < len(blocks):
            verify(blocks[done:])

    def find_positions(self, blocks: np.ndarray) -> np.ndarray:
        """Return the positions of blocks that are in mirrors: int64[n] in, ascending, and out."""
        parts = [
            _locate(placed, blocks[first:last]) + placed.shards.base
            for placed, first, last in self._split(blocks)
        ]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def find_shards(self, mirror: "Mirror", units: np.ndarray) -> list[int]:
        """Find the shards whose array is among some units of a mirror: int64[n]."""
        for placed in self._placed:
            if placed.shards.mirror is mirror:
                folders, columns = np.divmod(units, mirror.blocks.width)
                own_folders = folders[(columns == placed.column) & (folders < mirror.blocks.shards)]
                shards: list[int] = (own_folders + placed.shards.first).tolist()
                return shards
        return []

    def is_whole(self) -> bool:
        """Whether all of the array is there, in every shard."""
        return all(placed.shards.mirror.has_column(placed.column) for placed in self._placed)

    def _split(self, blocks: np.ndarray) -> Iterator[tuple[_Placed, int, int]]:
        """Split ascending blocks by mirror: which of them it has, first and end."""
        for placed in self._placed:
            if len(placed.first_blocks):
                first, last = np.searchsorted(blocks, (placed.first_blocks[0], placed.end))
                if first < last:
                    yield placed, int(first), int(last)


def _locate(placed: _Placed, blocks: np.ndarray) -> np.ndarray:
    """Find the positions of blocks in the mirror that has them: int64[n] in and out."""
    shards = np.searchsorted(placed.first_blocks, blocks, side="right") - 1
    return placed.first_positions[shards] + (blocks - placed.first_blocks[shards])


def find_mirrored_units(
    part: MirroredShards, arrays: Sequence[tuple[str, Role]], shards: np.ndarray
) -> np.ndarray:
    """Find the units of a mirror that arrays have in some shards of the slab: int64[n]."""
    blocks, columns = part.mirror.blocks, []
    for name, role in arrays:
        with suppress(KeyError):
            columns.append(blocks.find_column(name, role))
    some = np.unique(part.select_shards(shards))[:, np.newaxis] * blocks.width
    return (some + np.array(columns, np.int64)).reshape(-1)
