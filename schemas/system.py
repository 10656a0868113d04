"""What systems do differently: POSIX has descriptors of directories, locks and limits, Windows not.

fieldslab is tested on Linux. On Windows, where only the reader is meant to work, it is not tested.
"""

import ctypes
import importlib
import mmap
import os
import threading
from collections.abc import Callable
from typing import Any


def _import_or_none(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_fcntl = _import_or_none("fcntl")
_resource = _import_or_none("resource")

HAS_DIRECTORY_DESCRIPTORS = hasattr(os, "O_DIRECTORY") and os.open in os.supports_dir_fd
"""Whether a directory can be held open, and files be opened below its descriptor."""
HAS_LOCKS = _fcntl is not None
"""Whether files can be locked."""
READ = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
"""Flags to open a file to be read: no pipe blocks, no child inherits it, no byte is translated."""
CAN_ADVISE_PAGES = hasattr(mmap, "MADV_WILLNEED")
"""Whether the system can be asked which pages of a map are in memory, and to read some."""
DIRECTORY = getattr(os, "O_DIRECTORY", 0)
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)

_reading = threading.Lock()


def load_libc() -> Any:
    """Load the C library of this process; None on Windows, which has several."""
    try:
        return ctypes.CDLL(None, use_errno=True)
    except TypeError:
        return None


def read_into(fd: int, view: memoryview, offset: int) -> int:
    """Read bytes of a file from `offset` on into `view`; return how many. Threads may."""
    if hasattr(os, "preadv"):
        return os.preadv(fd, [view], offset)
    with _reading:
        os.lseek(fd, offset, os.SEEK_SET)
        data = os.read(fd, len(view))
    view[: len(data)] = data
    return len(data)


def lock_shared(fd: int) -> None:
    """Lock a file or a directory for reading, without waiting. Raises OSError."""
    if _fcntl is not None:
        _fcntl.flock(fd, _fcntl.LOCK_SH | _fcntl.LOCK_NB)


def lock_exclusive(fd: int) -> None:
    """Wait for the only lock on a file. Raises OSError."""
    if _fcntl is None:
        raise OSError("the system has no locks of files")
    _fcntl.flock(fd, _fcntl.LOCK_EX)


def try_lock_exclusive(fd: int) -> bool:
    """Take the only lock on a file, without waiting; False where another has it. Raises OSError."""
    if _fcntl is None:
        return False
    try:
        _fcntl.flock(fd, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def call_after_fork(function: Callable[[], Any]) -> None:
    """Have a function called in every forked child, where there are any."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def get_limit(name: str) -> tuple[int | None, int | None]:
    """Return a soft and a hard limit of this process, such as RLIMIT_NOFILE; None for no limit."""
    if _resource is None:
        return None, None
    limits = _resource.getrlimit(getattr(_resource, name))
    soft, hard = (None if limit == _resource.RLIM_INFINITY else limit for limit in limits)
    return soft, hard


def raise_limit(name: str, soft: int) -> None:
    """Raise a soft limit of this process."""
    if _resource is not None:
        number = getattr(_resource, name)
        _resource.setrlimit(number, (soft, _resource.getrlimit(number)[1]))


def map_anonymous(
    size: int, *, shared: bool = False, reserved: bool = True, writable: bool = True
) -> mmap.mmap:
    """Map memory of zeros, which takes room as it is touched.

    With `shared`, forked children write into the same memory. Without `reserved`, the system
    need not have room for all of it.
    """
    if not hasattr(mmap, "MAP_ANONYMOUS"):  # Windows
        return mmap.mmap(-1, size)
    flags = mmap.MAP_ANONYMOUS | (mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE)
    flags |= 0 if reserved else getattr(mmap, "MAP_NORESERVE", 0)
    return mmap.mmap(-1, size, flags, mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0))
