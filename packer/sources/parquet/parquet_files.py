"""Which Parquet files are meant, and the values of their hive partitions."""

import glob
import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa

from fieldslab.packer.sources.path_lookup import get_glob_root, list_files
from fieldslab.packer.sources.remote_file import RemoteFile
from fieldslab.packer.sources.remote_lookup import is_remote_source, list_remote_files, split_url
from fieldslab.schemas.stores.store_place import StorePlace
from fieldslab.schemas.urls import hide_credentials

SUFFIXES = (".parquet", ".pq", ".parq")
_THREADS = 32
"""That look at files and read footers: on a network they wait most of the time."""
_LEAST_ITEMS = 8
"""Fewer are looked at one after the other: threads take longer to start."""
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

_T = TypeVar("_T")
Partition = dict[str, pa.Scalar]


def find_files(
    paths: Sequence[str], storage_options: Mapping[str, Any] | None = None
) -> list[tuple[str | RemoteFile, dict[str, Partition]]]:
    """Find the files in the order given, globs and directories sorted, each with its partitions.

    Raises NoFiles if there are no files, SourceUnreadable if a directory may not be read, and for
    URLs what `list_remote_files` raises.
    """
    find = partial(_find_files, storage_options=storage_options, places={})
    return [file for files in map_in_threads(find, paths) for file in files]


def _find_files(
    path: str, storage_options: Mapping[str, Any] | None, places: dict[str, StorePlace]
) -> list[tuple[str | RemoteFile, dict[str, Partition]]]:
    if is_remote_source(path):
        remote = split_url(path, storage_options, places)
        objects = list_remote_files(remote, SUFFIXES, "Parquet")
        folder = f"{hide_credentials(remote.place.url)}/{remote.root}"
        partitions = _parse_partitions(folder, [file.path for file in objects])
        return [(file, partitions) for file in objects]
    files = list_files(path, SUFFIXES, "Parquet")
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
    with ThreadPoolExecutor(_THREADS, "fieldslab-footers") as pool:
        try:
            return list(pool.map(function, items))
        finally:
            pool.shutdown(cancel_futures=True)
