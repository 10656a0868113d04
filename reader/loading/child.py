"""What runs in a loader's process: see `isolated`."""

import os
import pickle
import signal
import threading
import traceback
from collections import deque
from contextlib import suppress
from io import BytesIO
from itertools import count
from multiprocessing import process, spawn
from multiprocessing.connection import Connection
from typing import Any

from fieldslab.reader.loading.arena import SLOTS, Arena, SharedPool, dump_value
from fieldslab.reader.loading.groups import GroupMaker, choose_group_size
from fieldslab.reader.loading.isolated import EpochRequest, ProcessFailure
from fieldslab.reader.loading.loader import Loader
from fieldslab.reader.slab import Slab
from fieldslab.reader.views import View
from fieldslab.schemas.errors import UsageError


class BatchServer:
    """Makes batches as the program asks for them."""

    def __init__(self, connection: "Connection[Any, Any]", pool: SharedPool, permits: int) -> None:
        self._connection = connection
        self._pool = pool
        self._slab: Slab | None = None
        self._lock = threading.Lock()
        self._kept: dict[int, pickle.PickleBuffer] = {}  # by slot of the arena
        self._slots = deque(range(SLOTS))
        self.permits = permits

    def run(self) -> None:
        """Do what the program says. Raises EOFError when it is gone."""
        while True:
            kind, content = pickle.loads(self._connection.recv_bytes())  # noqa: S301 - our parent
            try:
                getattr(self, f"_{kind}")(content)
            except Exception as error:  # noqa: BLE001 - the program has to hear of it
                self.send_message(make_failure(error))

    def send_message(self, message: Any) -> None:
        """Send the program a message; one thread at a time."""
        self._connection.send_bytes(pickle.dumps(message, 5))

    def pack_outcomes(self, result: Any) -> Any:
        """Convert a batch to a message; its memory is kept until the program releases it."""
        states = self._pool.arena.slots
        with self._lock:
            for slot in [slot for slot in self._kept if not states[slot]]:
                del self._kept[slot]
                self._slots.append(slot)
        message = dump_value(result, self._pool)
        with self._lock:
            slots = [self._slots.popleft() for _ in message.kept]
            for slot, buffer in zip(slots, message.kept, strict=True):
                states[slot] = 1
                self._kept[slot] = buffer
        return message.payload, message.references, slots

    def _set_up_interpreter(self, preparation_data: dict[str, Any]) -> None:
        """Give this process the import paths and the main module of the program."""
        current: Any = process.current_process()
        current._inheriting = True
        try:
            spawn.prepare(preparation_data)
        finally:
            del current._inheriting

    def _start_epoch(self, epoch: EpochRequest) -> None:
        if self._slab is None:
            self._slab = pickle.loads(epoch.slab)  # noqa: S301 - our parent
            self._slab.storage.pool = self._pool
        loader = _LoaderUnpickler(epoch.loader, self._slab).load()
        _RunningEpoch(self, loader, epoch)


class _RunningEpoch:
    """The threads of an epoch. Whichever has the batches that come next sends them."""

    def __init__(self, server: BatchServer, loader: Loader, epoch: EpochRequest) -> None:
        self._server = server
        self._preparation = preparation = loader._make_preparation(epoch.plan)
        batches, size = epoch.plan.batch_count, choose_group_size(preparation)
        self._group = GroupMaker(preparation, size, batches) if size > 1 else None
        self._count = -(-batches // size)
        self._threads = min(epoch.threads, self._count)
        self._numbers = count()
        self._sent = 0
        self._ready: dict[int, Any] = {}
        self._lock = threading.Lock()
        for number in range(self._threads):
            name = f"fieldslab-loader-{number}"
            threading.Thread(target=self._run_thread, name=name, daemon=True).start()

    def _run_thread(self) -> None:
        permits = self._server.permits
        while True:
            os.eventfd_read(permits)
            number = next(self._numbers)
            if number >= self._count:
                return
            if number == self._count - 1:
                os.eventfd_write(permits, self._threads)  # so that all threads end
            message = self._make_message(number)
            with self._lock:
                self._ready[number] = message
                while self._sent in self._ready:
                    try:
                        self._server.send_message(self._ready.pop(self._sent))
                    except OSError:
                        return  # the program is gone, and `main` ends this process
                    self._sent += 1

    def _make_message(self, number: int) -> Any:
        try:
            make = self._group
            outcomes: list[Any] = [self._preparation(number)] if make is None else [*make(number)]
        except BaseException as error:  # noqa: BLE001 - the program has to hear of it
            return make_failure(error)
        if isinstance(outcomes[-1], Exception):
            outcomes[-1] = make_failure(outcomes[-1])
        try:
            return self._server.pack_outcomes(outcomes)
        except Exception as error:  # noqa: BLE001 - whatever the user's classes raise
            problem = UsageError(
                "the output of the transforms cannot be pickled, and `isolate` sends it to "
                "another process",
                found=str(error),
            )
            problem.add_note(f"in batch {number}")
            return make_failure(problem)


class _LoaderUnpickler(pickle.Unpickler):
    """Puts the slab that is open here where the program's was."""

    def __init__(self, payload: bytes, slab: Slab) -> None:
        super().__init__(BytesIO(payload))
        self._slab = slab

    def persistent_load(self, view: View) -> Slab:
        return Slab(self._slab.storage, view)

    def load(self) -> Loader:
        loader: Loader = super().load()
        return loader


def make_failure(error: BaseException) -> ProcessFailure:
    """Convert an error to a message; to text alone if it cannot be pickled faithfully."""
    pickled: bytes | None
    try:
        pickled = pickle.dumps(error)
        if type(pickle.loads(pickled)) is not type(error):  # noqa: S301 - just pickled
            pickled = None
    except Exception:  # noqa: BLE001 - whatever the user's classes raise
        pickled = None
    notes = list(getattr(error, "__notes__", ()))
    trace = "".join(traceback.format_exception(error))
    return ProcessFailure(pickled, type(error).__qualname__, str(error), notes, trace)


def main(connection: int, arena: int, permits: int) -> None:
    """Serve the program at the other end of a connection until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for file in (connection, arena, permits):
        os.set_inheritable(file, False)
    shared = Arena(arena)
    os.close(arena)
    with suppress(EOFError, OSError):
        BatchServer(Connection(connection), SharedPool(shared), permits).run()
    os._exit(0)  # whatever the threads are at
