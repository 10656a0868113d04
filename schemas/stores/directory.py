"""A directory as a store."""

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from glob import escape
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from fieldslab.schemas.errors import (
    FieldslabError,
    ObjectNotFound,
    OutputExists,
    SlabDenied,
    UsageError,
)
from fieldslab.schemas.files import make_unreadable_error, read_exactly, sync_directory
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.stores.store import (
    Data,
    ObjectInfo,
    Place,
    Store,
    check_key,
    make_changed_error,
)
from fieldslab.schemas.system import lock_exclusive
from fieldslab.schemas.urls import get_scheme, is_url
from fieldslab.schemas.write_errors import name_write_errors

_PIECE = 8 << 20
_UNFINISHED = ".unfinished"


class DirectoryStore(Store):
    """A directory. Objects are files; each is written beside its place, synced, then renamed.

    Attributes
    ----------
    path
        The directory, which `write` creates where it is not there.
    """

    def __init__(self, place: Place, storage_options: Mapping[str, Any] | None = None) -> None:
        """`place` is a path, or a URL such as `file:///data/train.slab`."""
        if storage_options:
            raise UsageError(
                f"{mark_option('storage_options')}: for URLs only, and this is a directory",
                file=place,
                found=", ".join(storage_options),
            )
        text = os.fspath(place)
        is_file_url = is_url(text) and get_scheme(text) == "file" and not os.path.exists(text)
        self.path = Path(unquote(urlsplit(text).path) if is_file_url else text)
        self.url = str(self.path)

    def read(self, key: str, start: int = 0, stop: int | None = None) -> memoryview:
        """Read bytes of a file; see `Store.read`."""
        path = self._find(key)
        try:
            with open(path, "rb", buffering=0) as file:
                stop = os.fstat(file.fileno()).st_size if stop is None else stop
                data = memoryview(bytearray(max(stop - start, 0)))
                read_exactly(file.fileno(), data, start, path)
                return data
        except OSError as error:
            raise _make_reading_error(error, path) from error

    def get_info(self, key: str) -> ObjectInfo:
        """Return size and version of a file."""
        path = self._find(key)
        try:
            return _make_info(key, os.stat(path))
        except OSError as error:
            raise _make_reading_error(error, path) from error

    def list_keys(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """List all files below the directory, or below a folder of it, but no unfinished ones."""
        folders = [self._find(prefix) if prefix else self.path]
        while folders:
            folder = folders.pop()
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if entry.is_dir():
                            folders.append(Path(entry))
                        elif not entry.name.endswith(_UNFINISHED):
                            key = Path(entry).relative_to(self.path).as_posix()
                            yield _make_info(key, entry.stat())
            except (FileNotFoundError, NotADirectoryError):
                continue  # there is none, or a file was removed meanwhile
            except OSError as error:
                raise _make_reading_error(error, folder) from error

    def write(
        self, key: str, data: Data | Path | Iterable[Data], *, if_absent: bool = False
    ) -> None:
        """Write a file; see `Store.write`."""
        path = self._find(key)
        unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_UNFINISHED}")
        with name_write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with open(unfinished, "xb", buffering=0) as file:
                    for piece in _iterate_pieces(data):
                        _write_all(file.fileno(), piece)
                    os.fsync(file.fileno())
                if if_absent:
                    _link(unfinished, path)
                else:
                    unfinished.replace(path)
            finally:
                with suppress(OSError):
                    unfinished.unlink(missing_ok=True)
            sync_directory(path.parent)

    def replace(self, key: str, data: Data, expected: Data) -> None:
        """Replace a file if its content is still `expected`; see `Store.replace`."""
        path = self._find(key)
        with name_write_errors(path), ExitStack() as stack:
            try:
                file = stack.enter_context(open(path, "rb", buffering=0))
            except FileNotFoundError as error:
                raise make_changed_error(path) from error
            lock_exclusive(file.fileno())  # whoever replaces it holds this, too
            if file.read() != expected or not _is_at(file.fileno(), path):
                raise make_changed_error(path)
            _remove_drafts(path)
            self.write(key, data)

    def delete(self, key: str) -> None:
        """Remove a file, and folders that become empty by it."""
        path = self._find(key)
        with name_write_errors(path):
            path.unlink(missing_ok=True)
            with suppress(OSError):
                for folder in path.relative_to(self.path).parents[:-1]:
                    (self.path / folder).rmdir()

    def _find(self, key: str) -> Path:
        return self.path / check_key(key)


def _iterate_pieces(data: Data | Path | Iterable[Data]) -> Iterator[Data]:
    if isinstance(data, bytes | bytearray | memoryview):
        yield data
    elif isinstance(data, Path):
        with open(data, "rb", buffering=0) as file:
            while piece := file.read(_PIECE):
                yield piece
    else:
        yield from data


def _write_all(fd: int, data: Data) -> None:
    view = memoryview(data).cast("B")
    while view:
        view = view[os.write(fd, view) :]


def _remove_drafts(path: Path) -> None:
    """Remove what killed writers left beside a file that is there, and locked.

    Nobody else replaces it now; who wants to create it comes too late.
    """
    for draft in path.parent.glob(f".{escape(path.name)}.{'[0-9a-f]' * 8}{_UNFINISHED}"):
        draft.unlink(missing_ok=True)


def _link(unfinished: Path, path: Path) -> None:
    """Give a file its name, if no other has it: at once, or not at all."""
    try:
        os.link(unfinished, path)
    except OSError as error:
        if not path.exists():
            raise
        raise OutputExists("exists already", file=path) from error


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _make_info(key: str, info: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, info.st_size, f"{info.st_mtime_ns}-{info.st_size}-{info.st_ino}")


def _make_reading_error(error: OSError, path: Path) -> FieldslabError:
    if isinstance(error, FieldslabError):
        return error
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return ObjectNotFound("does not exist", file=path)
    if isinstance(error, PermissionError):
        return SlabDenied("no permission to read it", file=path)
    return make_unreadable_error(error, path)
