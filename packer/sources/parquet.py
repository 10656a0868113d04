"""Parquet files, globs of them, and directories with hive partitions."""

import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from fieldslab.packer.source import Unit, sample_units
from fieldslab.schemas.errors import (
    SourceChanged,
    SourceInconsistent,
    SourceUnreadable,
    UsageError,
)

SUFFIXES = (".parquet", ".pq", ".parq")
MAGIC = (b"PAR1", b"PARE")
BATCH_ROWS = 65_536
READ_BUFFER = 1 << 20

_NOT_OURS = {b"ARROW:schema", b"pandas", b"huggingface"}


class _File(NamedTuple):
    path: str
    metadata: pq.FileMetaData
    schema: pa.Schema
    partition: dict[str, Any]
    size: int
    modified: int


class ParquetSource:
    """Row groups of one or many Parquet files. See `fieldslab.packer.source.Source`."""

    name = "parquet"
    rereadable = True

    def __init__(self, paths: list[str]) -> None:
        """Open every file's footer.

        Raises SourceUnreadable where one is missing, damaged or encrypted.
        """
        found = _discover(paths)
        partitions = _partitions([path for path, _ in found])
        self._files = [
            _open_footer(path, partitions.get(path, {}) if from_directory else {})
            for path, from_directory in found
        ]
        first = self._files[0]
        fields = list(first.schema)
        fields += [pa.field(key, pa.scalar(value).type) for key, value in first.partition.items()]
        names = _unique_names(fields)
        fields = [field.with_name(name) for field, name in zip(fields, names, strict=True)]
        self.schema = pa.schema(fields, first.schema.metadata)
        self.attributes = _attributes(first.schema)
        self._leaves = _leaf_ranges(first.schema)
        self.units: Sequence[Unit] = [
            Unit(
                f"{file.path} row group {group}",
                file.metadata.row_group(group).num_rows,
                file.metadata.row_group(group).total_byte_size,
                (number, group),
            )
            for number, file in enumerate(self._files)
            for group in range(file.metadata.num_row_groups)
            if file.metadata.row_group(group).num_rows
        ]

    @staticmethod
    def accepts(paths: list[str]) -> bool:
        """Whether the first path looks like Parquet, by its name or its first four bytes."""
        try:
            first = _discover(paths[:1])[0][0]
            with open(first, "rb") as file:
                return first.endswith(SUFFIXES) or file.read(4) in MAGIC
        except (OSError, SourceUnreadable):
            return bool(paths) and paths[0].endswith(SUFFIXES)

    def read(self, unit: Unit, columns: list[int], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Decode one row group batch by batch; page checksums are verified where present."""
        number, group = unit.key
        file = self._files[number]
        inside = [column for column in columns if column < len(file.schema)]
        names = self.schema.names
        with _reading(unit.name), self._open(file) as parquet:
            rows = self._batch_rows(file.metadata, group, inside, batch_bytes)
            wanted = [self.schema.field(column).name for column in inside]
            positions = {name: at for at, name in enumerate(_unique_names(list(file.schema)))}
            whole = _ambiguous(file.schema.names)
            for batch in parquet.iter_batches(
                rows, row_groups=[group], columns=None if whole else wanted
            ):
                arrays = [
                    batch.column(positions[name]) if whole else batch.column(name)
                    for name in wanted
                ]
                for column in columns[len(inside) :]:
                    value = file.partition[names[column]]
                    arrays.append(pa.repeat(pa.scalar(value), batch.num_rows))
                fields = [
                    self.schema.field(column).with_type(array.type)
                    for column, array in zip(columns, arrays, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
        self._check_unchanged(file)

    def sample(self, column: int) -> list[pa.Array]:
        """The first values of the first, the middle and the last row group."""
        return sample_units(self, column)

    def null_count(self, path: tuple[int, ...]) -> int | None:
        """From the row groups' statistics; None inside lists and where a group has none."""
        if path[0] >= len(self._leaves):
            return 0
        leaf = _leaf_at(self.schema.field(path[0]).type, path[1:])
        if leaf is None:
            return None
        total = 0
        for file in self._files:
            for group in range(file.metadata.num_row_groups):
                column = file.metadata.row_group(group).column(self._leaves[path[0]][leaf])
                statistics = column.statistics
                if statistics is None or not statistics.has_null_count:
                    return None
                total += int(statistics.null_count)
        return total

    def check(self, columns: list[int]) -> None:
        """Raise SourceInconsistent where a file's columns are not those of the first file."""
        first = self._files[0]
        expected = {self.schema.field(c).name: self.schema.field(c).type for c in columns}
        for file in self._files[1:]:
            names = _unique_names(list(file.schema))
            types = dict(zip(names, file.schema.types, strict=True))
            types |= {key: pa.scalar(value).type for key, value in file.partition.items()}
            lines = [
                f"{name}: {kind} there, {types.get(name, 'missing')} here"
                for name, kind in expected.items()
                if types.get(name) != kind
            ]
            if len(expected) == len(self.schema):
                lines += [f"{name}: only here" for name in types if name not in expected]
            if lines:
                raise SourceInconsistent(
                    f"columns differ from those of {first.path}: {'; '.join(lines)}",
                    file=file.path,
                    hint="Pack the files apart, or choose common columns with --fields/--exclude.",
                )

    def fingerprint(self) -> list[dict[str, Any]]:
        """Path, size and time of each file."""
        return [{"path": f.path, "bytes": f.size, "modified": f.modified} for f in self._files]

    def column_bytes(self, column: int) -> int:
        """Encoded bytes of a column before compression, from the footers."""
        if column >= len(self._leaves):
            return 0
        return sum(
            file.metadata.row_group(group).column(leaf).total_uncompressed_size
            for file in self._files
            for group in range(file.metadata.num_row_groups)
            for leaf in self._leaves[column]
        )

    def _open(self, file: _File) -> pq.ParquetFile:
        return pq.ParquetFile(
            file.path,
            metadata=file.metadata,
            pre_buffer=False,
            buffer_size=READ_BUFFER,
            page_checksum_verification=True,
            arrow_extensions_enabled=True,
        )

    def _batch_rows(
        self, metadata: pq.FileMetaData, group: int, columns: list[int], batch_bytes: int
    ) -> int:
        info = metadata.row_group(group)
        leaves = [leaf for column in columns for leaf in self._leaves[column]]
        size = sum(info.column(leaf).total_uncompressed_size for leaf in leaves)
        return min(BATCH_ROWS, max(1, batch_bytes * info.num_rows // max(size, 1)))

    def _check_unchanged(self, file: _File) -> None:
        try:
            info = os.stat(file.path)
        except OSError as error:
            raise SourceChanged("the file went away while it was read", file=file.path) from error
        if (info.st_size, info.st_mtime_ns) != (file.size, file.modified):
            raise SourceChanged(
                "the file changed while it was read",
                file=file.path,
                hint="Pack again when nothing writes to it.",
            )


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Turn what pyarrow raises on bad files into a named error."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        text = " ".join(str(error).split())
        encrypted = "crypt" in text.lower()
        raise SourceUnreadable(
            f"{'encrypted' if encrypted else 'damaged or unreadable'} Parquet: {text}".rstrip("."),
            file=what,
            hint="Decrypt it first." if encrypted else "Write or download the file again.",
        ) from error


def _open_footer(path: str, partition: dict[str, Any]) -> _File:
    with _reading(path):
        info = os.stat(path)
        with pq.ParquetFile(path, arrow_extensions_enabled=True) as file:
            return _File(
                path, file.metadata, file.schema_arrow, partition, info.st_size, info.st_mtime_ns
            )


def _discover(paths: list[str]) -> list[tuple[str, bool]]:
    """Files in the order given, globs and directories sorted; True for those of a directory."""
    found: list[tuple[str, bool]] = []
    for path in paths:
        inside: list[str] = []
        if os.path.isdir(path):
            inside = sorted(str(file) for file in Path(path).rglob("*") if _packable(file, path))
        elif os.path.exists(path):
            inside = [path]
        else:
            inside = sorted(
                name for name in glob.glob(path, recursive=True) if os.path.isfile(name)
            )
        if not inside:
            raise SourceUnreadable(
                "no such file" if not os.path.isdir(path) else "no Parquet files in here", file=path
            )
        found += [(name, os.path.isdir(path)) for name in inside]
    if not found:
        raise UsageError("no source given", hint="Name files, globs or directories.")
    return found


def _packable(file: Path, directory: str) -> bool:
    hidden = any(part.startswith((".", "_")) for part in file.relative_to(directory).parts)
    return file.suffix in SUFFIXES and not hidden and file.is_file()


def _partitions(paths: list[str]) -> dict[str, dict[str, Any]]:
    """Hive partition values (`year=2024/`) of each path."""
    if not any("=" in path for path in paths):
        return {}
    folders = [os.path.dirname(path) for path in paths]
    factory = ds.HivePartitioning.discover(infer_dictionary=False)
    schema = factory.inspect([folder + "/" for folder in folders])
    partitioning = ds.HivePartitioning(schema)
    return {
        path: dict(ds.get_partition_keys(partitioning.parse(folder + "/")))
        for path, folder in zip(paths, folders, strict=True)
    }


def _unique_names(fields: list[pa.Field]) -> list[str]:
    """Names in order; the second `a` becomes `a#2`."""
    seen: dict[str, int] = {}
    names = []
    for field in fields:
        seen[field.name] = seen.get(field.name, 0) + 1
        count = seen[field.name]
        names.append(field.name if count == 1 else f"{field.name}#{count}")
    return names


def _ambiguous(names: list[str]) -> bool:
    """Whether a column cannot be chosen by name: twice the same, or `a.b` beside a struct `a`."""
    heads = set(names)
    return len(heads) < len(names) or any(
        name.rpartition(".")[0] in heads for name in names if "." in name
    )


def _leaf_ranges(schema: pa.Schema) -> list[range]:
    """The Parquet leaf columns of each Arrow column."""
    ranges, first = [], 0
    for field in schema:
        count = _leaf_count(field.type)
        ranges.append(range(first, first + count))
        first += count
    return ranges


def _leaf_count(kind: pa.DataType) -> int:
    if isinstance(kind, pa.BaseExtensionType):
        return _leaf_count(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return 1
    return sum(_leaf_count(kind.field(i).type) for i in range(kind.num_fields)) or 1


def _leaf_at(kind: pa.DataType, path: tuple[int, ...]) -> int | None:
    """Which leaf of a column a path leads to; None where it ends at a nested type."""
    leaf = 0
    for child in path:
        leaf += sum(_leaf_count(kind.field(i).type) for i in range(child))
        kind = kind.field(child).type
    return None if pa.types.is_nested(kind) else leaf


def _attributes(schema: pa.Schema) -> dict[str, Any]:
    found = {}
    for key, value in (schema.metadata or {}).items():
        if key not in _NOT_OURS:
            found[key.decode(errors="replace")] = value.decode(errors="replace")
    return found
