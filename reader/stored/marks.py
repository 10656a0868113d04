"""Which blocks of arrays were verified: by this process, or one that shares its marks."""

from collections.abc import Mapping
from functools import partial

import numpy as np

from fieldslab.schemas.digest import BLOCK, count_blocks
from fieldslab.schemas.errors import DamagedManifest, Unreadable
from fieldslab.schemas.fields import Role
from fieldslab.schemas.layout import count_shard_items
from fieldslab.schemas.manifest import MANIFEST, Manifest
from fieldslab.schemas.system import map_anonymous

_SHARED_BYTES = 64 * 1024 * 1024
"""Room for the marks of a slab: addresses only, until marks are set. Enough for 35 TB."""
_MOST_BLOCKS = 2**40
_CHUNK = 4096


class VerifiedBlocks:
    """One bit a block, over all shards of an array: 1 once the block was found right.

    Block `k` has bit `k & 7` of `table[k >> 3]`. Threads and processes set bits without a lock: at
    worst one is lost, and its block digested again.

    Attributes
    ----------
    firsts
        Index of each shard's first block: int64[shards].
    table
        The marks: uint8[blocks / 8], rounded up.
    complete
        Whether this process has seen every block marked.
    """

    def __init__(self, blocks: np.ndarray, table: np.ndarray) -> None:
        """Take the number of blocks in each shard, int64[shards], and memory with room for all."""
        ends = np.cumsum(blocks)
        count = int(ends[-1]) if len(ends) else 0
        self.firsts = ends - blocks
        self.table = table[: -(-count // 8)]
        self._bytes = memoryview(self.table.data)
        self._settled = 0
        self.complete = not count
        if count % 8:  # what stands behind the last block is never asked for
            self._set_bits(count // 8, 0xFF << count % 8 & 0xFF)

    def find_unmarked(self, shard: int, begin: int, end: int) -> list[int]:
        """Find a shard's blocks without a mark that hold any of the data bytes begin..end-1."""
        if self.complete or begin >= end:
            return []
        first, marked = int(self.firsts[shard]), self._bytes
        block, last = begin // BLOCK, (end - 1) // BLOCK
        if block == last and marked[first + block >> 3] >> (first + block & 7) & 1:
            return []  # as most single rows
        return [
            block
            for block in range(block, last + 1)
            if not marked[first + block >> 3] >> (first + block & 7) & 1
        ]

    def locate_blocks(self, indexes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find shards, and blocks within their arrays, of indexes of blocks: int64[n] each."""
        shards = np.searchsorted(self.firsts, indexes, side="right") - 1
        return shards, indexes - self.firsts[shards]

    def mark_block(self, shard: int, block: int) -> None:
        """Mark a block of a shard."""
        index = int(self.firsts[shard]) + block
        self._set_bits(index >> 3, 1 << (index & 7))

    def mark_shard(self, shard: int, blocks: int) -> None:
        """Mark the first `blocks` blocks of a shard, which need not be verified."""
        start = int(self.firsts[shard])
        first, last = -(-start // 8), (start + blocks) // 8
        if first < last:
            self.table[first:last] = 0xFF
        for index in [
            *range(start, min(8 * first, start + blocks)),
            *range(max(8 * last, start), start + blocks),
        ]:
            self._set_bits(index >> 3, 1 << (index & 7))
        self.update_complete()

    def clear_blocks(self, shard: int, blocks: int) -> None:
        """Take the marks from the first `blocks` blocks of a shard: they are verified again."""
        start = int(self.firsts[shard])
        stop = start + blocks
        first, last = start >> 3, stop >> 3
        before, behind = (1 << (start & 7)) - 1, 0xFF << (stop & 7) & 0xFF
        if first == last:
            self._keep_bits(first, before | behind)
        elif blocks:
            self._keep_bits(first, before)
            self.table[first + 1 : last] = 0
            if stop & 7:
                self._keep_bits(last, behind)
        self._settled = min(self._settled, first)
        self.complete = self.complete and not blocks

    def update_complete(self) -> None:
        """Find out whether all blocks are marked by now; call it after some were."""
        table, settled = self.table, self._settled
        while settled < len(table) and self._bytes[settled] == 0xFF:
            wrong = table[settled : settled + _CHUNK] != 0xFF
            settled += int(wrong.argmax()) if wrong.any() else len(wrong)
        self._settled = settled
        self.complete = settled >= len(table)

    # One call of numpy each, during which no other Python thread runs.

    def _set_bits(self, place: int, bits: int) -> None:
        byte = self.table[place : place + 1]
        np.bitwise_or(byte, np.uint8(bits), out=byte)

    def _keep_bits(self, place: int, bits: int) -> None:
        byte = self.table[place : place + 1]
        np.bitwise_and(byte, np.uint8(bits), out=byte)


class SharedMarks:
    """Memory for the marks of all arrays of a slab, in processes that are forked the same.

    It is mapped when the slab is opened, so that workers that are forked later share what any of
    them has verified. Pages are taken where marks are set.
    """

    def __init__(self, manifest: Manifest, *, private: bool = False) -> None:
        """With `private`, a forked process has its own from then on."""
        self._manifest = manifest
        self._map = partial(map_anonymous, shared=not private, reserved=False)
        self._memory = self._map(_SHARED_BYTES)
        self._places: Mapping[tuple[str, Role], int] | None = None

    def create_marks(self, name: str, role: Role, blocks: np.ndarray) -> VerifiedBlocks:
        """Create the VerifiedBlocks of an array with so many blocks in each shard: int64[shards].

        Raises DamagedManifest where no machine could hold such an array, Unreadable where the
        system has no addresses left for its marks.
        """
        if blocks.sum(dtype=np.float64) > _MOST_BLOCKS:
            raise DamagedManifest(
                "arrays are too large",
                file=MANIFEST,
                field=name,
                expected=f"at most {_MOST_BLOCKS * BLOCK} bytes",
            )
        if self._places is None:
            self._places = _find_places(self._manifest)
        start, size = self._places[name, role], int(blocks.sum()) // 8 + 1
        if start + size <= _SHARED_BYTES:
            return VerifiedBlocks(blocks, np.frombuffer(self._memory, np.uint8, size, start))
        try:
            memory = self._map(size)
        except OSError as error:
            raise Unreadable(
                f"no memory to note which of {8 * size:,} blocks were verified",
                errno=error.errno,
                file=MANIFEST,
                field=name,
                hint="Raise the limit of address space (`ulimit -v`), if the slab is so large.",
            ) from error
        return VerifiedBlocks(blocks, np.frombuffer(memory, np.uint8))


def _find_places(manifest: Manifest) -> dict[tuple[str, Role], int]:
    """Where the marks of each array begin: in any process the same."""
    places, end = {}, 0
    item_bytes = {
        (field.name, spec.role): spec.item_bytes
        for field, specs in manifest.arrays
        for spec in specs
    }
    for key, items in count_shard_items(manifest).items():
        places[key] = end
        blocks = count_blocks(items * item_bytes[key])
        end += int(blocks.sum(dtype=np.float64)) // 8 + 1
    return places
