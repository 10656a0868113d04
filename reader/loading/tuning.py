"""How many threads make batches, and how far ahead: found while a loader runs.

A consumer that waits for more than `MOST_WAITING` of its time gets one more thread where the
threads were busy, and more batches ahead where they were not: then some batches just take longer
than others. A thread that made nothing faster ends again. Batches are the same for any choice.
"""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from fieldslab.reader.loading.stats import PreparedBatch
from fieldslab.reader.loading.workers import Workers
from fieldslab.reader.rows import check_integer
from fieldslab.schemas.cores import count_usable_cores
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.memory import count_available_bytes

MOST_WAITING = 0.01
MOST_AHEAD = 64
"""Results in the making or finished: no more than these are held, whatever the memory."""
_RESULTS, _SECONDS = 8, 0.05
"""Least number of results, and least seconds, before the next choice."""
_BUSY = 0.7
_FASTER = 1.05


_Made = TypeVar("_Made")


class Tuner:
    """The choices for one loader, which last from one epoch to the next.

    Attributes
    ----------
    threads
        Threads that make batches.
    ahead
        Results, batches or groups of them, that are in the making or finished.
    group_size
        Batches in a result.
    """

    def __init__(self, memory: int, threads: int, most_threads: int) -> None:
        """Take the bytes that batches may take, and how many threads there are and may be."""
        self._memory = memory
        self._most_threads = most_threads
        self.threads = threads
        self.ahead = self.threads + 1
        self.group_size = 1
        self._largest = 0
        self._rate_before = 0.0  # of the thread that was added last; 0 once that is settled
        self.start_epoch()

    @property
    def prefetch(self) -> int:
        """Finished batches that may wait, as in the `prefetch` of a loader."""
        return max(self.ahead - self.threads + 1, 1) * self.group_size

    def start_epoch(self) -> None:
        """Restart the measurement, and ignore the first result of an epoch."""
        self._results = -1
        self._started = 0.0
        self._waited = self._prepared = 0.0

    def add_result(self, waited: float, prepared: float, size: int, now: float) -> None:
        """Take note of a result of `size` bytes, and choose again if it is time.

        `waited` is how long the consumer waited for it, `prepared` how long a thread made it, `now`
        the time; in seconds.
        """
        self._largest = max(self._largest, size)
        self._results += 1
        if self._results == 0:
            self._started = now
            return
        self._waited += waited
        self._prepared += prepared
        seconds = now - self._started
        if self._results >= _RESULTS and seconds >= _SECONDS:
            self._choose(seconds)
            self._results, self._started = 0, now
            self._waited = self._prepared = 0.0

    def _choose(self, seconds: float) -> None:
        rate = self._results / seconds
        if self._rate_before and rate < _FASTER * self._rate_before:
            self.threads -= 1
            self._most_threads = self.threads
        self._rate_before = 0.0
        # One is the consumer's.
        room = min(self._memory // max(self._largest, 1) - 1, MOST_AHEAD)
        if self._waited <= MOST_WAITING * seconds or self.ahead >= room:
            return
        busy = self._prepared > _BUSY * seconds * self.threads
        if busy and self.threads < self._most_threads:
            self._rate_before = rate
            self.threads += 1
            self.ahead += 1
        else:
            self.ahead = min(2 * self.ahead, room)


class TunedWorkers(Workers[_Made]):
    """Workers whose number, and how far they are ahead, a tuner chooses."""

    def __init__(
        self,
        make: Callable[[int], _Made],
        count: int,
        tuner: Tuner,
        list_batches: Callable[[_Made], list[PreparedBatch]],
    ) -> None:
        """Start threads; `list_batches` gives the batches of a result."""
        super().__init__(make, count, tuner.threads, tuner.ahead, MOST_AHEAD)
        tuner.start_epoch()
        self._tuner = tuner
        self._list_batches = list_batches

    @property
    def get_next(self) -> Callable[[], _Made]:
        """See `Workers`."""
        return self._get_next_and_tune

    def _get_next_and_tune(self) -> _Made:
        started = time.perf_counter()
        result = self.task_queue.get_next()
        now = time.perf_counter()
        batches = self._list_batches(result)
        prepared = sum([sum(batch.stages.values()) for batch in batches])
        size = sum([batch.bytes for batch in batches])
        self._tuner.add_result(now - started, prepared, size, now)
        self.task_queue.adjust(self._tuner.threads, self._tuner.ahead)
        return result


def make_tuner(prefetch: Any, threads: int | None, memory: Any, isolate: bool) -> Tuner | None:
    """Make a loader's tuner; None without prefetch="auto". Raises UsageError."""
    if prefetch != "auto":
        if isinstance(prefetch, str):
            expected = '"auto", or a number'
            raise UsageError("`prefetch` is not possible", expected=expected, found=prefetch)
        if memory is not None:
            hint = 'Give prefetch="auto", too, or leave it out.'
            raise UsageError('`memory` is for prefetch="auto"', hint=hint)
        return None
    if isolate:
        hint = "Measure with `fieldslab advise`, or leave `isolate` out."
        raise UsageError('`isolate` with prefetch="auto"', hint=hint)
    if memory is None:
        memory = count_available_bytes() // 4
    most_threads = count_usable_cores() if threads is None else threads
    return Tuner(check_integer("memory", memory, least=1), threads or 1, most_threads)
