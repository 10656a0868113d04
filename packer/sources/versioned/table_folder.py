"""The folder of a table: its files on a disk or in a store, and its log on a disk."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote

from fieldslab.packer.sources.local_file import LocalFile
from fieldslab.packer.sources.remote_file import LibraryFile, RemoteFile
from fieldslab.packer.sources.remote_lookup import RemotePath
from fieldslab.packer.sources.stored_files import StoredFile
from fieldslab.packer.sources.table_files import map_in_threads
from fieldslab.schemas.errors import SourceUnreadable, SourceUnsupported, UsageError
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.stores.remote import is_http_endpoint


class TableFolder:
    """The folder of a table, at a path or, if it is `remote`, at a URL.

    The objects of a store are as they were when they were first listed.
    """

    def __init__(self, path: str, remote: RemotePath | None) -> None:
        """Take a folder; nothing is read yet."""
        self.path = path
        self._remote = remote

    def find_file(self, name: str) -> StoredFile:
        """Find a file by its path in the log, which may be encoded as in URLs.

        Raises SourceUnreadable if the file is missing, and SourceUnsupported if it is outside of
        the folder.
        """
        if "://" in name or os.path.isabs(name):
            raise SourceUnsupported(
                "a file of the table lies elsewhere",
                file=name,
                hint="Copy the table to one folder.",
            )
        if self._remote is None:
            path = os.path.join(self.path, name)
            return LocalFile.from_path(
                path if os.path.exists(path) else os.path.join(self.path, unquote(name))
            )
        file = self._objects.get(name, self._objects.get(unquote(name)))
        if file is None:
            raise SourceUnreadable(
                "a file of the table is missing", file=f"{self.path.rstrip('/')}/{name}"
            )
        return file

    def find_library_file(self, name: str) -> StoredFile:
        """Find a file that a library reads by itself. Raises what `find_file` raises."""
        file = self.find_file(name)
        if isinstance(file, LocalFile):
            return file
        return LibraryFile(file.place, file.key, file.size, file.version)

    def make_library_options(self) -> dict[str, str] | None:
        """Make the options by which a library opens the store; None for a folder on a disk.

        Raises UsageError for options that only obstore takes.
        """
        if self._remote is None:
            return None
        options = dict(self._remote.place.storage_options or {})
        allow_http = is_http_endpoint(options)
        options.pop("retry_config", None)
        options |= {**(options.pop("config", None) or {})}
        options |= {**(options.pop("client_options", None) or {})}
        options.setdefault("allow_http", allow_http)
        for name, value in options.items():
            if not isinstance(value, str | int | float):
                raise UsageError(
                    f"{mark_option('storage_options')}: the library of this table does not take "
                    "this option",
                    found=name,
                    hint="Put credentials into the environment.",
                )
        return {name: _format_option(value) for name, value in options.items()}

    @contextmanager
    def mirror(self, chosen: Callable[[str], bool]) -> Iterator[str]:
        """Return a folder on a disk, with the chosen files at least, for a `with` block."""
        if self._remote is None:
            yield self.path
            return
        with TemporaryDirectory(prefix="fieldslab-table-") as folder:
            names = [name for name in self._objects if chosen(name)]

            def download(name: str) -> None:
                path, file = Path(folder, name), self._objects[name]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.read(0, file.size))

            map_in_threads(download, names)
            yield folder

    @cached_property
    def _objects(self) -> dict[str, RemoteFile]:
        assert self._remote is not None
        place, root = self._remote.place, self._remote.root
        start = len(root) + 1 if root else 0
        infos = place.store.list_keys(root)
        return {info.key[start:]: RemoteFile.from_info(place, info) for info in infos}


def _format_option(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
