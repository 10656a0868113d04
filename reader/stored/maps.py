"""Which arrays are mapped: those touched last, so that the process keeps maps to spare.

Linux gives a process 65,530 maps. A slab of 100,000 shards has more arrays, so those that were not
touched for longest are unmapped, but never while their addresses are in use: see `Lease`.
"""

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakSet, ref

import numpy as np

from fieldslab.reader import forks
from fieldslab.schemas.mapping import count_maps

MOST_MAPS = 32_768
_LONGEST_WAIT = 1.0
_MAX_MAP_COUNT = Path("/proc/sys/vm/max_map_count")


class Lease:
    """As long as it is held, everything that was mapped when it was taken stays in memory.

    What is unmapped is handed to the lease of the day, and a lease holds the next one. So nothing
    has to be counted, or given back: a lease ends as the last name of it goes out of scope.
    """

    def __init__(self) -> None:
        self.unmapped: list[Any] = []
        self.next: Lease | None = None


class MappedArrays(Protocol):
    """Mapped arrays of which the keeper may choose the coldest. It calls with its lock held."""

    def list_cold(self) -> tuple[np.ndarray, np.ndarray]:
        """List what may be unmapped, int64[n], and when each was touched last, by `ticks`."""

    def unmap(self, shards: Sequence[int]) -> list[Any]:
        """Forget some of them, and return what owns their memory."""


class MapKeeper:
    """The maps of this process. Threads and forks may use it.

    Attributes
    ----------
    lease
        What to hold while addresses are used: take it first, then see what is mapped.
    limit
        How many maps there are at most, unless pinned arrays or zero-copy ones need more.
    lock
        Held while arrays are mapped or unmapped.
    ticks
        Numbers of touches, rising.
    """

    def __init__(self, limit: int = MOST_MAPS) -> None:
        self.limit = limit
        self.ticks = count(1)
        self._all: WeakSet[MappedArrays] = WeakSet()
        self.after_fork()
        forks.register_for_forks(self)

    def after_fork(self) -> None:
        """Start over in a forked child: leases of other threads would never end."""
        self.lock = threading.RLock()
        self.lease = Lease()
        self._ended: list[ref[Lease]] = []
        self._holders: set[int] = set()

    def add(self, arrays: MappedArrays) -> None:
        """Count these arrays among those that may be unmapped, for as long as they live."""
        with self.lock:
            self._all.add(arrays)

    def count_rows_at_once(self, shards: int) -> int:
        """Count the rows that may be gathered under one lease, of an array of so many shards."""
        return sys.maxsize if shards <= self.limit // 4 else max(self.limit // 128, 1)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold a lease over a `with` block, in which this thread must not wait for other leases."""
        thread = threading.get_ident()
        outermost = thread not in self._holders
        self._holders.add(thread)
        lease = self.lease
        try:
            yield
        finally:
            del lease
            if outermost:
                self._holders.discard(thread)

    def wait_for_room(self) -> None:
        """Wait until others have ended their leases, where much is unmapped but still in memory.

        For at most a second: the system has more maps than `limit`.
        """
        most = self.limit - self.limit // 16
        if count_maps() < most:
            return
        deadline = time.monotonic() + _LONGEST_WAIT
        while (
            threading.get_ident() not in self._holders
            and self._count_waiting()
            and count_maps() >= most
            and time.monotonic() < deadline
        ):
            time.sleep(0.001)

    def make_room(self) -> None:
        """Unmap the coldest arrays where there are too many maps."""
        most = self.limit - self.limit // 8
        if count_maps() <= most:
            return
        with self.lock:
            if count_maps() - self._count_waiting() > most:
                self._unmap_coldest(self.limit // 16)

    def _unmap_coldest(self, number: int) -> None:
        groups = list(self._all)
        shards, ticks = zip(*(arrays.list_cold() for arrays in groups), strict=True)
        ends = np.cumsum([len(part) for part in shards])
        number = min(number, int(ends[-1]))
        coldest = np.argsort(np.concatenate(ticks))[:number]
        owners = np.searchsorted(ends, coldest, side="right")
        for index in np.unique(owners):
            places = coldest[owners == index] - (ends[index] - len(shards[index]))
            self.lease.unmapped += groups[index].unmap(shards[index][places].tolist())
        self._ended.append(ref(self.lease))
        # Only now: holders of the new lease see that they are unmapped.
        self.lease.next = self.lease = Lease()

    def _count_waiting(self) -> int:
        """Count what is unmapped, but in memory as long as leases are held."""
        with self.lock:
            leases = [lease() for lease in self._ended]
            self._ended = [
                ended for ended, lease in zip(self._ended, leases, strict=True) if lease is not None
            ]
            return sum(len(lease.unmapped) for lease in leases if lease is not None)


def _read_limit() -> int:
    """Half of what the system allows, where that is less than usual."""
    try:
        return min(MOST_MAPS, int(_MAX_MAP_COUNT.read_text()) // 2)
    except (OSError, ValueError):
        return MOST_MAPS


map_keeper = MapKeeper(_read_limit())
"""The one of this process."""
