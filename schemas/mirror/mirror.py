"""A mirror, as readers of a slab see it: blocks are asked for, and are there afterwards."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from fieldslab.schemas.errors import DamagedArray
from fieldslab.schemas.layout import ArrayFile
from fieldslab.schemas.manifest import Manifest
from fieldslab.schemas.mirror.blockmap import BlockMap, Unit
from fieldslab.schemas.mirror.cache import CacheDirectory
from fieldslab.schemas.mirror.channel import Channel, Origin
from fieldslab.schemas.mirror.messages import DamagedBlock
from fieldslab.schemas.mirror.positions import join_positions
from fieldslab.schemas.mirror.room import MirrorFiles

_Verified = TypeVar("_Verified")

ATTEMPTS = 3
"""So often a block that is there and damaged is fetched again."""


class Mirror:
    """A mirror that this process reads. Any number of threads may use it.

    Attributes
    ----------
    origin
        Where its blocks come from.
    blocks, presence, sparse
        Its blocks, which of them are there, and its files.
    describe_rows
        Says which rows a block holds, for messages; it takes the block's position.
    waits
        How often a read had to wait for blocks.
    lock
        Held while blocks are verified and while this process forgets what it verified.
    """

    def __init__(
        self, origin: Origin, manifest: Manifest, channel: Channel, cache: CacheDirectory
    ) -> None:
        """Open or create the mirror's files; the manifest was written into the cache before.

        Raises DamagedManifest, NoSpace, OutputDenied, OutputError.
        """
        self.origin = origin
        self._cache = cache  # one that is temporary stays as long as this
        self.manifest = manifest
        self.blocks = BlockMap(manifest)
        self._files = MirrorFiles(Path(origin.cache), manifest.id, self.blocks)
        self.presence, self.sparse = self._files.presence, self._files.sparse
        self.lock = threading.RLock()
        self.describe_rows: Callable[[int], str | None] = lambda position: None
        self.waits = 0
        self._pinned = np.zeros(self.blocks.units, np.bool_)
        self._channel = channel
        channel.attach(manifest.id, origin)

    def require(self, positions: np.ndarray, *, demand: bool = True) -> None:
        """Have the blocks at these positions there: int64[n], ascending.

        What is in demand is fetched before anything else.

        Raises
        ------
        DamagedArray
            A block does not match its digest, however often it is fetched.
        SlabChanged, RemoteUnreadable, AccessDenied, NoSpace, UsageError, WorkerDied
            Another slab is there by now; the store, the cache directory or the helper fails; the
            cache's limit is too low.
        """
        absent = positions[~self.presence.are_present(positions)]
        if len(absent):
            self.waits += demand
            self._fetch(absent, demand=demand)

    def verify(self, positions: np.ndarray, verify: Callable[[], _Verified]) -> _Verified:
        """Have blocks there, and return what `verify` returns, while none of them is evicted.

        `verify` compares the blocks with their digests and remembers them, or raises DamagedArray:
        then they are fetched again. Raises what `require` and `verify` raise.
        """
        attempts = 0
        while True:
            self.require(positions)
            with self.lock:
                if not self.presence.are_present(positions).all():
                    continue
                try:
                    return verify()
                except DamagedArray:
                    attempts += 1
                    if attempts > ATTEMPTS:
                        raise
            self.fetch_again(positions)

    def find_unit(self, position: int) -> Unit:
        """Return the unit whose block stands at a position."""
        return self.blocks.get_unit(self.blocks.find_unit_at(position))

    def find_positions(
        self, folder: str, file: ArrayFile | None, first: int, last: int
    ) -> np.ndarray:
        """Return the positions of blocks `first` up to `last` of a file: int64[n].

        `file` is None for the digest table, which counts as one block.
        """
        unit = self.blocks.find_unit(self.blocks.find_folder(folder), file)
        start = self.blocks.get_first_position(unit)
        return np.arange(start + first, start + last, dtype=np.int64)

    def prepare_folder(self, name: str) -> None:
        """Have a folder of the slab there, with files of the right sizes."""
        self.sparse.prepare_folder(self.blocks.find_folder(name), name)

    def fetch_again(self, positions: np.ndarray) -> None:
        """Fetch blocks that are there and damaged; raises what `require` raises."""
        self._fetch(positions, again=True)

    def prefetch(self, positions: np.ndarray, share: float, done: Callable[[], None]) -> bool:
        """Have blocks fetched some time; `done` is called when they are, or will not be.

        `share` is how much of what lies around them is needed later, from 0 to 1. Returns whether
        anything was asked for.
        """
        absent = positions[~self.presence.are_present(positions)]
        if not len(absent):
            return False
        return self._channel.prefetch(_make_ranges(absent), share, done)

    def cancel_prefetch(self) -> None:
        """Cancel all fetches that nothing waits for, if the helper can be told now."""
        self._channel.cancel_prefetch()

    def has_column(self, column: int) -> bool:
        """Tell whether an array, by `BlockMap.find_column`, is present in all shards."""
        units = slice(column, self.blocks.shards * self.blocks.width, self.blocks.width)
        return bool((self.presence.count_present()[units] == self.blocks.blocks[units]).all())

    def pin_units(self, units: np.ndarray) -> None:
        """Keep units, int64[n], from being evicted as long as this mirror is open."""
        for unit in units[~self._pinned[units]].tolist():
            while not self.presence.pin_unit(unit):
                time.sleep(0.001)  # it is being evicted: that takes moments
            self._pinned[unit] = True

    def note_use(self, units: np.ndarray, when: np.ndarray | None = None) -> None:
        """Say when units are needed, in seconds since 1970: float64[n]; now, if not given."""
        self.presence.uses[units] = time.time() if when is None else when

    def after_fork(self) -> None:
        """Put a new lock in place of the one inherited; called in a forked child."""
        self.lock = threading.RLock()
        self._channel.after_fork()

    def close(self) -> None:
        """Let go of the mirror and of the helper."""
        self._channel.close()
        self.sparse.close()
        self._cache.close()

    def _fetch(self, positions: np.ndarray, *, demand: bool = True, again: bool = False) -> None:
        try:
            self._channel.fetch(_make_ranges(positions), demand, again)
        except DamagedBlock as damage:
            error = damage.error
            error.context["row"] = self.describe_rows(damage.position)
            raise error from None


def _make_ranges(positions: np.ndarray) -> np.ndarray:
    return np.array(list(join_positions(positions)), np.int64)
