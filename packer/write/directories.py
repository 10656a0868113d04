"""What commit needs of directories: a lock on one, names made durable, two of them swapped."""

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fieldslab.schemas.errors import Busy, OutputError, OutputExists
from fieldslab.schemas.files import close_quietly

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_RENAME_SWAP = 2
_NO_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def lock_directory(folder: Path) -> int:
    """Create a directory, unless it is there, and lock it: a descriptor, to be closed.

    The lock ends with the process that holds it, however that ends.

    Raises
    ------
    Busy
        Another process holds the lock.
    OutputExists
        Something else has this name.
    OutputError
        The file system has no locks.
    """
    while True:
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise OutputExists(
                "is in the way",
                file=folder,
                expected="a directory, or nothing",
                hint="Remove it yourself, or choose another output.",
            )
        folder.mkdir(exist_ok=True)
        try:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue  # its holder has just finished and removed it
        try:
            _acquire_lock(fd, folder)
            if folder.exists() and os.path.samestat(os.fstat(fd), os.stat(folder)):
                return fd
        except BaseException:
            close_quietly(fd)
            raise
        close_quietly(fd)


@contextmanager
def try_lock(folder: Path) -> Iterator[bool]:
    """Yield True if no process holds a directory; none can until the end of the block."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        yield True
        return
    free = True
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            free = False
        except OSError:
            pass  # a file system without locks: readers are told that the slab was replaced
        yield free
    finally:
        close_quietly(fd)


def swap_directories(first: Path, second: Path) -> bool:
    """Exchange two directories at once; False where the system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    paths = os.fsencode(first), os.fsencode(second)
    if hasattr(libc, "renameat2"):  # Linux
        failed = libc.renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE)
    elif hasattr(libc, "renamex_np"):  # macOS
        failed = libc.renamex_np(*paths, _RENAME_SWAP)
    else:
        return False
    if not failed:
        return True
    number = ctypes.get_errno()
    if number in _NO_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), str(second))


def remove_path(path: Path) -> None:
    """Remove a file, a link or a directory with all that is in it; nothing, if it is not there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _acquire_lock(fd: int, folder: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        hint = "Wait until it is done."
        raise Busy("another packer is writing here", file=folder, hint=hint) from None
    except OSError as error:
        raise OutputError(
            f"cannot be locked: {error.strerror}",
            file=folder,
            hint="Pack to a file system that has locks, and copy the slab from there.",
        ) from error
