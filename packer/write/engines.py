"""Where shard tasks run: in this process, or in a pool of processes.

Processes and not threads: HDF5 holds one lock for all, and a file that crashes its library takes
one worker along, not the packer.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from fieldslab.packer.pack_options import Progress
from fieldslab.packer.plan import ShardTask
from fieldslab.packer.write.stream import ShardWork
from fieldslab.packer.write.writers import ShardRecord
from fieldslab.schemas.errors import SourceUnreadable
from fieldslab.schemas.optiontext import option

Job = tuple[ShardTask, Path]
"""A shard task and the empty folder that it is written to."""

_work: ShardWork
_progress: Any


def run_jobs(
    work: ShardWork, jobs: list[Job], progress: Progress, count: int
) -> Generator[ShardRecord, None, None]:
    """Write shards in `count` processes, or in this one; records come as they are finished.

    Raises what a shard raises, and SourceUnreadable where a worker dies.
    """
    if count > 1:
        yield from _in_processes(work, jobs, progress, count)
    else:
        for task, folder in jobs:
            yield work.write(task, folder, progress)


def _in_processes(
    work: ShardWork, jobs: list[Job], progress: Progress, count: int
) -> Generator[ShardRecord, None, None]:
    context = multiprocessing.get_context("spawn")
    with _safe_path():  # the first lock starts a process, too
        told = context.SimpleQueue()
    listener = threading.Thread(target=_listen, args=(told, progress), daemon=True)
    listener.start()
    pool = ProcessPoolExecutor(count, context, _start, (work, told))
    running: dict[Future[ShardRecord], ShardTask] = {}
    try:
        with _interrupts_held(), _safe_path():
            running = {pool.submit(_run, task, folder): task for task, folder in jobs}
        for future in as_completed(list(running)):
            record = future.result()
            del running[future]
            yield record
    except BrokenProcessPool as error:
        numbers = sorted(task.number for task in running.values())[:count]
        first = running[next(iter(running))].spans[0].unit.name
        raise SourceUnreadable(
            f"a worker process died while it packed shard {' or '.join(map(str, numbers))}",
            file=first,
            hint="The file may crash the library that reads it, or memory ran out: try "
            f"{option('jobs', 1)}.",
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        told.put(None)
        listener.join()


@contextmanager
def _interrupts_held() -> Iterator[None]:
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
def _safe_path() -> Iterator[None]:
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


def _listen(told: Any, progress: Progress) -> None:
    while (step := told.get()) is not None:
        progress(*step)


def _start(work: ShardWork, told: Any) -> None:
    """Set up a worker. Ctrl-C is for the parent, which stops the workers; they end with it."""
    global _work, _progress
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _work, _progress = work, told


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _run(task: ShardTask, folder: Path) -> ShardRecord:
    return _work.write(task, folder, lambda rows, bytes: _progress.put((rows, bytes)))
