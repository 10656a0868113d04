"""Tables of Delta Lake: the one file that imports deltalake. Files are read one by one."""

import os
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import and_
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa

from fieldslab.packer.sources.local_file import LocalFile
from fieldslab.packer.sources.versioned.table_folder import TableFolder
from fieldslab.packer.sources.versioned.versioned_source import (
    Piece,
    Snapshot,
    VersionedSource,
    make_feature_error,
)
from fieldslab.schemas.errors import SourceInconsistent, SourceNeedsLibrary

_PARTITION = "partition."


class DeltaSource(VersionedSource):
    """The rows of a Delta table, without those that were deleted or replaced."""

    name = "delta"
    kind = "Delta"
    libraries = ("deltalake",)
    schemes = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "hf")

    def open_snapshot(self, folder: TableFolder, version: int | None) -> Snapshot:
        """Open a version."""
        try:
            import deltalake
        except ImportError as error:
            raise SourceNeedsLibrary(
                f"Delta tables need the library deltalake: {error}",
                hint="pip install 'deltalake>=1.6'",
            ) from error
        with folder.mirror(_is_of_log) as path:
            return _DeltaSnapshot(folder, path, deltalake.DeltaTable(path, version=version))


class _DeltaSnapshot(Snapshot):
    def __init__(self, folder: TableFolder, path: str, table: Any) -> None:
        """Read a table whose log is at a path."""
        import pyarrow.dataset as ds

        if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
            raise make_feature_error(
                folder.path,
                "the names of its columns are mapped to others in its files",
                f"deltalake.DeltaTable({folder.path!r}).scan()",
            )
        self.version = int(table.version())
        self.schema = pa.schema(table.schema().to_arrow())
        # INT96 in nanoseconds would wrap around outside of 1677 to 2262.
        options = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
        self._format = ds.ParquetFileFormat(read_options=options)
        added = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        self._added = sorted(added, key=lambda add: (add["modification_time"], add["path"]))
        self._files = [folder.find_file(add["path"]) for add in self._added]
        vectors = pa.table(table.deletion_vectors())
        names = {
            os.path.realpath(os.path.join(path, name)): add["path"]
            for add in added
            for name in (add["path"], unquote(add["path"]))
        }
        uris = [_get_path(uri) for uri in vectors["filepath"].to_pylist()]
        if unknown := set(uris) - names.keys():  # or rows that were deleted would come back
            raise SourceInconsistent(
                "the table lists deleted rows of a file that it does not have", file=min(unknown)
            )
        self._kept = {
            names[uri]: np.asarray(vector.values)
            for uri, vector in zip(uris, vectors["selection_vector"], strict=True)
        }
        self.pieces = [self._make_piece(number) for number in range(len(self._files))]

    def read(self, piece: int, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Read the rows of a file that a deletion vector does not list."""
        is_kept, start = self._find_kept(piece), 0
        scanner = self._open_dataset(piece).scanner(
            columns=list(names), batch_size=rows, batch_readahead=2, use_threads=False
        )
        for batch in scanner.to_batches():
            if is_kept is not None:
                mask = np.ones(batch.num_rows, bool)
                listed = is_kept[start : start + batch.num_rows]
                mask[: len(listed)] = listed
                start += batch.num_rows
                batch = batch.filter(pa.array(mask))
            yield batch

    def _make_piece(self, number: int) -> Piece:
        file, is_kept = self._files[number], self._find_kept(number)
        rows = self._open_dataset(number).count_rows()
        deleted = 0 if is_kept is None else int(np.count_nonzero(~is_kept))
        return Piece(rows - deleted, file.size, (file,))

    def _find_kept(self, number: int) -> np.ndarray | None:
        """Find which of the first rows of a file are kept: bool[rows]; None if all are."""
        is_kept = self._kept.get(self._added[number]["path"])
        return None if is_kept is None else is_kept.astype(bool)

    def _open_dataset(self, number: int) -> Any:
        import pyarrow.dataset as ds
        import pyarrow.fs as fs

        values = {
            name[len(_PARTITION) :]: value
            for name, value in self._added[number].items()
            if name.startswith(_PARTITION)
        }
        conditions = [
            ds.field(name).is_null()
            if value is None
            else ds.field(name) == pa.scalar(value).cast(self.schema.field(name).type)
            for name, value in values.items()
        ]
        file, disk = self._files[number], fs.LocalFileSystem()
        fragment = self._format.make_fragment(
            file.path if isinstance(file, LocalFile) else file.open(),
            disk if isinstance(file, LocalFile) else None,
            partition_expression=reduce(and_, conditions) if conditions else None,
        )
        return ds.FileSystemDataset([fragment], self.schema, self._format, disk)


def _is_of_log(name: str) -> bool:
    """Return whether a file is of the log, or tells of deleted rows."""
    return name.startswith("_delta_log/") or name.endswith(".bin")


def _get_path(uri: str) -> str:
    path = unquote(urlparse(uri).path) if "://" in uri else uri
    return os.path.realpath(path)
