"""Threads that make things ahead of time and hand them over in order."""

import atexit
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from fieldslab.reader import forks
from fieldslab.schemas.errors import UsageError

_Made = TypeVar("_Made")


class Workers(Generic[_Made]):
    """Calls `make(0)`, `make(1)` and so on in threads; `take` returns the results in order.

    The threads end with the last one, with the first error, after `close`, or when nobody holds
    this object any more. They are daemons that the interpreter's exit stops and waits for: other
    threads would keep a program alive that died of Ctrl-C with its traceback still in hand.
    """

    def __init__(self, make: Callable[[int], _Made], count: int, threads: int, ahead: int) -> None:
        """Start `threads` threads; up to `ahead` results are in the making or wait to be taken."""
        self.desk = Desk(make, count, ahead)
        _living.add(self.desk)
        self.desk.start(min(threads, count))

    def take(self) -> _Made:
        """The next result, waited for; or the error that `make` raised instead.

        Raises StopIteration when all were taken.
        """
        return self.desk.take()

    def close(self) -> None:
        """Stop, and wait until the threads are gone; what was made is let go."""
        self.desk.close()

    def __del__(self) -> None:
        # No waiting here: the collector may run in any thread, whatever locks it holds.
        self.desk.stop()


class Desk(Generic[_Made]):
    """What threads and consumer share: it lives as long as either. Threads do not hold `Workers`.

    A desk is stopped when its `Workers` go; the threads then finish what they are at.
    """

    def __init__(self, make: Callable[[int], _Made], count: int, ahead: int) -> None:
        self._make = make
        self._count = count
        self._ahead = ahead
        self._begun = self._taken = 0
        self._done: dict[int, _Made | _Failure] = {}
        self._stopped = self._forked = False
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        forks.register(self)

    def start(self, threads: int) -> None:
        """Start the threads."""
        for number in range(threads):
            name = f"fieldslab-loader-{number}"
            thread = threading.Thread(target=_work, args=(self,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def take(self) -> _Made:
        """See `Workers.take`."""
        with self._changed:
            if self._taken >= self._count:
                raise StopIteration
            while self._taken not in self._done:
                if self._forked:
                    raise UsageError(
                        "the process was forked while this iteration ran",
                        hint="Begin a new one in the child: iter(loader).",
                    )
                if self._stopped:
                    raise UsageError("this iteration was closed", hint="Begin a new one.")
                self._changed.wait()
            made = self._done.pop(self._taken)
            self._taken += 1
            self._changed.notify_all()
        if isinstance(made, _Failure):
            self.stop()
            raise made.error
        return made

    def step(self) -> bool:
        """Make one result; False when there is no more to do."""
        with self._changed:
            while not self._stopped and self._begun >= self._taken + self._ahead:
                self._changed.wait()
            if self._stopped or self._begun >= self._count:
                return False
            index = self._begun
            self._begun += 1
        made = self._try(index)
        with self._changed:
            if not self._stopped:
                self._done[index] = made
            self._changed.notify_all()
        return not isinstance(made, _Failure)

    def stop(self) -> None:
        """Have the threads end, and let go what was made."""
        with self._changed:
            self._stopped = True
            self._done.clear()
            self._changed.notify_all()

    def close(self) -> None:
        """Stop, and wait until the threads are gone."""
        self.stop()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        self._threads = []

    def after_fork(self) -> None:
        """The threads are not there in a forked child."""
        self._changed = threading.Condition()
        self._threads = []
        self._stopped = self._forked = True
        self._done = {}

    def _try(self, index: int) -> "_Made | _Failure":
        try:
            return self._make(index)
        except BaseException as error:  # noqa: BLE001 - the consumer has to hear of it
            return _Failure(error)


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error


def _work(desk: Desk[_Made]) -> None:
    while desk.step():
        pass


_living: WeakSet[Desk[Any]] = WeakSet()


def _stop_all() -> None:
    for desk in list(_living):
        desk.stop()
    for desk in list(_living):
        desk.close()


atexit.register(_stop_all)
