"""The helper process, seen from the process that reads.

There is one for all mirrors that a process reads, from the first block that is absent on. It is
started anew after it died, and after a fork; it ends when the last mirror is closed.
"""

import atexit
import itertools
import os
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing import spawn
from weakref import finalize

from fieldslab.schemas.cancelling import check_cancelled
from fieldslab.schemas.errors import WorkerDied
from fieldslab.schemas.mirror.messages import (
    LENGTH,
    Answer,
    Detach,
    Request,
    decode_answer,
    encode_frame,
)

_CODE = (
    "import sys; sys.path[:] = {path!r}; "
    "from fieldslab.schemas.mirror.helper import main; main({descriptor}, {parent})"
)
_LOOK = 0.1
"""Seconds between checks whether the result is still wanted."""
_PATIENCE = 1.0
"""Seconds that the process has to end by itself."""


class HelperDied(Exception):
    """The helper ended before it answered; another one may be asked."""


class Ticket:
    """A request under way."""

    def __init__(self, done: Callable[[], None] | None = None) -> None:
        """`done` is called when the answer is there, in another thread."""
        self._answer: Answer | None = None
        self._event = threading.Event()
        self._done = done

    def finish(self, answer: Answer | None) -> None:
        """Take the answer; None if there will be none."""
        self._answer = answer
        self._event.set()
        if self._done is not None:
            self._done()

    def wait(self) -> Answer:
        """Wait for the answer. Raises HelperDied, and Cancelled if it is no longer wanted."""
        while not self._event.wait(_LOOK):
            check_cancelled()
        if self._answer is None:
            raise HelperDied
        return self._answer


class _Tickets:
    """Requests under way, by number; none is taken once the connection is closed."""

    def __init__(self) -> None:
        self.by_number: dict[int, Ticket] = {}
        self.closed = False

    def finish(self, answer: Answer) -> None:
        """Hand over an answer; the ticket, which may hold a slab, is gone when this returns."""
        ticket = self.by_number.pop(answer.request, None)
        if ticket is not None:
            ticket.finish(answer)

    def close(self) -> None:
        """Tell all waiting threads that no answer will come."""
        self.closed = True
        while self.by_number:
            with suppress(KeyError):
                self.by_number.popitem()[1].finish(None)


