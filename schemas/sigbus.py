"""Has the handler of SIGBUS in place that `mapped_ranges` needs, in front of those of others."""

import ctypes
import os
import signal
from collections.abc import Iterator
from threading import Lock
from typing import Any

from fieldslab.schemas import sigbus_code
from fieldslab.schemas.mapped_ranges import FIRST_HANDLER, HANDLERS, MOST_HANDLERS, memory, table
from fieldslab.schemas.system import call_after_fork, load_libc

VARIABLE = "FIELDSLAB_SIGBUS_GUARD"
"""Set to 0 in the environment, it leaves SIGBUS alone."""


class _Guard:
    """Has the handler in place, in front of those that others put there."""

    def __init__(self) -> None:
        unwanted = os.environ.get(VARIABLE) == "0" or _libc is None
        self._layout = None if unwanted else sigbus_code.find_layout()
        self._ours: Any = None
        self._owner: Any = None
        self._handler = 0
        self.after_fork()

    def after_fork(self) -> None:
        """Start with a new lock in a forked child."""
        self._lock = Lock()

    def arm(self) -> None:
        """Put the handler in front, if it is not there: the first call compiles it."""
        if self._layout is None:
            return
        with self._lock:
            if self._ours is None:
                self._compile(self._layout)
            current = ctypes.create_string_buffer(self._layout.action)
            _sigaction(signal.SIGBUS, None, current)
            before = ctypes.c_int64.from_buffer(current).value
            if before != self._handler:
                self._push(before)
                _sigaction(signal.SIGBUS, self._ours, None)

    def _compile(self, layout: sigbus_code.SystemLayout) -> None:
        self._default = ctypes.create_string_buffer(layout.action)
        names = ("mmap", "sigaction", "raise")
        calls = {
            name: ctypes.cast(getattr(_libc, name), ctypes.c_void_p).value or 0 for name in names
        }
        default = ctypes.addressof(self._default)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._handler, self._owner = sigbus_code.compile_handler(layout, address, default, calls)
        self._ours = ctypes.create_string_buffer(layout.action)
        ctypes.c_int64.from_buffer(self._ours).value = self._handler
        ctypes.c_int32.from_buffer(self._ours, layout.flags).value = layout.chosen

    def _push(self, handler: int) -> None:
        """Note the handler that is in front as the one to call next: each stands there once."""
        others = [each for each in self._list_handlers() if each != handler]
        # The oldest stays: it is what the system, or the program, wants in the end.
        handlers = [*others[:1], *others[1:][-MOST_HANDLERS + 2 :], handler]
        for place, each in enumerate(handlers, FIRST_HANDLER):
            table[place] = each
        table[HANDLERS] = len(handlers)

    def _list_handlers(self) -> Iterator[int]:
        return (table[FIRST_HANDLER + index] for index in range(table[HANDLERS]))


_libc = load_libc()
_sigaction: Any = getattr(_libc, "sigaction", None)
guard = _Guard()
"""The one of this process."""
call_after_fork(guard.after_fork)
