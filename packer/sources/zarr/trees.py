"""Where a Zarr hierarchy lies: in a folder on a disk or in a store, or in a zip archive."""

import os
import struct
import zipfile
import zlib
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from typing import Any

from fieldslab.packer.sources.batches import make_damage_error
from fieldslab.packer.sources.path_lookup import list_folder
from fieldslab.packer.sources.remote_file import RemoteFile
from fieldslab.packer.sources.remote_lookup import RemotePath
from fieldslab.packer.sources.stored_files import StoredFile, open_zip
from fieldslab.packer.sources.table_files import map_in_threads
from fieldslab.schemas.errors import FieldslabError
from fieldslab.schemas.urls import hide_credentials

METADATA = ("zarr.json", ".zarray", ".zgroup")
SMALL_FILES = (*METADATA, ".zattrs")
"""Names of files that are read at once, and kept."""
_ZIP_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, KeyError),
    *(NotImplementedError, RuntimeError, ValueError),
)
"""What damaged archives raise: ValueError for names that are not UTF-8."""
_BEHIND_SLASH = chr(ord("/") + 1)


class Tree(ABC):
    """The files of a hierarchy, by their names below its root.

    Attributes
    ----------
    path
        The path or URL of the root, for messages.
    folder
        The root on a disk, whose files others may change; None of what is checked as it is read.
    """

    path: str
    folder: str | None = None

    @abstractmethod
    def has(self, name: str) -> bool:
        """Return whether there is such a file."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Read a file that is there. Raises what disks, archives and stores raise."""

    @abstractmethod
    def list_folders(self, folder: str) -> list[str]:
        """List the names of the folders in a folder, sorted."""

    @abstractmethod
    def describe(self, folders: Sequence[str]) -> list[dict[str, Any]]:
        """Return the fingerprint of the files below some folders."""

    def check_unchanged(self) -> None:  # noqa: B027  # most are checked as they are read
        """Raise SourceChanged where it is another one now, unless `read` does so."""