class HelperProcess:
    """The process; any number of threads may ask it. It ends when nobody holds this object."""

    def __init__(self) -> None:
        """Start it. Raises WorkerDied where the system refuses."""
        own_socket, helper_socket = socket.socketpair()
        code = _CODE.format(
            path=_list_import_paths(), descriptor=helper_socket.fileno(), parent=os.getpid()
        )
        try:
            child = subprocess.Popen(
                [os.fsdecode(spawn.get_executable()), "-I", "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[helper_socket.fileno()],
                process_group=0,  # Ctrl-C is for the program
            )
        except OSError as error:
            own_socket.close()
            raise WorkerDied(f"the helper process cannot be started: {error}") from error
        finally:
            helper_socket.close()
        self.pid = child.pid
        self._child = child
        self._socket = own_socket
        self._tickets = _Tickets()
        self._numbers = itertools.count()
        self._sending = threading.Lock()
        self._detached = deque[int]()
        # The collector only hangs up, since it may run anywhere; the thread below waits.
        self._finalizer = finalize(self, _hang_up, own_socket)
        self._finalizer.atexit = False
        self._at_exit = partial(_end_process, child, own_socket)
        atexit.register(self._at_exit)
        threading.Thread(
            target=_receive_answers,
            args=(own_socket, self._tickets, child, self._at_exit),
            name="fieldslab-helper",
            daemon=True,
        ).start()

    def ask(self, make: Callable[[int], Request], done: Callable[[], None] | None = None) -> Ticket:
        """Send the request that `make` makes of its number; see `Ticket` for `done`.

        Raises HelperDied, and TypeError where the request holds what cannot be sent.
        """
        number, ticket = next(self._numbers), Ticket(done)
        frame = encode_frame(make(number))
        self._tickets.by_number[number] = ticket
        try:
            with self._sending:
                self._send_detached()
                self._socket.sendall(frame)
            self._try_send_detached()  # what came while the lock was held
            if not self._tickets.closed:
                return ticket
        except OSError:
            pass
        if self._tickets.by_number.pop(number, None) is None:
            return ticket  # it was told already
        raise HelperDied

    def say(self, message: Request) -> None:
        """Send what has no answer, unless that takes waiting: the collector may be calling."""
        if self._sending.acquire(blocking=False):
            try:
                with suppress(OSError):
                    self._socket.sendall(encode_frame(message))
            finally:
                self._sending.release()

    def detach(self, slab: int) -> None:
        """Tell the helper that a slab is no longer read; with the next request if one is sent now.

        The collector may call this anywhere, also in a thread that holds the lock.
        """
        self._detached.append(slab)
        self._try_send_detached()

    def _try_send_detached(self) -> None:
        while self._detached and self._sending.acquire(blocking=False):
            try:
                with suppress(OSError):
                    self._send_detached()
            finally:
                self._sending.release()

    def _send_detached(self) -> None:
        while self._detached:
            self._socket.sendall(encode_frame(Detach(self._detached.popleft())))

    def hang_up(self) -> None:
        """Have the process end, without waiting for it."""
        self._finalizer()

    def explain_death(self) -> str:
        """Return how the process ended."""
        try:
            status = self._child.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            return "it closed its connection"
        return f"exit status {status}" if status >= 0 else f"signal {-status}"

    def abandon(self) -> None:
        """Forget it in a forked child: it belongs to the parent."""
        self._finalizer.detach()
        atexit.unregister(self._at_exit)
        self._child.returncode = 0  # it is not waited for here
        self._socket.close()


class Connection:
    """The way to the helper, shared by all mirrors of this process."""

    def __init__(self) -> None:
        self._process: HelperProcess | None = None
        self._users = set[int]()
        self._lock = threading.RLock()  # the collector may call `remove_user` anywhere

    def add_user(self, slab: int) -> None:
        """Add a mirror, by its number."""
        with self._lock:
            self._users.add(slab)

    def remove_user(self, slab: int) -> None:
        """Remove a mirror; the helper ends with the last one."""
        with self._lock:
            self._users.discard(slab)
            if not self._users and self._process is not None:
                self._process.hang_up()
                self._process = None
            elif self._process is not None:
                self._process.detach(slab)

    def get_process(self, dead: HelperProcess | None = None) -> HelperProcess:
        """Return the process, started if there is none, or `dead` is the one there was."""
        with self._lock:
            if self._process is None or self._process is dead:
                self._process = HelperProcess()
            return self._process

    def after_fork(self) -> None:
        """Start over in a forked child."""
        self._lock = threading.RLock()
        process, self._process = self._process, None
        if process is not None:
            process.abandon()


CONNECTION = Connection()
os.register_at_fork(after_in_child=CONNECTION.after_fork)


def _receive_answers(
    connection: socket.socket,
    tickets: _Tickets,
    child: "subprocess.Popen[bytes]",
    at_exit: Callable[[], None],
) -> None:
    """Hand answers to waiting threads until the connection ends; then wait for the process."""
    with suppress(OSError, EOFError):
        while True:
            (size,) = LENGTH.unpack(_receive_exactly(connection, LENGTH.size))
            tickets.finish(decode_answer(_receive_exactly(connection, size)))
    tickets.close()
    _end_process(child, connection)
    atexit.unregister(at_exit)  # it holds the connection
    connection.close()


def _receive_exactly(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = connection.recv_into(view)
        if not count:
            raise EOFError
        view = view[count:]
    return data


def _hang_up(connection: socket.socket) -> None:
    """Have the process end, without waiting for it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _end_process(child: "subprocess.Popen[bytes]", connection: socket.socket) -> None:
    """Have the process end, and wait for it."""
    _hang_up(connection)
    try:
        child.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _list_import_paths() -> list[str]:
    """Where the helper finds fieldslab and its libraries.

    Neither the working directory nor that of the program is among them: a file there could have the
    name of a library.
    """
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    unwanted = {os.getcwd(), "" if program is None else os.path.dirname(os.path.abspath(program))}
    paths = [path for path in sys.path if path and os.path.abspath(path) not in unwanted]
    return [*dict.fromkeys([*paths, *map(os.path.dirname, sys.modules["fieldslab"].__path__)])]
