"""Folders of files that are a table of Delta, Iceberg, Lance or Hudi.

A log beside the files says which of them belong to the table, and which rows were deleted. Who
reads all files gets deleted and old rows, too.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fieldslab.packer.sources.path_lookup import list_files
from fieldslab.packer.sources.remote_lookup import (
    RemotePath,
    is_remote_source,
    list_remote_files,
    split_url,
)
from fieldslab.packer.sources.table_files import map_in_threads
from fieldslab.schemas.errors import SourceUnsupported
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.stores.store import Store
from fieldslab.schemas.urls import is_url


class TableLog(NamedTuple):
    """Where a kind of table keeps its log: files in a folder, with one of these suffixes."""

    name: str
    kind: str
    folder: str
    suffixes: tuple[str, ...]


LOGS = (
    TableLog("delta", "Delta", "_delta_log", (".json", ".parquet")),
    TableLog("iceberg", "Iceberg", "metadata", (".metadata.json", ".metadata.json.gz")),
    TableLog("lance", "Lance", "_versions", (".manifest",)),
    TableLog("hudi", "Hudi", ".hoodie", (".properties",)),
)


def split_version(path: str) -> tuple[str, int | None]:
    """Split `table@7` into path and version, unless there is something of that name."""
    match = re.fullmatch(r"(.+)@(\d{1,19})", path)
    if match is None or os.path.lexists(path):
        return path, None
    return match[1], int(match[2])


def find_log(folder: str) -> TableLog | None:
    """Find the log in a local folder that makes it a table; None where there is none."""
    for log in LOGS:
        try:
            names = os.listdir(os.path.join(folder, log.folder))
        except OSError:
            continue
        if any(name.endswith(log.suffixes) for name in names):
            return log
    return None


def find_remote_log(remote: RemotePath) -> TableLog | None:
    """Find the log in a folder of a store that makes it a table; None where there is none.

    Raises what stores raise.
    """
    store = remote.place.store
    if not store.can_list:
        return None
    return next((log for log in LOGS if _holds_log(store, remote.root, log)), None)


def refuse_files_of_tables(
    kind: Any, paths: Sequence[str], storage_options: Mapping[str, Any] | None = None
) -> None:
    """Raise SourceUnsupported where files that are to be packed one by one belong to a table.

    `kind` is the class of the source. The folders of all files are looked at, and those above them.
    """
    if kind.name not in ("parquet", "orc", "ipc"):
        return
    for path in paths:
        if is_remote_source(path):
            _refuse_remote_files(path, kind, storage_options)
            continue
        files = list_files(path, kind.suffixes, kind.kind)
        folders = {os.path.dirname(os.path.abspath(file)) for file in files}
        folders |= {os.path.realpath(folder) for folder in folders}
        for folder in sorted(_add_parents(folders, os.sep)):
            if (log := find_log(folder)) is not None:
                raise _make_error(log, folder, kind.name)


def _refuse_remote_files(url: str, kind: Any, storage_options: Mapping[str, Any] | None) -> None:
    remote = split_url(url, storage_options)
    store = remote.place.store
    if not store.can_list:
        return
    files = list_remote_files(remote, kind.suffixes, kind.kind)
    folders = {file.key.rpartition("/")[0] for file in files}

    def find_log_in_store(folder: str) -> tuple[str, TableLog] | None:
        return next(((folder, log) for log in LOGS if _holds_log(store, folder, log)), None)

    tables = map_in_threads(find_log_in_store, sorted(_add_parents(folders, "")))
    for table in filter(None, tables):
        raise _make_error(table[1], store.locate(table[0]), kind.name)


def _holds_log(store: Store, folder: str, log: TableLog) -> bool:
    keys = store.list_keys(f"{folder}/{log.folder}".lstrip("/"))
    return any(info.key.endswith(log.suffixes) for info in keys)


def _add_parents(folders: Iterable[str], root: str) -> set[str]:
    """Return folders and all folders above them, down to the root."""
    return {parent for folder in folders for parent in _list_parents(folder, root)}


def _list_parents(folder: str, root: str) -> Iterator[str]:
    while folder != root:
        yield folder
        folder = folder.rpartition("/")[0] or root
    yield root


def _make_error(log: TableLog, folder: str, kind: str) -> SourceUnsupported:
    unread = log.name == "hudi" or (is_url(folder) and log.name == "iceberg")
    advice = "" if unread else "Pack the folder of the table. "
    return SourceUnsupported(
        f"is a {log.kind} table, whose files also hold rows that were deleted or replaced",
        file=folder,
        hint=f"{advice}{mark_option('from_', kind)} packs the files as they are, such rows "
        "included.",
    )
