"""Tables of Iceberg: the one file that imports pyiceberg. Data files are read one by one."""

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa

from fieldslab.packer.sources.local_file import LocalFile
from fieldslab.packer.sources.path_lookup import list_folder
from fieldslab.packer.sources.versioned.table_folder import TableFolder
from fieldslab.packer.sources.versioned.versioned_source import Piece, Snapshot, VersionedSource
from fieldslab.schemas.errors import SourceNeedsLibrary, SourceUnreadable, SourceUnsupported
from fieldslab.schemas.imports import import_edited

_METADATA = ".metadata.json"


class IcebergSource(VersionedSource):
    """The rows of a snapshot of an Iceberg table; its version is the id of the snapshot.

    Version 0 is a table before its first snapshot, which has no rows.
    """

    name = "iceberg"
    kind = "Iceberg"
    libraries = ("pyiceberg",)

    @classmethod
    def accepts(cls, paths: list[str]) -> bool:
        """Return whether the first path is a table, or one of its metadata files."""
        return paths[0].endswith(_METADATA) or super().accepts(paths)

    def open_snapshot(self, folder: TableFolder, version: int | None) -> Snapshot:
        """Open a snapshot."""
        return _IcebergSnapshot(folder.path, version)


class _IcebergSnapshot(Snapshot):
    def __init__(self, path: str, version: int | None) -> None:
        self._library = _import_pyiceberg()
        from pyiceberg.catalog.noop import NoopCatalog
        from pyiceberg.io.pyarrow import PyArrowFileIO, schema_to_pyarrow
        from pyiceberg.serializers import FromInputFile
        from pyiceberg.table import StaticTable

        place = os.path.abspath(path if path.endswith(_METADATA) else _find_metadata(path))
        # Properties of the table name classes that pyiceberg would import: they are left aside.
        self._io = PyArrowFileIO({})
        self._metadata = FromInputFile.table_metadata(self._io.new_input(place))
        table = StaticTable(("table",), self._metadata, place, self._io, NoopCatalog("none"))
        if version is None:
            current = table.current_snapshot()
            version = 0 if current is None else current.snapshot_id
        self.version = version
        scan = table.scan(snapshot_id=version or None)
        self._projection = scan.projection()
        self.schema = schema_to_pyarrow(self._projection, include_field_ids=False)
        numbers = _number_files(table.snapshot_by_id(version), self._io, path) if version else {}
        tasks = scan.plan_files() if version else []
        self._tasks = sorted(
            tasks, key=lambda task: (numbers.get(task.file.file_path, 0), task.file.file_path)
        )
        self.pieces = [self._make_piece(task) for task in self._tasks]

    def read(self, piece: int, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Read the rows of a data file that no delete file lists."""
        yield from self._scan(self._tasks[piece], names)

    def _scan(self, task: Any, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.schema import Schema

        fields = [field for field in self._projection.fields if field.name in names]
        scan = ArrowScan(self._metadata, self._io, Schema(*fields), AlwaysTrue())
        yield from scan.to_record_batches([task])

    def _make_piece(self, task: Any) -> Piece:
        files = tuple(
            LocalFile.from_path(_get_path(file.file_path))
            for file in (task.file, *sorted(task.delete_files, key=lambda file: file.file_path))
        )
        rows = int(task.file.record_count)
        if task.delete_files:
            first = self._projection.fields[0].name
            rows = sum(batch.num_rows for batch in self._scan(task, [first]))
        return Piece(rows, files[0].size, files)


def _number_files(snapshot: Any, io: Any, path: str) -> dict[str, int]:
    """Return the sequence number by which each file was added: rows stay in their order.

    Raises SourceUnsupported for a file of equality deletes.
    """
    from pyiceberg.manifest import DataFileContent

    numbers = {}
    for manifest in snapshot.manifests(io):
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
            file = entry.data_file
            if file.content == DataFileContent.EQUALITY_DELETES:
                raise SourceUnsupported(
                    "the table has equality deletes, which pyiceberg does not read",
                    file=path,
                    found=file.file_path,
                    hint="Write the rows that are left into new files, as `rewrite_data_files` of "
                    "Spark does with delete-file-threshold 1, and pack the table again.",
                )
            numbers[file.file_path] = entry.sequence_number or 0
    return numbers


def _import_pyiceberg() -> Any:
    """Import pyiceberg without the settings that it would read from the working directory."""

    def edit(loader: Any) -> Any:
        source = loader.get_source("pyiceberg.utils.config")
        return compile(source.replace("os.getcwd()", "None"), loader.path, "exec")

    try:
        return import_edited("pyiceberg.table", "pyiceberg.utils.config", edit)
    except ImportError as error:
        raise SourceNeedsLibrary(
            f"Iceberg tables need the library pyiceberg: {error}",
            hint="pip install 'pyiceberg[pyarrow]>=0.12'",
        ) from error


def _find_metadata(folder: str) -> str:
    """Find the newest metadata file: the one that a hint names, or the one of the last number."""
    place = os.path.join(folder, "metadata")
    names = [entry.name for entry in list_folder(place) if entry.name.endswith(_METADATA)]
    hint = os.path.join(place, "version-hint.text")
    if os.path.isfile(hint):
        with open(hint, encoding="utf-8") as file:
            text = file.read().strip()
        file_name = text if text.endswith(_METADATA) else f"v{text}{_METADATA}"
        return os.path.join(place, os.path.basename(file_name))
    numbers = {name: int(match[1]) for name in names if (match := re.match(r"v?(\d+)", name))}
    newest = [name for name in numbers if numbers[name] == max(numbers.values())]
    if len(newest) != 1:
        raise SourceUnreadable(
            "several metadata files may be the newest one" if newest else "no metadata file",
            file=place,
            found=", ".join(newest[:5]) or None,
            hint="Name the metadata file that the catalog of the table names.",
        )
    return os.path.join(place, newest[0])


def _get_path(location: str) -> str:
    """Return the path of a file on a disk."""
    parts = urlparse(location)
    if parts.scheme not in ("", "file"):
        raise SourceUnsupported(
            "files of the table lie in a store, and Iceberg tables are read from disks",
            file=location,
        )
    return unquote(parts.path) if parts.scheme else location
