"""Shards in several processes of this machine.

Processes and not threads: HDF5 holds one lock for all, and a file that crashes its library takes
one worker along, not the packer.
"""

import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from fieldslab.packer.pack_options import Progress
from fieldslab.packer.write.engines.engine import Engine, Task, Work
from fieldslab.schemas.errors import FieldslabError, SourceUnreadable
from fieldslab.schemas.optiontext import mark_option

_Record = TypeVar("_Record")


class ProcessEngine(Engine):
    """Runs tasks in `jobs` processes of this machine.

    Each worker has a pipe of its own, and no lock is shared: one that is killed at any moment
    leaves the end of its pipe, and nobody waits for it. A pool of `concurrent.futures` can wait
    forever for a worker that died while it started, or while it held the lock of a queue.
    """

    name = "processes"
    on_machine = True

    def run(
        self, work: Work[_Record], tasks: Sequence[Task], progress: Progress
    ) -> Generator[_Record, None, None]:
        """Run every task. Closing waits for the tasks that have begun."""
        context = multiprocessing.get_context("spawn")
        waiting = deque(tasks)
        workers: list[_Worker] = []
        try:
            with _set_safe_path():
                # It unblocks the signals that `_hold_interrupts` blocks, so it starts first.
                resource_tracker.ensure_running()
                with _hold_interrupts():
                    for _ in range(min(self.jobs, len(tasks))):
                        workers.append(_Worker(context))
            for worker in workers:
                worker.begin(work, waiting.popleft())
            while busy := {worker.pipe: worker for worker in workers if worker.task}:
                for pipe in wait(list(busy)):
                    worker = busy[pipe]
                    kind, value = worker.receive()
                    if kind == _STEP:
                        progress(*value)
                    elif kind == _ERROR:
                        worker.task = None
                        raise value
                    else:
                        worker.give(waiting.popleft() if waiting else None)
                        yield value
        finally:
            try:
                for worker in workers if not any(worker.died for worker in workers) else ():
                    worker.finish()
            finally:
                for worker in workers:
                    worker.end()


_STEP, _RECORD, _ERROR = range(3)
"""What a worker sends: rows and bytes that it did, a task's record, or an exception."""


class _Worker:
    """A process that does one task after the other, and the pipe to it."""

    def __init__(self, context: Any) -> None:
        self.task: Task | None = None
        self.died = False
        self.pipe, worker_pipe = context.Pipe()
        # It gets nothing large here: a process that dies before it has read what `start` writes
        # would hold `start` up forever.
        self._process = context.Process(target=_serve, args=(worker_pipe,))
        try:
            self._process.start()
        finally:
            worker_pipe.close()  # so that the pipe ends with the worker

    def begin(self, work: Work[Any], task: Task) -> None:
        """Send the work, and a first task."""
        with suppress(OSError):  # it died: `receive` says so
            self.pipe.send(work)
        self.give(task)

    def give(self, task: Task | None) -> None:
        """Send a further task, if there is one."""
        if task is not None:
            with suppress(OSError):
                self.pipe.send(task)
        self.task = task

    def receive(self) -> tuple[int, Any]:
        """Return what the worker sent. Raises SourceUnreadable if it died."""
        assert self.task is not None
        try:
            message: tuple[int, Any] = self.pipe.recv()
        except (EOFError, OSError) as error:
            self.died = True
            raise SourceUnreadable(
                f"a worker process died while it packed shard {self.task.number}",
                file=self.task.source,
                hint="The file may crash the library that reads it, or memory ran out: try "
                f"{mark_option('jobs', 1)}.",
            ) from error
        return message

    def finish(self) -> None:
        """Wait for the task that has begun, if there is one, and forget what comes of it."""
        with suppress(EOFError, OSError):
            while self.task is not None:
                if self.pipe.recv()[0] != _STEP:
                    self.task = None

    def end(self) -> None:
        """End the process: by the end of its pipe, or at once where it is still at work."""
        if self.task is not None:
            self._process.terminate()
        self.pipe.close()
        self._process.join()
        self._process.close()


@contextmanager
def _hold_interrupts() -> Iterator[None]:
    """Keep Ctrl-C and SIGTERM back while workers start, and have the workers start without them.

    A pool that is left half-way does not wait for its workers, and these would print a traceback.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        signal.signal(number, lambda number, _: received.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which they inherit
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number in numbers:
            signal.signal(number, before[number])
        if received:
            signal.raise_signal(received[0])


@contextmanager
def _set_safe_path() -> Iterator[None]:
    """Start interpreters that look for no module in the working directory.

    `multiprocessing` starts them by `python -c`, which would import `multiprocessing` itself from
    there. Later they are given the path of this process. Only the environment can say so.
    """
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


def _serve(pipe: "Connection[Any, Any]") -> None:
    """Be a worker. Ctrl-C is for the parent, which stops the workers; they end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    lock = threading.Lock()  # a task may tell its progress from several threads

    def send(kind: int, value: Any) -> None:
        with lock:
            try:
                pipe.send((kind, value))
            except OSError:  # the parent has ended
                os._exit(1)

    work: Work[Any] | None = None
    while True:
        try:
            received = pipe.recv()
        except (EOFError, OSError):  # there is nothing more to do
            return
        except Exception as error:  # noqa: BLE001 - what was sent cannot be loaded here
            _send_error(send, error)
            return
        if work is None:
            work = received
            continue
        try:
            send(_RECORD, work.write(received, lambda rows, bytes: send(_STEP, (rows, bytes))))
        except Exception as error:  # noqa: BLE001 - the parent raises it
            _send_error(send, error)


def _send_error(send: Callable[[int, Any], None], error: Exception) -> None:
    """Send an exception; one that cannot be pickled as its text."""
    if not isinstance(error, FieldslabError):
        error.add_note("In a worker process:\n" + "".join(traceback.format_exception(error)))
    try:
        send(_ERROR, error)
    except Exception as reason:  # noqa: BLE001 - pickling raises anything
        send(_ERROR, RuntimeError(f"{type(error).__name__}: {error} (not pickled: {reason})"))


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
