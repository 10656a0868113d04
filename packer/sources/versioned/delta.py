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
from fieldslab.packer.sources.versioned.versioned_source import (
    Piece,
    Snapshot,
    VersionedSource,
    make_feature_error,
)
from fieldslab.schemas.errors import SourceInconsistent, SourceNeedsLibrary, SourceUnsupported

_PARTITION = "partition."


class DeltaSource(VersionedSource):
    """The rows of a Delta table, without those that were deleted or replaced."""

    name = "delta"
    kind = "Delta"
    libraries = ("deltalake",)

    def open_snapshot(self, path: str, version: int | None) -> Snapshot:
        """Open a version."""
        try:
            import deltalake
        except ImportError as error:
            raise SourceNeedsLibrary(
                f"Delta tables need the library deltalake: {error}",
                hint="pip install 'deltalake>=1.6'",
            ) from error
        return _DeltaSnapshot(path, deltalake.DeltaTable(path, version=version))


class _DeltaSnapshot(Snapshot):
    def __init__(self, path: str, table: Any) -> None:
        import pyarrow.dataset as ds

        if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
            raise make_feature_error(
                path,
                "the names of its columns are mapped to others in its files",
                f"deltalake.DeltaTable({path!r}).scan()",
            )
        self.version = int(table.version())
        self.schema = pa.schema(table.schema().to_arrow())
        # INT96 in nanoseconds would wrap around outside of 1677 to 2262.
        options = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
        self._format = ds.ParquetFileFormat(read_options=options)
        added = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        self._added = sorted(added, key=lambda add: (add["modification_time"], add["path"]))
        self._files = [_find_file(path, add["path"]) for add in self._added]
        vectors = pa.table(table.deletion_vectors())
        self._kept = {
            _get_path(uri): np.asarray(vector.values)
            for uri, vector in zip(
                vectors["filepath"].to_pylist(), vectors["selection_vector"], strict=True
            )
        }
        unknown = self._kept.keys() - {os.path.realpath(file.path) for file in self._files}
        if unknown:  # or rows that were deleted would come back
            raise SourceInconsistent(
                "the table lists deleted rows of a file that it does not have", file=min(unknown)
            )
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
        is_kept = self._kept.get(os.path.realpath(self._files[number].path))
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
        disk = fs.LocalFileSystem()
        fragment = self._format.make_fragment(
            self._files[number].path,
            disk,
            partition_expression=reduce(and_, conditions) if conditions else None,
        )
        return ds.FileSystemDataset([fragment], self.schema, self._format, disk)


def _find_file(folder: str, path: str) -> LocalFile:
    """Find a file by its path in the log, which may be encoded as in URLs."""
    if "://" in path or os.path.isabs(path):
        raise SourceUnsupported(
            "a file of the table lies elsewhere", file=path, hint="Copy the table to one folder."
        )
    place = os.path.join(folder, path)
    return LocalFile.from_path(
        place if os.path.exists(place) else os.path.join(folder, unquote(path))
    )


def _get_path(uri: str) -> str:
    path = unquote(urlparse(uri).path) if "://" in uri else uri
    return os.path.realpath(path)
