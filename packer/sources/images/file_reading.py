"""Image files, read into memory many at a time: disks and stores answer slowly, but in parallel."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from fieldslab.packer.sources.images.image_files import ImageFiles, hash_version
from fieldslab.packer.sources.remote_file import RemoteFile
from fieldslab.schemas.errors import (
    ObjectNotFound,
    SourceChanged,
    SourceDenied,
    SourceUnreadable,
)
from fieldslab.schemas.files import close_quietly
from fieldslab.schemas.urls import hide_credentials

_THREADS = 8
_REQUESTS = 16
"""Objects of a store that are read at a time."""
_LEAST_FILES = 8
"""Files on a disk that a thread reads at least: to hand over a single one takes as long."""

ReadFile = Callable[[ImageFiles, int, memoryview], None]


def read_files(files: ImageFiles, rows: Sequence[int], places: Sequence[memoryview]) -> None:
    """Fill `places` with the files of `rows`, several at a time.

    Raises what reading raises, of the first file that fails.
    """
    remote = files.place is not None
    read: ReadFile = _read_object if remote else _read_file
    if files.members is not None:
        read = _read_member
    threads = _REQUESTS if remote else _THREADS
    step = 1 if remote else max(_LEAST_FILES, -(-len(rows) // (4 * threads)))

    def read_some(start: int) -> None:
        stop = start + step
        for row, into in zip(rows[start:stop], places[start:stop], strict=True):
            read(files, row, into)

    if len(rows) <= step:
        read_some(0)
        return
    with ThreadPoolExecutor(threads, "fieldslab-images") as pool:
        try:
            for _ in pool.map(read_some, range(0, len(rows), step)):
                pass
        finally:
            pool.shutdown(cancel_futures=True)


def make_changed_error(path: str) -> SourceChanged:
    """Make the error for a file that is another one than when it was looked at."""
    return SourceChanged(
        "the file changed while it was read",
        file=path,
        hint="Pack again when nothing writes to it.",
    )


def _read_member(files: ImageFiles, row: int, into: memoryview) -> None:
    """Fill `into` with a member of an archive that must be what it was."""
    assert files.members is not None
    files.members.read(row, files.get_path(row), into)


def _read_object(files: ImageFiles, row: int, into: memoryview) -> None:
    """Fill `into` with an object that must be what it was."""
    place, path = files.place, files.get_path(row)
    assert place is not None
    key = path[len(hide_credentials(place.url)) + 1 :]
    try:
        data, info = place.store.read_with_info(key, 0, len(into))
    except ObjectNotFound as error:
        raise SourceChanged("the file disappeared while it was read", file=path) from error
    version = RemoteFile.from_info(place, info).version
    if (info.size, hash_version(version)) != (len(into), files.modified[row]):
        raise make_changed_error(path)
    into[:] = data


def _read_file(files: ImageFiles, row: int, into: memoryview) -> None:
    """Fill `into` with a file that must be what it was."""
    path = files.get_path(row)
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise SourceChanged("the file disappeared while it was read", file=path) from error
    except PermissionError as error:
        raise SourceDenied("no permission to read it", file=path) from error
    except OSError as error:
        raise SourceUnreadable(f"cannot be read: {error.strerror}", file=path) from error
    try:
        info = os.fstat(file)
        recorded = (files.sizes[row], files.modified[row], files.inodes[row])
        if (info.st_size, info.st_mtime_ns, info.st_ino) != recorded:
            raise make_changed_error(path)
        done = 0
        while done < len(into):
            count = os.readv(file, [into[done:]])
            if not count:
                raise make_changed_error(path)
            done += count
    except OSError as error:
        raise SourceUnreadable(f"cannot be read: {error.strerror}", file=path) from error
    finally:
        close_quietly(file)
