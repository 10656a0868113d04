"""A loader's process, and the program's side of it.

Threads that prepare batches share the interpreter with the training step, which waits for its lock
whenever one of them runs Python. With `isolate=True` they run in one other process, which writes
batches into memory that both map: see `arena`. The program says how many batches may be made and
which memory it has let go; the process answers with batches, in order.
"""

import copy
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from io import BytesIO
from multiprocessing import process, spawn
from multiprocessing.connection import Connection, Pipe
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import finalize, ref

import numpy as np

from fieldslab.reader import forks
from fieldslab.reader.buffers import LeaseOwner
from fieldslab.reader.loading.arena import Arena, ArenaRange, create_arena_file, load_value
from fieldslab.reader.loading.epoch_plan import EpochPlan
from fieldslab.reader.loading.stats import PreparedBatch, Stopwatch
from fieldslab.reader.orders.order import Order
from fieldslab.reader.slab import Slab
from fieldslab.reader.transforms.transform import takes_tensors
from fieldslab.schemas.errors import FieldslabError, UsageError, WorkerDied

if TYPE_CHECKING:
    from fieldslab.reader.tensor_batch import ToTensors

_CODE = "import sys; sys.path[:] = {path!r}; from fieldslab.reader.loading.child import main; "
_CODE += "main({connection}, {arena}, {permits})"
_GUARD = 'Put what the program does below `if __name__ == "__main__":`.'
_MODULE = "Define functions at the top of a module, not in another function or a notebook."


class EpochRequest(NamedTuple):
    """What the process needs for an iteration."""

    slab: bytes
    loader: bytes
    plan: EpochPlan
    threads: int


class ProcessFailure(NamedTuple):
    """An error of the process: pickled if it can be, and in words."""

    error: bytes | None
    name: str
    text: str
    notes: list[str]
    traceback: str


class ChildTraceback(Exception):
    """Where the loader's process raised the error whose cause this is."""

    def __str__(self) -> str:
        return f"in the loader's process:\n\n{self.args[0]}"


class Leases:
    """Which arrays of the arena the program holds; the process sees it in the arena's slots."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._held: dict[int, tuple[ref[LeaseOwner], int]] = {}
        self._forked = False
        forks.register_for_forks(self)

    def add_lease(self, reference: ArenaRange, slot: int) -> LeaseOwner:
        """Return an array's memory, which is free again when the program releases it."""
        shape = (reference.nbytes,)
        owner = LeaseOwner(shape, np.dtype(np.uint8), self._arena.map, reference.offset)
        lease = ref(owner, self._free_slot)
        self._held[id(lease)] = lease, slot
        return owner

    def after_fork(self) -> None:
        """Forget all leases in a forked child: its parent may still hold them."""
        self._forked = True

    def _free_slot(self, lease: "ref[LeaseOwner]") -> None:
        _, slot = self._held.pop(id(lease))
        if not self._forked:
            self._arena.slots[slot] = 0


