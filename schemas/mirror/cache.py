"""A cache directory: whose it is, and how many bytes its mirrors may take."""

import fcntl
import json
import os
import shutil
import stat
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import finalize

from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.memory import count_available_bytes
from fieldslab.schemas.mirror.names import MARKER, ROOM, SIDE, name_cache_errors
from fieldslab.schemas.optiontext import mark_option

ENVIRONMENT = "FIELDSLAB_CACHE_DIR"
MEMORY = ":memory:"
"""Stands for a cache directory in memory."""
_SHARED_MEMORY = Path("/dev/shm")
_LEAST_MEMORY = 256 * 2**20
_USED = struct.Struct("<q")
_OWN = "Give a directory of its own, which need not exist yet."


def find_default_cache() -> Path:
    """Return the cache directory for slabs that are opened without one."""
    path = os.environ.get(ENVIRONMENT)
    if path:
        return Path(path)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fieldslab" / "slabs"


def find_memory_cache() -> tuple[Path, int] | None:
    """Return a cache directory in memory, and its limit: a quarter of the memory that is free.

    All processes of a user share it, and the last one removes it. None where there is no memory
    for it, as in containers with a small /dev/shm.
    """
    try:
        system = os.statvfs(_SHARED_MEMORY)
    except OSError:
        return None
    limit = min(count_available_bytes() // 4, system.f_bavail * system.f_frsize // 4 * 3)
    usable = os.access(_SHARED_MEMORY, os.W_OK) and limit >= _LEAST_MEMORY
    return (_SHARED_MEMORY / f"fieldslab-{os.getuid()}", limit) if usable else None


class CacheDirectory:
    """A directory of mirrors. Directories that are not caches are never written to."""

    def __init__(self, path: Path, *, shared: bool = False, temporary: bool = False) -> None:
        """Create the directory, or check that it is a cache.

        `shared` allows a directory that anybody may write into. One that is `temporary` is removed
        when the last process that opened it as temporary closes it.

        Raises
        ------
        UsageError
            It is no directory, holds something else, or anybody may write into it.
        OutputDenied, NoSpace, OutputError
            It cannot be written.
        """
        self.path = Path(os.path.abspath(path))
        self._lock = threading.Lock()
        self.temporary = temporary
        while True:
            with name_cache_errors(self.path), suppress(FileExistsError):
                self.path.mkdir(mode=0o700, parents=True)
            with name_cache_errors(self.path):
                self._check_owner(shared)
            self._open_files()
            self._finalizer = finalize(
                self, _close_cache, self.path, self._users, self._room, temporary
            )
            if not temporary:
                return
            fcntl.flock(self._users, fcntl.LOCK_SH)
            with suppress(OSError):
                if os.path.samestat(os.stat(self.path / MARKER), os.fstat(self._users)):
                    return
            self._finalizer.detach()  # the last one before us has just removed it
            os.close(self._users)
            os.close(self._room)

    @contextmanager
    def lock_room(self) -> Iterator[None]:
        """Be the only one on this machine that changes the bytes in use, for a `with` block."""
        with self._lock:
            fcntl.flock(self._room, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._room, fcntl.LOCK_UN)

    @contextmanager
    def try_lock_room(self) -> Iterator[bool]:
        """Do as `lock_room` does, if that takes no waiting; tell whether it could be done."""
        if not self._lock.acquire(blocking=False):
            yield False
            return
        try:
            try:
                fcntl.flock(self._room, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
                return
            try:
                yield True
            finally:
                fcntl.flock(self._room, fcntl.LOCK_UN)
        finally:
            self._lock.release()

    @property
    def used_bytes(self) -> int:
        """Bytes of all mirrors that are there or reserved."""
        data = os.pread(self._room, _USED.size, 0)
        return _USED.unpack(data)[0] if len(data) == _USED.size else 0

    def add_used_bytes(self, count: int) -> None:
        """Reserve bytes, or give them back; the caller holds `lock_room`."""
        self.set_used_bytes(max(self.used_bytes + count, 0))

    def set_used_bytes(self, count: int) -> None:
        """Say how many bytes are in use; the caller holds `lock_room`."""
        with name_cache_errors(self.path / ROOM):
            os.pwrite(self._room, _USED.pack(count), 0)

    def is_alone(self) -> bool:
        """Tell whether no other process uses the cache; the caller holds `lock_room`.

        Either way, this object counts as a user from then on, until it is closed.
        """
        alone = _try_lock(self._users)
        fcntl.flock(self._users, fcntl.LOCK_SH)
        return alone

    def list_mirrors(self) -> list[str]:
        """Return the `id` of every slab that has a mirror here, sorted."""
        names = (path.name for path in self.path.glob("*" + SIDE))
        return sorted(name.removesuffix(SIDE) for name in names)

    def remove_unfinished(self) -> None:
        """Remove what killed processes left; call it only while no other process uses the cache."""
        for path in self.path.glob(f"*{SIDE}/*.????????"):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with suppress(OSError):
                    path.unlink()

    def close(self, patience: float = 0.0) -> None:
        """Close the directory; wait at most this many seconds for processes that do the same."""
        deadline = time.monotonic() + patience
        while self.temporary and time.monotonic() < deadline and self._finalizer.alive:
            if _try_lock(self._users):
                break
            time.sleep(0.02)
        self._finalizer()

    def _open_files(self) -> None:
        marker, flags = self.path / MARKER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with name_cache_errors(marker):
            self._users = os.open(marker, flags, 0o666)
            if not os.fstat(self._users).st_size:
                os.pwrite(self._users, json.dumps({"format": "fieldslab cache"}).encode(), 0)
            self._room = os.open(self.path / ROOM, flags, 0o666)

    def _check_owner(self, shared: bool) -> None:
        info = os.stat(self.path)
        if not stat.S_ISDIR(info.st_mode):
            raise UsageError("the cache directory is not a directory", file=self.path, hint=_OWN)
        # In this sequence: another process may just be making its first files, the marker first.
        if os.listdir(self.path) and not (self.path / MARKER).exists():
            raise UsageError(
                f"{mark_option('cache_dir')} holds something else", file=self.path, hint=_OWN
            )
        if shared:
            return
        trusted = f"if you trust them, {mark_option('cache_shared', True)}."
        if info.st_mode & stat.S_IWOTH:
            raise UsageError(
                f"anybody may write into {mark_option('cache_dir')}",
                file=self.path,
                hint="Others could replace what you train on. `chmod o-w` it, or give a "
                f"directory of your own; {trusted}",
            )
        if os.geteuid() not in (0, info.st_uid) and info.st_uid != 0:
            raise UsageError(
                f"{mark_option('cache_dir')} belongs to another user",
                file=self.path,
                hint="They could replace what you train on. Give a directory of your own; "
                f"{trusted}",
            )


def _close_cache(path: Path, users: int, room: int, temporary: bool) -> None:
    """Close the files of a cache directory; remove a temporary one that nobody uses any more.

    Forked processes share the lock on `users`, which stays until the last of them closes it.
    """
    for fd in (users, room):
        with suppress(OSError):
            os.close(fd)
    if temporary:
        with suppress(OSError):
            marker = os.open(path / MARKER, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if _try_lock(marker):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(marker)


def _try_lock(fd: int) -> bool:
    """Take an exclusive lock, if nobody else has any."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
