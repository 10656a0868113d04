"""Files with rows and columns: which are meant, what each says, and their hive partitions."""

import glob
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

import pyarrow as pa

from fieldslab.packer.column_names import make_names_unique
from fieldslab.packer.sources.local_file import LocalFile
from fieldslab.packer.sources.memory_file import MemoryFile
from fieldslab.packer.sources.path_lookup import get_glob_root, list_files
from fieldslab.packer.sources.remote_file import RemoteFile
from fieldslab.packer.sources.remote_lookup import is_remote_source, list_remote_files, split_url
from fieldslab.schemas.errors import SourceUnreadable
from fieldslab.schemas.stores.store_place import StorePlace
from fieldslab.schemas.urls import hide_credentials

_THREADS = 32
"""That look at files and read footers: on a network they wait most of the time."""
_LEAST_ITEMS = 8
"""Fewer are looked at one after the other: threads take longer to start."""
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

_T = TypeVar("_T")
AnyFile = LocalFile | RemoteFile | MemoryFile
Partition = dict[str, pa.Scalar]


@dataclass(frozen=True)
class TableFile(ABC):
    """One file: its schema, and the values of its hive partition, by column name."""

    file: AnyFile
    schema: pa.Schema
    partition: Partition

    @abstractmethod
    def list_units(self) -> list[list[Any]]:
        """List what there is of each part that is read in one go: rows, bytes, and what else."""

    @property
    def path(self) -> str:
        """Path or URL of the file."""
        return self.file.path

    @cached_property
    def columns(self) -> dict[str, int]:
        """Position of each column of the file by its name, made unique."""
        return {name: index for index, name in enumerate(make_names_unique(self.schema.names))}

    @property
    def names(self) -> list[str]:
        """Names of the columns, partition columns last."""
        return [*self.columns, *self.partition]

    def get_type(self, name: str) -> pa.DataType | None:
        """Return the type of a column; None where the file has no such column."""
        if name in self.columns:
            return self.schema.field(self.columns[name]).type
        return self.partition[name].type if name in self.partition else None

    @contextmanager
    def refuse_changed(self) -> Iterator[None]:
        """Raise SourceChanged for what cannot be read because the file is another one now."""
        try:
            yield
        except SourceUnreadable:
            self.file.check_unchanged()
            raise


TableFileType = TypeVar("TableFileType", bound=TableFile)


class TableFiles(Sequence[TableFileType], Generic[TableFileType]):
    """All files that are meant, in order; each is opened when it is first needed.

    `files` are the files as they were when they were looked at.
    """

    def __init__(
        self,
        places: Sequence[tuple[str | RemoteFile | MemoryFile, dict[str, Partition]]],
        open_file: Callable[[AnyFile], TableFileType],
    ) -> None:
        """Look at all files, and read none. Raises SourceUnreadable where one is missing."""
        self.files = map_in_threads(_look_at, [place for place, _ in places])
        self._partitions = [partitions for _, partitions in places]
        self._open_file = open_file
        self._opened: dict[int, TableFileType] = {}

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: Any) -> Any:
        """Return a file. Raises SourceUnreadable where it is damaged."""
        if index not in self._opened:
            file = self._open_file(self.files[index])
            values = self._partitions[index].get(file.path, {})
            partition = {
                key: value for key, value in values.items() if key not in file.schema.names
            }
            self._opened[index] = replace(file, partition=partition)
        return self._opened[index]

    def open_all(self) -> None:
        """Open all files, many at a time. Raises SourceUnreadable where one is damaged."""
        map_in_threads(self.__getitem__, range(len(self)))


def _look_at(place: str | RemoteFile | MemoryFile) -> AnyFile:
    return LocalFile.from_path(place) if isinstance(place, str) else place


def find_files(
    paths: Sequence[str | MemoryFile],
    suffixes: Sequence[str],
    kind: str,
    storage_options: Mapping[str, Any] | None = None,
) -> list[tuple[str | RemoteFile | MemoryFile, dict[str, Partition]]]:
    """Find the files in the order given, globs and directories sorted, each with its partitions.

    Of directories, those with one of the `suffixes`; `kind` is what the files are called.

    Raises NoFiles if there are none, SourceUnreadable if a directory may not be read, and for URLs
    what `list_remote_files` raises.
    """
    find = partial(
        _find_files, suffixes=suffixes, kind=kind, storage_options=storage_options, places={}
    )
    return [file for files in map_in_threads(find, paths) for file in files]


def _find_files(
    path: str | MemoryFile,
    suffixes: Sequence[str],
    kind: str,
    storage_options: Mapping[str, Any] | None,
    places: dict[str, StorePlace],
) -> list[tuple[str | RemoteFile | MemoryFile, dict[str, Partition]]]:
    if isinstance(path, MemoryFile):
        return [(path, {})]
    if is_remote_source(path):
        remote = split_url(path, storage_options, places)
        objects = list_remote_files(remote, suffixes, kind)
        folder = f"{hide_credentials(remote.place.url)}/{remote.root}"
        partitions = _parse_partitions(folder, [file.path for file in objects])
        return [(file, partitions) for file in objects]
    files = list_files(path, suffixes, kind)
    partitions = {}
    if os.path.isdir(path):
        partitions = _parse_partitions(path, files)
    elif glob.has_magic(path):
        partitions = _parse_partitions(get_glob_root(path), files)
    return [(file, partitions) for file in files]


def _parse_partitions(directory: str, files: list[str]) -> dict[str, Partition]:
    """Parse the values of the hive partitions (`year=2024/`) below a directory, by file and column.

    A column whose values all are integers has type int64, any other is text.
    """
    texts = {
        file: _parse_hive_values(os.path.relpath(os.path.dirname(file) or ".", directory or "."))
        for file in files
    }
    types: dict[str, pa.DataType] = {}
    for keys in texts.values():
        for name, text in keys.items():
            integer = text is None or re.fullmatch(r"-?[0-9]{1,18}", text)
            types[name] = types.get(name, pa.int64()) if integer else pa.string()
    return {
        file: {name: pa.scalar(text).cast(types[name]) for name, text in keys.items()}
        for file, keys in texts.items()
    }


def _parse_hive_values(folder: str) -> dict[str, str | None]:
    pairs = [part.partition("=") for part in Path(folder).parts]
    return {
        unquote(name): None if value == _NO_VALUE else unquote(value)
        for name, equals, value in pairs
        if equals
    }


def map_in_threads(function: Callable[[Any], _T], items: Sequence[Any]) -> list[_T]:
    """Call a function for each item: many at a time where there are many."""
    if len(items) < _LEAST_ITEMS:
        return [function(item) for item in items]
    with ThreadPoolExecutor(_THREADS, "fieldslab-files") as pool:
        try:
            return list(pool.map(function, items))
        finally:
            pool.shutdown(cancel_futures=True)
