"""Files of a slab as they are opened and read: below the descriptor of their directory.

A path may lead elsewhere from one moment to the next; a descriptor does not. What the system says
becomes a named error here: what is missing or is no file is damage, a link or a lack of
permission is NotASlab, and whatever else fails is Unreadable.
"""

import errno
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fieldslab.schemas.errors import (
    Damaged,
    DamagedArray,
    FieldslabError,
    NotASlab,
    SlabDenied,
    Unreadable,
)
from fieldslab.schemas.mapped_ranges import Watch
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.system import (
    DIRECTORY,
    HAS_DIRECTORY_DESCRIPTORS,
    NO_FOLLOW,
    READ,
    lock_shared,
    read_into,
)

RESTORE = (
    "`fieldslab repair` restores it from a copy of the slab or from its source. "
    "Or pack the slab again."
)
_DISK = "The disk or the file system fails: try again, or copy the slab elsewhere."
_RIGHTS = "Check the permissions of the slab's folders and files."
_LINKS = (
    "A link may lead out of the slab, so none is followed unless you say so: "
    f"{mark_option('follow_links', True)}. `cp -RL SLAB COPY` makes a copy without links."
)
_FULL = (errno.EMFILE, errno.ENFILE)


class RemoteDescriptor(int, ABC):
    """What stands for the descriptor of a file on another machine.

    `read_exactly` and `read_bytes` read by it. The system knows no descriptor of this number, so
    every call of the system fails with EBADF, as for a file that does not support it.
    """

    def __new__(cls, *_: object) -> "RemoteDescriptor":
        """Make one; arguments are for `__init__`."""
        return super().__new__(cls, -1)

    @abstractmethod
    def read_into(self, view: memoryview, offset: int) -> None:
        """Fill `view` with the bytes from `offset` on. Raises Unreadable."""

    @abstractmethod
    async def read_range(self, start: int, stop: int) -> memoryview:
        """Read bytes `start` to `stop` in an event loop, many at a time. Raises Unreadable."""


class OpenFolder:
    """A directory held open; what is in it is opened below it, whatever becomes of its path.

    Attributes
    ----------
    path
        Where it was, for messages.
    fd
        Its descriptor.
    follow_links
        Whether what is in it may be links.
    watch
        What is told of files that change while they are mapped.
    """

    def __init__(
        self, path: Path, fd: int, follow_links: bool = False, watch: Watch | None = None
    ) -> None:
        self.path = path
        self.fd = fd
        self.follow_links = follow_links
        self.watch = watch

    @contextmanager
    def open_file(
        self, name: str, damaged: type[Damaged] = DamagedArray, field: str | None = None
    ) -> Iterator[tuple[int, int]]:
        """Open a regular file for a `with` block: its descriptor and size.

        Raises
        ------
        Damaged
            It is missing, or not a regular file: an error of the class given.
        NotASlab
            It is a link, or may not be read.
        Unreadable
            The disk fails.
        """
        path = self.path / name
        try:
            fd = os.open(name, READ | self._link_flag, dir_fd=self.fd)
        except OSError as error:
            raise make_opening_error(error, path, damaged, field) from error
        try:
            yield fd, measure_regular_file(fd, path, damaged, field)
        finally:
            close_quietly(fd)

    def list_names(self) -> list[str]:
        """List what is in it. Raises Unreadable."""
        try:
            return os.listdir(self.fd)
        except OSError as error:
            raise make_unreadable_error(error, self.path) from error

    def find_size(self, name: str) -> int | None:
        """Return the size of a file in bytes; None if the system does not tell."""
        with suppress(OSError):
            return self.get_info(name).st_size
        return None

    def get_info(self, name: str) -> os.stat_result:
        """Return what the system says of a file. Raises OSError."""
        return os.stat(name, dir_fd=self.fd, follow_symlinks=self.follow_links)

    @contextmanager
    def open_folder(self, name: str) -> Iterator["OpenFolder"]:
        """Open a directory in this one for a `with` block. Raises the errors of `open_file`."""
        path = self.path / name
        try:
            fd = os.open(name, READ | DIRECTORY | self._link_flag, dir_fd=self.fd)
        except OSError as error:
            raise self._make_folder_error(error, name) from error
        try:
            yield OpenFolder(path, fd, self.follow_links)
        finally:
            close_quietly(fd)

    def is_at(self, path: str) -> bool:
        """Return True if a path leads to this directory."""
        try:
            return os.path.samestat(os.stat(path), os.fstat(self.fd))
        except OSError:
            return False

    def lock_for_reading(self) -> None:
        """Tell packers that this directory is being read, until the descriptor is closed.

        A shared lock, which children share. `pack --force` leaves a directory alone that it has
        replaced while somebody holds it. Where a file system has no locks, nobody is told.
        """
        with suppress(OSError):
            lock_shared(self.fd)

    @property
    def _link_flag(self) -> int:
        return 0 if self.follow_links else NO_FOLLOW

    def _make_folder_error(self, error: OSError, name: str) -> FieldslabError:
        path = self.path / name
        if error.errno in (errno.ENOTDIR, errno.ELOOP):  # a link, or no directory: systems differ
            with suppress(OSError):
                if stat.S_ISLNK(os.lstat(name, dir_fd=self.fd).st_mode):
                    return make_link_error(path)
                return DamagedArray("is not a directory", file=path, hint=RESTORE)
        return make_opening_error(error, path, DamagedArray)