class LoaderProcess:
    """The process. It ends when nobody holds this object, and with the program."""

    def __init__(self) -> None:
        """Start it. Raises WorkerDied where the system refuses."""
        try:
            self._start()
        except OSError as error:
            raise WorkerDied(
                f"the loader's process cannot be started: {error.strerror or error}",
                hint="Leave `isolate` out, or raise the limit of processes (`ulimit -u`) or of "
                "open files (`ulimit -n`).",
            ) from error
        self._window = 0
        self.forked = False
        forks.register_for_forks(self)

    def _start(self) -> None:
        with ExitStack() as always, ExitStack() as failed:
            self._connection: Connection[Any, Any]
            self._connection, child_connection = Pipe()
            always.callback(child_connection.close)
            failed.callback(self._connection.close)
            file = create_arena_file()
            always.callback(os.close, file)
            self._leases = Leases(Arena(file))
            # It counts batches that may be made; a thread that waits for it needs no lock.
            self._permits = os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_CLOEXEC)
            failed.callback(os.close, self._permits)
            numbers = {
                "connection": child_connection.fileno(),
                "arena": file,
                "permits": self._permits,
            }
            code = _CODE.format(path=sys.path, **numbers)
            self._child = subprocess.Popen(
                [os.fsdecode(spawn.get_executable()), "-u", "-c", code],
                stdin=subprocess.DEVNULL,
                pass_fds=list(numbers.values()),
                process_group=0,  # Ctrl-C is for the program
            )
            failed.pop_all()
        self.pid = self._child.pid
        self._finalizer = finalize(
            self, _kill_process, self._child, self._connection, self._permits
        )

    @property
    def usable(self) -> bool:
        """Whether it waits for work."""
        return not self.forked and self._finalizer.alive and self._child.poll() is None

    def start_epoch(self, epoch: EpochRequest) -> None:
        """Start an epoch."""
        about = spawn.get_preparation_data("fieldslab-loader")
        unwanted = {"authkey"}  # refuses to be pickled
        if b"__main__" not in epoch.loader:  # the program is not run again for nothing
            unwanted |= {"init_main_from_name", "init_main_from_path"}
        about = {name: value for name, value in about.items() if name not in unwanted}
        self._send_message(("set_up_interpreter", about))
        self._send_message(("start_epoch", epoch))

    def widen_window(self, window: int) -> None:
        """Let the threads be so many messages ahead. What an epoch leaves is for the next one."""
        if window > self._window:
            os.eventfd_write(self._permits, window - self._window)
            self._window = window

    def receive_batches(self) -> "list[PreparedBatch | ProcessFailure]":
        """Receive the next batches; their memory is shared. Raises WorkerDied."""
        try:
            message = pickle.loads(self._connection.recv_bytes())  # noqa: S301 - of our own child
        except (EOFError, OSError):
            raise self._make_death_error() from None
        if self._finalizer.alive:  # another thread may close it meanwhile
            os.eventfd_write(self._permits, 1)
        if isinstance(message, ProcessFailure):
            return [message]
        payload, references, slots = message
        outcomes: list[PreparedBatch | ProcessFailure]
        outcomes = load_value(payload, map(self._leases.add_lease, references, slots))
        return outcomes

    def kill(self) -> None:
        """Kill the process, and wait for its end."""
        self._finalizer()

    def after_fork(self) -> None:
        """Forget the process in a forked child: it belongs to the parent alone."""
        self.forked = True
        if self._finalizer.detach() is None:
            return  # it was killed before: its descriptors may be another's by now
        self._child.returncode = 0  # it is not waited for here
        self._connection.close()
        os.close(self._permits)

    def _send_message(self, message: Any) -> None:
        with suppress(OSError):  # `receive_batches` says why
            self._connection.send_bytes(pickle.dumps(message))

    def _make_death_error(self) -> FieldslabError:
        if not self._finalizer.alive:
            return UsageError("this iteration was closed", hint="Start a new one.")
        try:
            status = self._child.wait(5)
        except subprocess.TimeoutExpired:
            return WorkerDied("the loader's process closed its connection")
        if status >= 0:
            hint = "Its last messages are on standard error."
            return WorkerDied(
                "the loader's process ended", found=f"exit status {status}", hint=hint
            )
        number = signal.Signals(-status)
        hint = "Its last messages are on standard error."
        if number == signal.SIGKILL:
            hint = "If memory was short, lower `batch_size`, `prefetch` or `threads`."
        return WorkerDied("the loader's process was killed", found=number.name, hint=hint)


