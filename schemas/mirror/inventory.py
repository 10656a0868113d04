"""What a cache directory holds: looked at, verified, evicted, pinned."""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.mirror.blockmap import Unit
from fieldslab.schemas.mirror.cache import CacheDirectory
from fieldslab.schemas.mirror.names import MARKER, PIN, PLACE, SIDE
from fieldslab.schemas.mirror.room import MirrorFiles, Room, open_mirrors


@dataclass(frozen=True)
class MirrorInfo:
    """One mirror.

    Attributes
    ----------
    id, path
        The slab's `id`, and where the mirror lies: a slab, once `whole`.
    place
        Where the slab comes from, without credentials; None if that is not known.
    present_bytes, total_bytes
        Bytes of blocks that are there, and of all.
    last_used
        When a block was last needed, in seconds since 1970; 0 if never.
    whole, pinned
        Whether all blocks are there; whether none is ever evicted.
    """

    id: str
    path: str
    place: str | None
    present_bytes: int
    total_bytes: int
    last_used: float
    whole: bool
    pinned: bool


def open_cache(path: Path) -> CacheDirectory:
    """Open a cache directory that is there. Raises UsageError for any other."""
    if not os.path.exists(path / MARKER):
        raise UsageError("is not a cache directory of fieldslab", file=path)
    return CacheDirectory(path, shared=True)


def list_mirrors(cache: CacheDirectory) -> list[MirrorInfo]:
    """List the mirrors, those used last first."""
    infos = []
    for mirror in open_mirrors(cache):
        with closing(mirror):
            infos.append(_describe_mirror(cache, mirror))
    return sorted(infos, key=lambda info: -info.last_used)


def find_mirrors(cache: CacheDirectory, names: Sequence[str]) -> list[MirrorInfo]:
    """Find mirrors by the beginnings of their ids, or by their places; all without names.

    Raises UsageError for a name of none, or of several.
    """
    infos = list_mirrors(cache)
    if not names:
        return infos
    chosen = []
    for name in names:
        matching = [info for info in infos if info.id.startswith(name) or info.place == name]
        if len(matching) != 1:
            raise UsageError(
                "no slab in the cache is called so" if not matching else "several slabs match",
                file=cache.path,
                expected=", ".join(info.id[:12] for info in matching or infos) or None,
                found=name,
            )
        chosen += matching
    return chosen


def verify_mirror(
    cache: CacheDirectory, content: str, progress: Callable[[int, int], None]
) -> tuple[int, int]:
    """Compare all blocks of a mirror with their digests; forget those that differ.

    Returns how many there were, and how many differed: those are fetched again when they are
    needed. `progress` is called with 0, and bytes.
    """
    checked = damaged = 0
    with closing(_open_mirror(cache, content)) as mirror:
        tables: dict[int, np.ndarray | None] = {}
        for number in np.flatnonzero(mirror.presence.count_present()).tolist():
            unit = mirror.blocks.get_unit(number)
            if unit.folder not in tables:
                tables = {unit.folder: _read_table(mirror, unit.folder)}
            for position, is_right in _check_unit(mirror, unit, tables[unit.folder]):
                checked += 1
                if not is_right and mirror.presence.lock_bytes(position >> 3, 1):
                    mirror.presence.clear_marks(position, position + 1)
                    mirror.presence.unlock_bytes(position >> 3, 1)
                damaged += not is_right
                progress(0, BLOCK)
    return checked, damaged


def evict_mirror(cache: CacheDirectory, content: str) -> int:
    """Evict all of a mirror but what is in use, and return the bytes."""
    with closing(Room(cache, None)) as room:
        total = 2**62
        return room.evict(total, lambda other, unit: other != content)


def evict_bytes(cache: CacheDirectory, size: int) -> int:
    """Evict at least so many bytes, if there are as many; what is needed last goes first.

    Returns the bytes.
    """
    with closing(Room(cache, None)) as room:
        return room.evict(size, lambda content, unit: False)


def pin_mirror(cache: CacheDirectory, content: str, pinned: bool) -> None:
    """Keep a mirror from being evicted, or allow it again."""
    path = cache.path / (content + SIDE) / PIN
    if pinned:
        path.touch()
    else:
        path.unlink(missing_ok=True)


def _open_mirror(cache: CacheDirectory, content: str) -> MirrorFiles:
    other_contents = [name for name in cache.list_mirrors() if name != content]
    return next(open_mirrors(cache, other_contents))


def _describe_mirror(cache: CacheDirectory, mirror: MirrorFiles) -> MirrorInfo:
    place, uses = None, mirror.presence.uses
    with suppress(OSError, ValueError, KeyError, TypeError):
        place = str(json.loads((mirror.side / PLACE).read_bytes())["place"])
    total = mirror.blocks.blocks.sum()
    present = mirror.presence.count_present().sum()
    return MirrorInfo(
        mirror.content,
        str(cache.path / mirror.content),
        place,
        int(present) * BLOCK,
        int(total) * BLOCK,
        float(uses[uses <= time.time()].max(initial=0.0)),
        bool(present == total),
        (mirror.side / PIN).exists(),
    )


def _read_table(mirror: MirrorFiles, folder: int) -> np.ndarray | None:
    """The digest table of a folder, if it is there and right."""
    unit = mirror.blocks.get_unit(mirror.blocks.find_unit(folder, None))
    if not mirror.presence.is_present(mirror.blocks.get_first_position(unit.number)):
        return None
    data = mirror.sparse.read_bytes(unit, HEADER, mirror.blocks.count_digest_bytes(folder))
    digest = mirror.blocks.digest
    table = digest.view_table(data[: len(data) // digest.dtype.itemsize * digest.dtype.itemsize])
    return table if digest.compute_root(table) == mirror.blocks.get_root(folder) else None


def _check_unit(
    mirror: MirrorFiles, unit: Unit, table: np.ndarray | None
) -> Iterator[tuple[int, bool]]:
    """The positions of the blocks of a unit that are there, each with whether it is right."""
    start = mirror.blocks.get_first_position(unit.number)
    for index in range(int(mirror.blocks.blocks[unit.number])):
        if not mirror.presence.is_present(start + index):
            continue
        if unit.file is None or table is None:
            yield start + index, table is not None
            continue
        size = min(BLOCK, unit.file.data_bytes - index * BLOCK)
        data = mirror.sparse.read_bytes(unit, HEADER + index * BLOCK, size)
        is_right = mirror.blocks.digest.compute(data) == table[unit.file.first_block + index].item()
        if is_right or mirror.presence.is_present(start + index):  # not evicted meanwhile
            yield start + index, is_right