def close_quietly(fd: int) -> None:
    """Close what was only read: it is closed even where the system says that it failed."""
    with suppress(OSError):
        os.close(fd)


def read_status(fd: int, path: Path) -> os.stat_result:
    """Return what the system says of an open file or directory. Raises Unreadable."""
    try:
        return os.fstat(fd)
    except OSError as error:
        raise make_unreadable_error(error, path) from error


def measure_regular_file(fd: int, path: Path, damaged: type[Damaged], field: str | None) -> int:
    """Return the size of an open file. Raises `damaged` for no regular file, and Unreadable."""
    try:
        info = os.fstat(fd)
    except OSError as error:
        raise make_unreadable_error(error, path, field=field) from error
    if not stat.S_ISREG(info.st_mode):
        raise damaged("is not a regular file", file=path, field=field, hint=RESTORE)
    return info.st_size


def make_link_error(path: Path, field: str | None = None) -> NotASlab:
    """Make the error for a link inside a slab."""
    return NotASlab(
        "is a link, and links in a slab are not followed", file=path, field=field, hint=_LINKS
    )


def make_opening_error(
    error: OSError, path: Path, damaged: type[Damaged], field: str | None = None
) -> FieldslabError:
    """Make the error for a part of a slab that cannot be opened."""
    if error.errno == errno.ELOOP:
        return make_link_error(path, field)
    if isinstance(error, PermissionError):
        return SlabDenied("no permission to read it", file=path, field=field, hint=_RIGHTS)
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENXIO):
        problem = f"cannot be opened: {error.strerror}"
        return damaged(problem, file=path, field=field, hint=RESTORE)
    return make_unreadable_error(error, path, field=field)


def make_unreadable_error(
    error: OSError,
    path: Path,
    *,
    field: str | None = None,
    offset: int | None = None,
    row: str | None = None,
) -> Unreadable:
    """Make the error for a disk that fails, at `offset` of a file."""
    hint = "The limit of open files is `ulimit -n`." if error.errno in _FULL else _DISK
    return Unreadable(
        f"cannot be read: {error.strerror or error}",
        errno=error.errno,
        file=path,
        field=field,
        row=row,
        offset=offset,
        hint=hint,
    )


def read_exactly(
    fd: int, view: memoryview, offset: int, path: Path, field: str | None = None
) -> None:
    """Fill `view` with the bytes of a file from `offset` on, however many calls that takes.

    Raises Unreadable where reading fails, or the file ends too early.
    """
    if isinstance(fd, RemoteDescriptor):
        fd.read_into(view, offset)
        return
    while view:
        try:
            count = read_into(fd, view, offset)
        except OSError as error:
            raise make_unreadable_error(error, path, field=field, offset=offset) from error
        if not count:
            raise Unreadable(
                "the file ends too early",
                file=path,
                field=field,
                offset=offset,
                expected=f"{len(view)} more bytes",
                hint=_DISK,
            )
        view, offset = view[count:], offset + count


def read_bytes(fd: int, size: int, offset: int, path: Path, field: str | None = None) -> bytearray:
    """Read `size` bytes of a file from `offset` on. Raises Unreadable as `read_exactly` does."""
    data = bytearray(size)
    read_exactly(fd, memoryview(data), offset, path, field)
    return data


def sync_directory(folder: Path) -> None:
    """Make the names in a directory durable, where the system can do that."""
    if not HAS_DIRECTORY_DESCRIPTORS:
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        close_quietly(fd)