class IsolatedWorkers:
    """The batches of an epoch, made by a process; see `Workers`."""

    def __init__(
        self,
        slab: Slab,
        loader: Any,
        plan: EpochPlan,
        threads: int,
        window: int,
        convert: "ToTensors | None",
        idle: list[LoaderProcess],
    ) -> None:
        """Use the process that waits in `idle`, or start one; put it there after the epoch.

        `loader` makes the batches there: it is pickled. `convert` is for this side.
        """
        _check_current_process()
        epoch = EpochRequest(pickle.dumps(slab), _dump_loader(loader, slab), plan, threads)
        while idle and not idle[-1].usable:
            idle.pop()
        self._process: LoaderProcess | None = idle.pop() if idle else LoaderProcess()
        self._idle = idle
        self._convert = convert
        self._left = plan.batch_count
        self._process.start_epoch(epoch)
        self._process.widen_window(window)
        self._ready: list[PreparedBatch | ProcessFailure] = []  # the next one comes last

    def get_next(self) -> PreparedBatch:
        """Return the next batch. Raises StopIteration when all were taken."""
        child = self._process
        if self._left == 0:
            if child is not None and not self._idle:
                self._idle.append(child)
            self._process = None
            raise StopIteration
        if child is None:
            raise UsageError("this iteration was closed", hint="Start a new one.")
        if child.forked:
            raise UsageError(
                "the process was forked while this iteration ran",
                hint="Start a new one in the child: iter(loader).",
            )
        if not self._ready:
            self._ready = child.receive_batches()[::-1]
        prepared = self._ready.pop()
        if isinstance(prepared, ProcessFailure):
            raise _restore_error(prepared)
        self._left -= 1
        if self._convert is None:
            return prepared
        watch = Stopwatch()
        batch = self._convert(prepared.batch)
        watch.record_stage("convert")
        stages = prepared.stages
        stages["convert"] = stages.get("convert", 0.0) + watch.stages["convert"]
        return prepared._replace(batch=batch)

    def close(self) -> None:
        """End the process, unless it finished the epoch."""
        child, self._process = self._process, None
        self._ready = []
        if child is not None and not child.forked:
            child.kill()


def check_isolation(order: Order, transforms: Sequence[Any], prefetch: int) -> None:
    """Raise UsageError if a loader of these cannot make its batches in another process."""
    if prefetch == 0:
        hint = "Give prefetch=1 or more."
        raise UsageError("`isolate` makes batches ahead of time", found="prefetch=0", hint=hint)
    parts = {"order": order} | {
        f"transforms[{number}]": transform for number, transform in enumerate(transforms)
    }
    for name, part in parts.items():
        try:
            pickle.dumps(part)
        except Exception as error:
            raise UsageError(
                f"`{name}` cannot be pickled, and `isolate` sends it to another process",
                found=f"{part!r}: {error}",
                hint=_MODULE,
            ) from error


class _LoaderPickler(pickle.Pickler):
    """Leaves out the slab, which stays open in the process from one epoch to the next."""

    def __init__(self, file: BytesIO, slab: Slab) -> None:
        super().__init__(file, 5)
        self._storage = slab.storage

    def persistent_id(self, value: Any) -> Any:
        return value.view if isinstance(value, Slab) and value.storage is self._storage else None


def _dump_loader(loader: Any, slab: Slab) -> bytes:
    """Pickle a copy of a loader; without torch if no transform takes tensors."""
    sent, file = copy.copy(loader), BytesIO()
    sent.isolate = False
    if loader._convert is not None:
        tensors = any(map(takes_tensors, loader._transforms))
        sent._convert = loader._convert.copy_without_pin() if tensors else None
    try:
        _LoaderPickler(file, slab).dump(sent)
    except Exception as error:
        raise UsageError(
            "the loader cannot be pickled, and `isolate` sends it to another process",
            found=str(error),
            hint=_MODULE,
        ) from error
    return file.getvalue()


def _check_current_process() -> None:
    """Raise UsageError where no process should be started."""
    if getattr(process.current_process(), "_inheriting", False):
        problem = (
            "the program started again in the loader's process, which imports it for `transforms`"
        )
        raise UsageError(problem, hint=_GUARD)
    if process.current_process().daemon:
        raise UsageError(
            "`isolate` cannot be used in a worker process, such as one of a DataLoader",
            hint="Leave `isolate` out: a worker does not share its interpreter with training.",
        )


def _restore_error(failure: ProcessFailure) -> BaseException:
    """Restore a raised error with its notes, or a RuntimeError if it could not be pickled."""
    error: BaseException
    try:
        if failure.error is None:
            raise pickle.UnpicklingError
        error = pickle.loads(failure.error)  # noqa: S301 - of our own child
    except Exception:  # noqa: BLE001 - whatever the user's classes raise
        error = RuntimeError(f"{failure.name}: {failure.text}")
    error.__notes__ = failure.notes
    error.__cause__ = ChildTraceback(failure.traceback)
    return error


def _kill_process(
    child: "subprocess.Popen[bytes]", connection: "Connection[Any, Any]", permits: int
) -> None:
    child.kill()
    child.wait()
    connection.close()  # only now: a thread may wait for it, and hears of the end
    os.close(permits)
