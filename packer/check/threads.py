"""The threads that check a slab."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

THREADS = min(4, os.cpu_count() or 1)
REMOTE_THREADS = 16
"""For a slab on another machine: they wait most of the time."""

_Work = TypeVar("_Work")
_Result = TypeVar("_Result")


class MapInThreads(Protocol):
    """The `map` of a thread pool, as `open_thread_pool` yields it."""

    def __call__(
        self, function: Callable[[_Work], _Result], work: Iterable[_Work], /
    ) -> Iterator[_Result]:
        """Call a function on each item in a few threads; give the results in order."""


@contextmanager
def open_thread_pool(threads: int = THREADS) -> Iterator[MapInThreads]:
    """Open a thread pool for a `with` block; calls that have not begun at its end are dropped."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="fieldslab-verify")
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)
