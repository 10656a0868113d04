"""Room in a cache directory: reserved before bytes are fetched, and made by eviction.

What is evicted is an array of a shard. Those that nobody has needed for the longest time go first,
then those that an order needs last. Digest tables stay.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

import numpy as np

from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.errors import FieldslabError, UsageError
from fieldslab.schemas.manifest import MANIFEST, decode_manifest
from fieldslab.schemas.mirror.blockmap import BlockMap
from fieldslab.schemas.mirror.cache import CacheDirectory
from fieldslab.schemas.mirror.names import MARKS, SIDE
from fieldslab.schemas.mirror.presence import Presence
from fieldslab.schemas.mirror.sparse import SparseSlab
from fieldslab.schemas.optiontext import mark_option


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
        """Whether every block is there."""
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

    def withdraw_manifest(self, held: ExitStack) -> bool:
        """Make it a mirror again that is not whole; False where somebody reads it as a slab.

        Until `held` is closed, nobody else begins to.
        """
        directory = os.open(self.sparse.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        held.callback(os.close, directory)
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


def open_mirrors(cache: CacheDirectory) -> Iterator[MirrorFiles]:
    """Open the mirrors of a cache directory one by one, each to be closed."""
    for content in cache.list_mirrors():
        with suppress(FieldslabError, OSError):
            data = (cache.path / (content + SIDE) / MANIFEST).read_bytes()
            manifest = decode_manifest(data)
            if manifest.id == content:
                yield MirrorFiles(cache.path, content, BlockMap(manifest))


class Room:
    """Bytes of a cache directory that its mirrors may take."""

    def __init__(self, cache: CacheDirectory, limit: int | None) -> None:
        self._cache = cache
        self._limit = limit
        with cache.lock_room():
            if cache.is_alone():
                cache.remove_unfinished()
                used = 0
                for mirror in open_mirrors(cache):
                    used += mirror.count_bytes()
                    mirror.close()
                cache.set_used_bytes(used)

    def try_reserve(self, count: int) -> bool:
        """Reserve bytes if that takes no waiting and no eviction."""
        if not count:
            return True
        with self._cache.try_lock_room() as locked:
            if not locked:
                return False
            if self._limit is not None and self._cache.used_bytes + count > self._limit:
                return False
            self._cache.add_used_bytes(count)
            return True

    def reserve(self, count: int, is_busy: Callable[[str, int], bool]) -> None:
        """Reserve bytes, and evict what takes them.

        `is_busy(content, unit)` says what this process is about to use.

        Raises
        ------
        UsageError
            The limit is too low for what is in use at the same time.
        """
        with self._cache.lock_room():
            excess = self._cache.used_bytes + count - (self._limit or 0)
            if self._limit is not None and excess > 0:
                freed = self._evict(excess, is_busy)
                self._cache.add_used_bytes(-freed)
                if freed < excess:
                    raise UsageError(
                        f"{mark_option('cache_limit')} is less than what is used at a time",
                        file=self._cache.path,
                        expected=f"at least {self._cache.used_bytes + count:,} bytes",
                        found=f"{self._limit:,} bytes",
                    )
            self._cache.add_used_bytes(count)

    def release(self, count: int) -> None:
        """Give bytes back that were reserved and not used."""
        if count:
            with self._cache.lock_room():
                self._cache.add_used_bytes(-count)

    def evict(self, count: int, is_busy: Callable[[str, int], bool]) -> int:
        """Evict at least so many bytes, if there are as many; return how many there were."""
        with self._cache.lock_room():
            freed = self._evict(count, is_busy)
            self._cache.add_used_bytes(-freed)
            return freed

    def _evict(self, count: int, is_busy: Callable[[str, int], bool]) -> int:
        with ExitStack() as held:
            mirrors = [held.enter_context(_Closing(mirror)) for mirror in open_mirrors(self._cache)]
            candidates = [
                (rank, mirror, unit)
                for mirror in mirrors
                for rank, unit in _rank_units(mirror, time.time())
                if not is_busy(mirror.content, unit)
            ]
            candidates.sort(key=lambda candidate: candidate[0])
            allowed = dict[str, bool]()
            freed = 0
            for _, mirror, unit in candidates:
                if freed >= count:
                    break
                if mirror.content not in allowed:
                    allowed[mirror.content] = mirror.withdraw_manifest(held)
                if allowed[mirror.content]:
                    freed += mirror.evict_unit(unit)
            return freed


class _Closing:
    def __init__(self, mirror: MirrorFiles) -> None:
        self._mirror = mirror

    def __enter__(self) -> MirrorFiles:
        return self._mirror

    def __exit__(self, *_: object) -> None:
        self._mirror.close()


def _rank_units(mirror: MirrorFiles, now: float) -> Iterator[tuple[tuple[int, float], int]]:
    """Units that hold anything, each with its rank: the lowest is evicted first."""
    present = mirror.presence.count_present()
    present[mirror.blocks.find_digest_units()] = 0
    uses = mirror.presence.uses
    for unit in np.flatnonzero(present).tolist():
        use = float(uses[unit])
        yield ((0, use) if use <= now else (1, -use)), unit
