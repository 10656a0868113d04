"""How fast a scrub may read: bytes per second, and not while the machine is busy."""

import os
import time
from collections.abc import Callable

LOOK_SECONDS = 5.0
"""Seconds between two looks at the load of a busy machine."""


def get_machine_load() -> float:
    """Return the mean number of processes that ran or waited for a disk in the last minute."""
    return os.getloadavg()[0]


class Throttle:
    """Keeps a reader to a rate, and has it wait while the load of the machine is too high."""

    def __init__(
        self,
        rate: int | None = None,
        max_load: float | None = None,
        *,
        get_load: Callable[[], float] = get_machine_load,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`rate` is in bytes per second; None for no limit. Time can be given, as load can."""
        self._rate = rate
        self._max_load = max_load
        self._get_load = get_load
        self._clock = clock
        self._sleep = sleep
        self._free_at = 0.0

    def wait(self, size: int) -> None:
        """Wait until `size` more bytes may be read. What was not used up is not saved up."""
        while self._max_load is not None and self._get_load() > self._max_load:
            self._sleep(LOOK_SECONDS)
        if self._rate is None:
            return
        now = self._clock()
        if self._free_at > now:
            self._sleep(self._free_at - now)
        self._free_at = max(self._free_at, now) + size / self._rate