class KeyedTree(Tree):
    """Files that are read as Zarr reads those of a store."""

    @abstractmethod
    def get_size(self, name: str) -> int:
        """Return the bytes of a file that is there."""

    @abstractmethod
    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Read bytes of a file that is there. Several threads may read."""

    @abstractmethod
    def list_names(self, prefix: str) -> Iterator[str]:
        """List the files whose names begin so."""

    def read(self, name: str) -> bytes:
        """Read a file that is there."""
        return self.read_range(name, 0, self.get_size(name))


class DiskTree(Tree):
    """A folder on a disk."""

    def __init__(self, path: str) -> None:
        """Take the folder at a path."""
        self.path = self.folder = path

    def has(self, name: str) -> bool:
        """Return whether there is such a file."""
        return os.path.isfile(os.path.join(self.path, name))

    def read(self, name: str) -> bytes:
        """Read a file that is there."""
        with open(os.path.join(self.path, name), "rb") as file:
            return file.read()

    def list_folders(self, folder: str) -> list[str]:
        """List the names of the folders in a folder, sorted."""
        entries = list_folder(os.path.join(self.path, folder))
        return [entry.name for entry in entries if entry.is_dir()]

    def describe(self, folders: Sequence[str]) -> list[dict[str, Any]]:
        """Return number and size of files, and a digest of their names, sizes and times."""
        return [self._describe(os.path.join(self.path, folder)) for folder in folders]

    def _describe(self, folder: str) -> dict[str, Any]:
        states = ((name, info.st_size, info.st_mtime_ns) for name, info in _list_files(folder, ""))
        return _describe_files(folder, states)


class ZipTree(KeyedTree):
    """A zip archive, on a disk or in a store."""

    def __init__(self, file: StoredFile) -> None:
        """Take an archive; it is opened when it is first needed."""
        self.path = file.path
        self._file = file

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the open archive."""
        return {"path": self.path, "_file": self._file}

    @cached_property
    def _archive(self) -> zipfile.ZipFile:
        return open_zip(self._file)

    @cached_property
    def _names(self) -> dict[str, zipfile.ZipInfo]:
        with name_zip_errors(self.path):
            return self._archive.NameToInfo

    def has(self, name: str) -> bool:
        """Return whether there is such a member."""
        return name in self._names

    def get_size(self, name: str) -> int:
        """Return the bytes of a member that is there."""
        return self._names[name].file_size

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Read bytes of a member that is there."""
        with self._archive.open(name) as stream:
            stream.seek(start)
            whole = stop == self.get_size(name)
            return stream.read(-1 if whole else stop - start)  # the end has a checksum to compare

    def list_names(self, prefix: str) -> Iterator[str]:
        """List the members whose names begin so."""
        return (name for name in self._names if name.startswith(prefix))

    def list_folders(self, folder: str) -> list[str]:
        """List the names of the folders in a folder, sorted."""
        start = f"{folder}/" if folder else ""
        below = (name[len(start) :] for name in self._names if name.startswith(start))
        return sorted({name.partition("/")[0] for name in below if "/" in name})

    def describe(self, folders: Sequence[str]) -> list[dict[str, Any]]:
        """Return the fingerprint of the archive."""
        return [self._file.describe()]

    def check_unchanged(self) -> None:
        """Raise SourceChanged where the archive is another one now."""
        self._file.check_unchanged()


class StoreTree(KeyedTree):
    """A folder in a store: its objects as they were when they were listed.

    What was not there then is not asked for later.
    """

    def __init__(self, remote: RemotePath) -> None:
        """List all objects, and read metadata. Raises what stores raise."""
        self._place, self._root = remote.place, remote.root
        self.path = f"{hide_credentials(self._place.url)}/{self._root}".rstrip("/")
        start = len(self._root) + 1 if self._root else 0
        infos = self._place.store.list_keys(self._root)
        files = (RemoteFile.from_info(self._place, info) for info in infos)
        self._states = {file.key[start:]: (file.size, file.version) for file in files}
        self._names = sorted(self._states)
        small = [name for name in self._names if name.rpartition("/")[2] in SMALL_FILES]
        self._small: dict[str, bytes] = {}
        self._small = dict(zip(small, map_in_threads(self.read, small), strict=True))

    def has(self, name: str) -> bool:
        """Return whether there is such an object."""
        return name in self._states

    def get_size(self, name: str) -> int:
        """Return the bytes of an object that is there."""
        return self._states[name][0]

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Read bytes of an object that is there. Raises SourceChanged, and what stores raise."""
        size, version = self._states[name]
        if name in self._small:
            return self._small[name][start:stop]
        key = f"{self._root}/{name}".lstrip("/")
        return bytes(RemoteFile(self._place, key, size, version).read(start, stop))

    def list_names(self, prefix: str) -> Iterator[str]:
        """List the objects whose names begin so."""
        for number in range(bisect_left(self._names, prefix), len(self._names)):
            if not self._names[number].startswith(prefix):
                return
            yield self._names[number]

    def list_folders(self, folder: str) -> list[str]:
        """List the names of the folders in a folder, sorted."""
        start = f"{folder}/" if folder else ""
        folders = []
        number = bisect_left(self._names, start)
        while number < len(self._names) and self._names[number].startswith(start):
            name, slash, _ = self._names[number][len(start) :].partition("/")
            if not slash:
                number += 1
                continue
            folders.append(name)
            number = bisect_left(self._names, f"{start}{name}{_BEHIND_SLASH}")
        return folders

    def describe(self, folders: Sequence[str]) -> list[dict[str, Any]]:
        """Return number and size of objects, and a digest of their names, sizes and versions."""
        return [self._describe(folder) for folder in folders]

    def _describe(self, folder: str) -> dict[str, Any]:
        prefix = f"{folder}/" if folder else ""
        states = ((name, *self._states[name]) for name in self.list_names(prefix))
        return _describe_files(f"{self.path}/{folder}".rstrip("/"), states)


def _describe_files(path: str, states: Iterator[tuple[str, int, Any]]) -> dict[str, Any]:
    """Describe files by their names, sizes, and times or versions."""
    digest, count, total = sha256(), 0, 0
    for name, size, version in states:
        digest.update(f"{name} {size} {version}\n".encode("utf-8", "replace"))
        count, total = count + 1, total + size
    return {"path": path, "bytes": total, "files": count, "state": digest.hexdigest()[:32]}


def _list_files(folder: str, name: str) -> Iterator[tuple[str, os.stat_result]]:
    for entry in list_folder(os.path.join(folder, name)):
        path = os.path.join(name, entry.name)
        if entry.is_dir():
            yield from _list_files(folder, path)
        else:
            yield path, entry.stat()


def check_blosc_size(chunk: bytes, size: int) -> None:
    """Raise ValueError where the header of a blosc chunk tells of another size than it has.

    blosc may read beyond the end of a chunk that is cut off.
    """
    expected_size = int.from_bytes(chunk[12:16], "little")
    if expected_size != size:
        raise ValueError(f"it should have {expected_size:,} bytes, and has {size:,}")


@contextmanager
def name_zip_errors(path: str) -> Iterator[None]:
    """Turn what damaged archives raise into SourceUnreadable."""
    try:
        yield
    except FieldslabError:
        raise
    except _ZIP_ERRORS as error:
        raise make_damage_error(error, "zip archive", path) from error
