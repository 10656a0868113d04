"""How much is fetched around prefetched blocks: as much as delays no request."""

import time

from fieldslab.schemas.digest import BLOCK

MOST_EXTENT = 16
"""Blocks: 1 MiB."""
_FIRST_EXTENT = 4
_FEW_BLOCKS = 16 * 2**30 // BLOCK
_REQUESTS, _SECONDS = 48, 0.1
"""Least number of requests, and least seconds, of one measurement."""
_PATIENCE = 20
"""Measurements after a failed trial until the next one."""


class Pace:
    """Finds the extent: the blocks, aligned, that one request takes, where they are wanted later.

    It is doubled as long as about as many requests are done in a second as before: then what is
    fetched around costs nothing. Where there are fewer, the network is full, and what is around
    delays what is needed first. A small slab is there before that matters.
    """

    def __init__(self, total: int) -> None:
        """Take the blocks of the slab."""
        self.extent = MOST_EXTENT if total <= _FEW_BLOCKS else _FIRST_EXTENT
        self._trial: tuple[float, float] | None = None
        self._pause = 0
        self._begin()

    def note(self, size: int, full: bool) -> None:
        """Take the size of a request that is done; `full` if others wait to be made."""
        if not full:  # then the rate says nothing
            self._begin()
            return
        self._requests += 1
        self._bytes += size
        elapsed = time.monotonic() - self._started
        if self._requests >= _REQUESTS and elapsed >= _SECONDS:
            self._adjust(self._requests / elapsed, self._bytes / self._requests)
            self._begin()

    def _begin(self) -> None:
        self._started, self._requests, self._bytes = time.monotonic(), 0, 0

    def _adjust(self, rate: float, size: float) -> None:
        """Go on from requests a second, and bytes of a request."""
        if self._trial is not None:
            rate_before, size_before = self._trial
            full = size_before / max(size, 1)  # what becomes of the rate if the network is full
            self._trial = None
            if rate / rate_before < (1 + full) / 2:
                self.extent //= 2
                self._pause = _PATIENCE
        if self._pause:
            self._pause -= 1
        elif self.extent < MOST_EXTENT:
            self._trial = rate, size
            self.extent *= 2
