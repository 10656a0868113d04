"""Room in a cache directory: reserved before bytes are fetched, and made by eviction.

An array of a shard is evicted as a whole, the one first whose next use is farthest away. Where no
order told when that is, it is taken to be as far ahead as the last use lies back. Digest tables
stay.
"""

import heapq
import os
import time
from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import TypeAlias

import numpy as np

from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.errors import FieldslabError, UsageError
from fieldslab.schemas.manifest import MANIFEST, decode_manifest
from fieldslab.schemas.mirror.blockmap import BlockMap
from fieldslab.schemas.mirror.cache import CacheDirectory
from fieldslab.schemas.mirror.names import MARKS, PIN, SIDE
from fieldslab.schemas.mirror.presence import Presence
from fieldslab.schemas.mirror.sparse import SparseSlab
from fieldslab.schemas.optiontext import mark_option

IsHeld: TypeAlias = Callable[[str, int], bool]

_PATIENCE = 3.0
"""Seconds to wait while others need all that could be evicted."""
_PAUSE = 0.02
_MOMENT = 0.1
_MOST_AT_ONCE = 2**30


class MirrorFiles:
    """The files of one mirror in a cache directory: its marks, and what they are of."""

    def __init__(self, cache: Path, content: str, blocks: BlockMap) -> None:
        """Open or create them. Raises NoSpace, OutputDenied, OutputError."""
        self.content = content
        self.blocks = blocks
        self.side = cache / (content + SIDE)
        self.presence = Presence(self.side / MARKS, blocks, content)
        self.sparse = SparseSlab(cache, content, blocks)

    def count_bytes(self) -> int:
        """Count the bytes of all blocks that are there, the last of an array as a whole one."""
        return int(self.presence.count_present().sum()) * BLOCK

    def is_whole(self) -> bool:
        """Tell whether every block is present."""
        return bool((self.presence.count_present() == self.blocks.blocks).all())

    def evict_unit(self, index: int) -> int:
        """Evict a unit, and return its bytes; 0 where it is in use. Raises OutputError."""
        if not self.presence.lock_unit(index):
            return 0
        try:
            count = self.presence.count_present_of(index) * BLOCK
            self.presence.clear_unit(index)
            self.sparse.punch_unit(self.blocks.get_unit(index))
            return count
        finally:
            self.presence.unlock_unit(index)

    def withdraw_manifest(self, locks: ExitStack) -> bool:
        """Make it an incomplete mirror again; False if it is being read as a slab.

        Until `locks` is closed, no other process begins to read it.
        """
        directory = os.open(self.sparse.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        locks.callback(os.close, directory)
        with suppress(FileNotFoundError):
            os.stat(MANIFEST, dir_fd=directory, follow_symlinks=False)
            try:
                flock(directory, LOCK_EX | LOCK_NB)
            except OSError:
                return False
            os.unlink(MANIFEST, dir_fd=directory)
        return True

    def close(self) -> None:
        """Let go of them."""
        self.presence.close()
        self.sparse.close()


def open_mirrors(cache: CacheDirectory, excluded: Container[str] = ()) -> Iterator[MirrorFiles]:
    """Open the mirrors of a cache directory, but for those excluded, one by one.

    Each is to be closed.
    """
    for content in cache.list_mirrors():
        with suppress(FieldslabError, OSError):
            if content not in excluded:
                data = (cache.path / (content + SIDE) / MANIFEST).read_bytes()
                manifest = decode_manifest(data)
                if manifest.id == content:
                    yield MirrorFiles(cache.path, content, BlockMap(manifest))


class Room:
    """Bytes of a cache directory that its mirrors may take. Any thread may use it."""

    def __init__(self, cache: CacheDirectory, limit: int | None) -> None:
        self._cache = cache
        self._limit = limit
        self._mirrors: dict[str, MirrorFiles] = {}
        with cache.lock_room():
            if cache.is_alone():
                cache.remove_unfinished()
                self._open_mirrors()
                used = sum(mirror.count_bytes() for mirror in self._mirrors.values())
                cache.set_used_bytes(used)

    def try_reserve(self, count: int) -> bool:
        """Reserve bytes if that takes no waiting and no eviction."""
        if not count:
            return True
        with self._cache.try_lock_room() as locked:
            if not locked or (self._limit is not None and self._count_excess(count) > 0):
                return False
            self._cache.add_used_bytes(count)
            return True

    def reserve(self, count: int, is_held: IsHeld) -> None:
        """Reserve bytes, and evict what takes them.

        `is_held(content, unit)` says what this process needs at the moment.

        Raises
        ------
        UsageError
            The limit is lower than what is needed at the same time.
        """
        deadline = time.monotonic() + _PATIENCE
        while True:
            with self._cache.lock_room():
                excess = 0 if self._limit is None else self._count_excess(count)
                if excess > 0:
                    # More than needed, since it takes as long to look for little as for much.
                    evict_bytes = max(excess, min((self._limit or 0) // 50, _MOST_AT_ONCE))
                    excess -= self._evict(evict_bytes, is_held)
                if excess <= 0:
                    self._cache.add_used_bytes(count)
                    return
                used = self._cache.used_bytes
            if time.monotonic() > deadline:
                raise UsageError(
                    f"{mark_option('cache_limit')} is less than what is needed at the same time",
                    file=self._cache.path,
                    expected=f"at least {used + count:,} bytes",
                    found=f"{self._limit:,} bytes",
                )
            time.sleep(_PAUSE)

    def release(self, count: int) -> None:
        """Give bytes back that were reserved and not used."""
        if count:
            with self._cache.lock_room():
                self._cache.add_used_bytes(-count)

    def evict(self, count: int, is_held: IsHeld) -> int:
        """Evict at least so many bytes, if there are as many; return how many there were."""
        with self._cache.lock_room():
            return self._evict(count, is_held)

    def close(self) -> None:
        """Let go of all mirrors."""
        while self._mirrors:
            self._mirrors.popitem()[1].close()

    def _count_excess(self, count: int) -> int:
        return self._cache.used_bytes + count - (self._limit or 0)

    def _open_mirrors(self) -> None:
        """Open what other processes have added; let go of what they removed."""
        present = set(self._cache.list_mirrors())
        for content in self._mirrors.keys() - present:
            self._mirrors.pop(content).close()
        for mirror in open_mirrors(self._cache, self._mirrors):
            self._mirrors[mirror.content] = mirror

    def _evict(self, count: int, is_held: IsHeld) -> int:
        """Evict units, of all mirrors, until so many bytes are free or none is left."""
        self._open_mirrors()
        now = time.time()
        candidates = [
            (rank, mirror.content, unit)
            for mirror in self._mirrors.values()
            if not (mirror.side / PIN).exists()
            for rank, unit in _rank_units(mirror, now)
            if not is_held(mirror.content, unit)
        ]
        heapq.heapify(candidates)
        freed = 0
        with ExitStack() as locks:
            allowed = dict[str, bool]()
            while candidates and freed < count:
                _, content, unit = heapq.heappop(candidates)
                mirror = self._mirrors[content]
                if content not in allowed:
                    allowed[content] = mirror.withdraw_manifest(locks)
                if allowed[content]:
                    freed += mirror.evict_unit(unit)
        self._cache.add_used_bytes(-freed)
        return freed


def _rank_units(mirror: MirrorFiles, now: float) -> Iterator[tuple[float, int]]:
    """Units that hold anything, each with its rank: the lowest is evicted first.

    Units used at this moment are left out: they are being copied.
    """
    present = mirror.presence.count_present()
    present[mirror.blocks.find_digest_units()] = 0
    units = np.flatnonzero(present)
    uses = mirror.presence.uses[units]
    distances = np.abs(now - uses)
    some = (distances > _MOMENT) | (uses > now)
    yield from zip((-distances[some]).tolist(), units[some].tolist(), strict=True)
