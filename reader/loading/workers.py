"""Threads that make things ahead of time and hand them over in order."""

import atexit
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, repeat
from queue import Empty, SimpleQueue
from typing import Any, Generic, NoReturn, TypeVar
from weakref import WeakSet

from fieldslab.reader import forks
from fieldslab.schemas.cancelling import set_cancelled
from fieldslab.schemas.errors import UsageError

_Made = TypeVar("_Made")


class Workers(Generic[_Made]):
    """Calls `make(0)`, `make(1)` and so on in threads; `get_next()` returns the results in order.

    The threads end with the last one, with the first error, after `close`, or when nobody holds
    this object any more. They are daemons that the interpreter's exit stops and waits for: other
    threads would keep a program alive that died of Ctrl-C with its traceback still in hand.
    """

    def __init__(
        self,
        make: Callable[[int], _Made],
        count: int,
        threads: int,
        ahead: int,
        most_ahead: int = 0,
    ) -> None:
        """Start `threads` threads; up to `ahead` results are in the making or wait to be taken.

        The queue can be widened up to `most_ahead`, if that is more.
        """
        self.task_queue = TaskQueue(make, count, ahead, most_ahead)
        _living.add(self.task_queue)
        self.task_queue.start(min(threads, count))

    @property
    def get_next(self) -> Callable[[], _Made]:
        """A function that waits for the next result and returns it, or raises the error of `make`.

        It raises StopIteration when all were taken.
        """
        return self.task_queue.get_next

    def close(self) -> None:
        """Stop, wait until the threads have ended, and drop finished results."""
        self.task_queue.close()

    def __del__(self) -> None:
        # No waiting here: the collector may run in any thread, whatever locks it holds.
        self.task_queue.stop()


class TaskQueue(Generic[_Made]):
    """What threads and consumer share: it lives as long as either. Threads do not hold `Workers`.

    Numbers wait in one queue to be made, and each result in a queue of its own to be taken. These
    queues are the interpreter's own: with a lock and a condition, taking what was ready took twice
    as long. A queue is stopped when its `Workers` go; the threads then finish what they are at.
    """

    def __init__(
        self, make: Callable[[int], _Made], count: int, ahead: int, most_ahead: int = 0
    ) -> None:
        self._make = make
        self._count = count
        self._ahead = ahead
        self._places = max(ahead, most_ahead)
        # Behind the last number, each place ends a thread.
        self._tasks: Iterator[int | None] = chain(range(count), repeat(None))
        self._taken = self._running = 0
        self._stopped = self._forked = False
        self._threads: list[threading.Thread] = []
        self._create_queues()
        forks.register_for_forks(self)

    def start(self, threads: int) -> None:
        """Start the threads."""
        for _ in range(self._ahead):
            self._todo.put(next(self._tasks))
        self._set_threads(threads)

    def adjust(self, threads: int, ahead: int) -> None:
        """Go on with so many threads, and this far ahead or as far as before if that is more.

        Only the consumer does.
        """
        if threads != self._running:
            self._set_threads(threads)
        while self._ahead < min(ahead, self._places):
            self._ahead += 1
            self._todo.put(next(self._tasks))

    def get_next(self) -> _Made:
        """See `Workers.get_next`."""
        # After a training step nothing of this is in the caches: no function is called here that
        # is not needed, for each takes 3 us then.
        number = self._taken
        if number >= self._count:
            raise StopIteration
        outcome = None if self._stopped else self._done[number % self._places].get()
        if outcome is None:
            raise self._make_end_error()
        self._taken = number + 1
        self._todo.put(next(self._tasks))  # there are `ahead` at most
        if isinstance(outcome, _Failure):
            self.stop()
            raise outcome.error
        return outcome

    def make_next(self) -> bool:
        """Make one result; False when there is no more to do."""
        index = self._todo.get()
        if index is None:
            return False
        outcome = self._make_outcome(index)
        self._done[index % self._places].put(outcome)  # no two under way have the same place
        if self._stopped:
            self._drop_results()
        return not isinstance(outcome, _Failure)

    @property
    def stopped(self) -> bool:
        """Whether no more is wanted."""
        return self._stopped

    def stop(self) -> None:
        """Let the threads end, and drop finished results."""
        if self._stopped:  # perhaps by `_stop_all_threads`, and modules are empty by now
            return
        self._stopped = True
        _empty_queue(self._todo)
        for _ in range(max(self._ahead, len(self._threads))):
            self._todo.put(None)
        self._drop_results()

    def close(self) -> None:
        """Stop, and wait until the threads are gone."""
        self.stop()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        self._threads = []
        self._make = _refuse  # lets the function go, so that it ends with its last user

    def after_fork(self) -> None:
        """Return the threads are not there in a forked child."""
        self._create_queues()
        self._threads = []
        self._stopped = self._forked = True

    def _set_threads(self, threads: int) -> None:
        for _ in range(threads, self._running):
            self._todo.put(None)
        for _ in range(self._running, threads):
            name = f"fieldslab-loader-{len(self._threads)}"
            thread = threading.Thread(target=_run_steps, args=(self,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._running = threads

    def _make_end_error(self) -> UsageError:
        if self._forked:
            return UsageError(
                "the process was forked while this iteration ran",
                hint="Start a new one in the child: iter(loader).",
            )
        return UsageError("this iteration was closed", hint="Start a new one.")

    def _create_queues(self) -> None:
        self._todo: SimpleQueue[int | None] = SimpleQueue()
        self._done: list[SimpleQueue[_Made | _Failure | None]] = [
            SimpleQueue() for _ in range(self._places)
        ]

    def _drop_results(self) -> None:
        """Drop all results, and wake a consumer that waits for one."""
        for place in self._done:
            _empty_queue(place)
            place.put(None)

    def _make_outcome(self, index: int) -> "_Made | _Failure":
        try:
            return self._make(index)
        except BaseException as error:  # noqa: BLE001 - the consumer has to hear of it
            return _Failure(error)


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error


def _empty_queue(queue: SimpleQueue[Any]) -> None:
    with suppress(Empty):
        while True:
            queue.get_nowait()


def _refuse(index: int) -> NoReturn:
    raise AssertionError("closed")


def _run_steps(task_queue: TaskQueue[Any]) -> None:
    set_cancelled(lambda: task_queue.stopped)
    while task_queue.make_next():
        pass


_living: WeakSet[TaskQueue[Any]] = WeakSet()


def _stop_all_threads() -> None:
    for task_queue in list(_living):
        task_queue.stop()
    for task_queue in list(_living):
        task_queue.close()


atexit.register(_stop_all_threads)
