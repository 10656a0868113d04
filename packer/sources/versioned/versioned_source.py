"""A table with a log of versions as a source: one version of it, whatever is written meanwhile."""

import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from fieldslab.packer.column_names import check_utf8_names, make_names_unique
from fieldslab.packer.source import Source, Unit
from fieldslab.packer.sources.batches import MOST_ROWS, cut_batch, make_damage_error
from fieldslab.packer.sources.path_lookup import check_readable
from fieldslab.packer.sources.remote_lookup import split_url
from fieldslab.packer.sources.stored_files import StoredFile
from fieldslab.packer.sources.versioned.table_folder import TableFolder
from fieldslab.packer.sources.versioned.table_logs import (
    find_log,
    find_remote_log,
    split_version,
)
from fieldslab.schemas.errors import (
    FieldslabError,
    SourceChanged,
    SourceNotFound,
    SourceUnsupported,
    UsageError,
)
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.urls import get_scheme, hide_credentials, is_url


@dataclass(frozen=True)
class Piece:
    """Rows that are read at one go: those of a file that were not deleted."""

    rows: int
    bytes: int
    files: tuple[StoredFile, ...]


class Snapshot:
    """One version of a table, opened by the table's library. It is not pickled."""

    version: int
    schema: pa.Schema
    pieces: Sequence[Piece]

    def read(self, piece: int, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Read columns of a piece, without deleted rows, about so many rows at a time."""
        raise NotImplementedError


class VersionedSource(Source):
    """The rows of one version of a table."""

    rereadable = True
    kind: ClassVar[str]
    """What its tables are called, for people."""
    schemes: ClassVar[tuple[str, ...]] = ()
    """Schemes of the URLs at which its tables are read."""

    def __init__(
        self,
        paths: list[str],
        *,
        table_version: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        summary: Any = None,
    ) -> None:
        """Open the newest version of the table, or the one that is named.

        Raises
        ------
        UsageError
            Several tables, or two versions.
        SourceUnreadable
            There is no such table, or it is damaged.
        SourceUnsupported
            It has features that its library does not read.
        SourceNeedsLibrary
            Its library is not here.
        AccessDenied, RemoteUnreadable, MissingLibrary
            The store of a URL refuses, fails, or needs a library.
        """
        if len(paths) > 1:
            raise UsageError(
                f"{self.kind} tables are packed one at a time",
                found=", ".join(paths),
                hint="Pack each into a slab; `fieldslab union` makes one of them.",
            )
        self._path, path_version = split_version(paths[0])
        self._remote = None
        if is_url(self._path) and not os.path.exists(self._path):
            if get_scheme(self._path) not in self.schemes:
                raise SourceUnsupported(
                    f"{self.kind} tables are not read from {get_scheme(self._path)}:// URLs",
                    file=hide_credentials(self._path),
                    hint="Download the table first.",
                )
            self._remote = split_url(self._path, storage_options)
        self._check_path()
        if None not in (path_version, table_version) and path_version != table_version:
            raise UsageError(
                f"{mark_option('table_version')}: the path names another version",
                expected=str(path_version),
                found=str(table_version),
            )
        if summary is not None:
            table_version = summary["version"]
        self._snapshot: Snapshot | None = None
        self._version = path_version if table_version is None else table_version
        snapshot = self._open()
        self._version = snapshot.version
        self.settings = {"table_version": snapshot.version}
        self._names = snapshot.schema.names
        fields = [
            field.remove_metadata().with_name(name)
            for field, name in zip(snapshot.schema, make_names_unique(self._names), strict=True)
        ]
        self.schema = pa.schema(fields)
        self._pieces = list(snapshot.pieces)
        row_bytes = sum(_get_width(field.type) or 0 for field in self.schema) // 8
        self.units = [
            Unit(
                f"{self._path} piece {number}",
                piece.rows,
                max(piece.bytes, piece.rows * row_bytes),
                number,
            )
            for number, piece in enumerate(self._pieces)
            if piece.rows
        ]

    @abstractmethod
    def open_snapshot(self, folder: TableFolder, version: int | None) -> Snapshot:
        """Open a version of a table, the newest for None. Raises what libraries raise."""

    @classmethod
    def accepts(cls, paths: list[str]) -> bool:
        """Return whether the first path is a table of this kind."""
        log = find_log(split_version(paths[0])[0])
        return log is not None and log.name == cls.name

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the opened table: another process opens it again."""
        return self.__dict__ | {"_snapshot": None}

    def read(self, unit: Unit, columns: list[int], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Read a piece, in batches near `batch_bytes`; every value is validated."""
        piece = self._pieces[unit.key]
        if not columns:
            yield pa.RecordBatch.from_arrays([pa.nulls(piece.rows)], ["rows"])
            return
        fields = [self.schema.field(column) for column in columns]
        names = [self._names[column] for column in columns]
        step = max(1, min(MOST_ROWS, batch_bytes * piece.rows // max(piece.bytes, 1)))
        with self._name_errors(unit.name, piece.files):
            if (opened := self._open().pieces[unit.key].files) != piece.files:
                raise _make_changed_error(piece.files, opened)
            for batch in self._open().read(unit.key, names, step):
                if not batch.num_rows:
                    continue
                batch.validate(full=True)
                arrays = [batch.column(name) for name in names]
                schema = pa.schema(
                    field.with_type(array.type) for field, array in zip(fields, arrays, strict=True)
                )
                chosen = pa.RecordBatch.from_arrays(arrays, schema=schema)
                yield from cut_batch(chosen, batch_bytes)
            for file in piece.files:
                file.check_unchanged()

    def column_bytes(self, path: tuple[int, ...]) -> int | None:
        """Return the bytes of values of one size; None of others, which the log does not tell."""
        kind = self.schema.field(path[0]).type
        for child in path[1:]:
            kind = kind.field(child).type
        width = _get_width(kind)
        return None if width is None else width * sum(piece.rows for piece in self._pieces) // 8

    def summarize(self) -> Any:
        """Return the version, so that all parts of a plan read the same one."""
        return {"version": self._version}

    def fingerprint(self) -> list[dict[str, Any]]:
        """Return the version of the table, and path, size and time of its files."""
        files = [file.describe() for piece in self._pieces for file in piece.files]
        return [{"path": self._path, "version": self._version}, *files]

    def _check_path(self) -> None:
        """Raise SourceUnreadable where there is no table, or it may not be read."""
        if self._remote is not None:
            if find_remote_log(self._remote) is None:
                place = self._remote.place.store.locate(self._remote.key)
                raise SourceNotFound("no such table", file=place, hint="Check the URL.")
            return
        check_readable(self._path)
        if not os.path.exists(self._path):
            raise SourceNotFound("no such table", file=self._path, hint="Check the path.")

    def _open(self) -> Snapshot:
        if self._snapshot is None:
            with self._name_errors(self._path, ()):
                snapshot = self.open_snapshot(TableFolder(self._path, self._remote), self._version)
                check_utf8_names(snapshot.schema)
            self._snapshot = snapshot
        return self._snapshot

    @contextmanager
    def _name_errors(self, what: str, files: Sequence[StoredFile]) -> Iterator[None]:
        """Turn what libraries raise into a named error, SourceChanged where files are others."""
        try:
            yield
        except FieldslabError:
            raise
        except BaseException as error:
            # What is damaged makes libraries raise all kinds of errors, and Rust panic.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            for file in files:
                file.check_unchanged()
            hint = "Check the path and the version, or restore the table."
            raise make_damage_error(error, f"{self.kind} table", what, hint) from error


def _make_changed_error(
    planned: Sequence[StoredFile], opened: Sequence[StoredFile]
) -> SourceChanged:
    files = [*planned, *opened]
    other = next((file for file in planned if file not in opened), files[0])
    return SourceChanged(
        "the file was replaced since the plan was made",
        file=other.path,
        hint="Pack again when nothing writes to it.",
    )


def _get_width(kind: pa.DataType) -> int | None:
    """Return the bits of a value; None where values differ in size."""
    if pa.types.is_fixed_size_list(kind):
        inner = _get_width(kind.value_type)
        return None if inner is None else kind.list_size * inner
    try:
        return int(kind.bit_width)
    except ValueError:
        return None


def make_feature_error(path: str, problem: str, python: str) -> SourceUnsupported:
    """Make the error for a table that its library reads in a way that keeps no order."""
    return SourceUnsupported(
        problem, file=path, hint=f"From Python, this packs it as one stream: pack({python}, ...)."
    )
