"""Shards in several processes of this machine.

Processes and not threads: HDF5 holds one lock for all, and a file that crashes its library takes
one worker along, not the packer.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any, TypeVar

from fieldslab.packer.pack_options import Progress
from fieldslab.packer.write.engines.engine import Engine, Task, Work
from fieldslab.schemas.errors import SourceUnreadable
from fieldslab.schemas.optiontext import mark_option

_Record = TypeVar("_Record")

_work: Work[Any]
_steps: Any


class ProcessEngine(Engine):
    """Runs tasks in `jobs` processes of this machine."""

    name = "processes"
    on_machine = True

    def run(
        self, work: Work[_Record], tasks: Sequence[Task], progress: Progress
    ) -> Generator[_Record, None, None]:
        """Run every task. Closing waits for the tasks that have begun."""
        context = multiprocessing.get_context("spawn")
        with _set_safe_path():  # the first lock starts a process, too
            steps = context.SimpleQueue()
        listener = threading.Thread(target=_forward_progress, args=(steps, progress), daemon=True)
        listener.start()
        pool = ProcessPoolExecutor(self.jobs, context, _initialize_worker, (work, steps))
        running: dict[Future[_Record], Task] = {}
        try:
            with _hold_interrupts(), _set_safe_path():
                running = {pool.submit(_write_shard, task): task for task in tasks}
            for future in as_completed(list(running)):
                record = future.result()
                del running[future]
                yield record
        except BrokenProcessPool as error:
            numbers = sorted(task.number for task in running.values())[: self.jobs]
            first = running[next(iter(running))].source
            raise SourceUnreadable(
                f"a worker process died while it packed shard {' or '.join(map(str, numbers))}",
                file=first,
                hint="The file may crash the library that reads it, or memory ran out: try "
                f"{mark_option('jobs', 1)}.",
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            steps.put(None)
            listener.join()


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


def _forward_progress(steps: Any, progress: Progress) -> None:
    while (step := steps.get()) is not None:
        progress(*step)


def _initialize_worker(work: Work[Any], steps: Any) -> None:
    """Set up a worker. Ctrl-C is for the parent, which stops the workers; they end with it."""
    global _work, _steps
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _work, _steps = work, steps


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _write_shard(task: Task) -> Any:
    return _work.write(task, lambda rows, bytes: _steps.put((rows, bytes)))
