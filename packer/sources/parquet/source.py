"""Parquet files, globs of them, and directories with hive partitions."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from fieldslab.packer.column_names import make_names_unique
from fieldslab.packer.convert.dense import is_list
from fieldslab.packer.source import ColumnHint, Source, Unit, sample_units
from fieldslab.packer.sources.local_file import LocalFile
from fieldslab.packer.sources.parquet.footers import (
    MAGIC,
    ParquetPart,
    ParquetParts,
    count_leaves,
    open_parts,
)
from fieldslab.packer.sources.parquet.parquet_files import SUFFIXES, find_files
from fieldslab.packer.sources.parquet.row_groups import read_row_group
from fieldslab.packer.sources.path_lookup import NoFiles
from fieldslab.packer.sources.remote_file import RemoteFile
from fieldslab.packer.sources.remote_lookup import is_remote_source
from fieldslab.schemas.errors import SourceInconsistent
from fieldslab.schemas.optiontext import mark_option

_EMPTY_STRUCT = ColumnHint(
    refusal=(
        "a group without members holds no values, and pyarrow cannot read the columns next to it",
        f"{mark_option('exclude', ['{}'])} leaves it out.",
    )
)
_NOT_OURS = {b"ARROW:schema", b"pandas", b"huggingface"}


class ParquetSource(Source):
    """Row groups of one or many Parquet files."""

    name = "parquet"
    rereadable = True
    suffixes = SUFFIXES

    def __init__(
        self,
        paths: list[str],
        *,
        storage_options: Mapping[str, Any] | None = None,
        summary: Any = None,
    ) -> None:
        """Open every file's footer; with the summary of all, each when it is first needed.

        Raises SourceUnreadable where one is missing, damaged or encrypted, and for URLs what
        stores raise.
        """
        self._summarized = summary is not None
        if summary is None:
            self._parts = open_parts(paths, storage_options)
            summary = {"groups": [part.list_groups() for part in self._parts], "known": {}}
        else:
            self._parts = ParquetParts(paths, storage_options)
        self._groups: list[list[list[int]]] = summary["groups"]
        self._known: dict[str, int | None] = summary["known"]
        first = self._parts[0]
        fields = [
            field.with_name(name)
            for field, name in zip(first.schema, make_names_unique(first.schema.names), strict=True)
        ]
        fields += [pa.field(key, value.type) for key, value in first.partition.items()]
        self.schema = pa.schema(fields, first.schema.metadata)
        self.hints = dict.fromkeys(first.empty_struct_columns, _EMPTY_STRUCT)
        self.attributes = _read_attributes(first.schema)
        self.units = list(_list_units(self._parts.files, self._groups))

    @staticmethod
    def accepts(paths: list[str]) -> bool:
        """Return whether the first path looks like Parquet, by its name or its first four bytes."""
        if is_remote_source(paths[0]):
            return paths[0].lower().endswith(SUFFIXES)
        try:
            first = str(find_files(paths[:1])[0][0])
            if not os.path.isfile(first):  # a pipe would block forever
                return False
            if first.endswith(SUFFIXES):
                return True
            with open(first, "rb") as file:
                return file.read(4) in MAGIC
        except PermissionError:
            return False  # the last source that is asked reports it
        except NoFiles:
            return paths[0].endswith(SUFFIXES)

    def read(self, unit: Unit, columns: list[int], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Decode one row group batch by batch; page checksums are verified where present."""
        number, group = unit.key
        part = self._parts[number]
        fields = [self.schema.field(column) for column in columns]
        inside = sorted(part.columns[field.name] for field in fields if field.name in part.columns)
        places = {position: index for index, position in enumerate(inside)}
        for batch in read_row_group(part, group, inside, batch_bytes, unit.name):
            arrays = []
            for field in fields:
                position = part.columns.get(field.name)
                if position is None:
                    arrays.append(pa.repeat(part.partition[field.name], batch.num_rows))
                else:
                    arrays.append(batch.column(places[position]))
            typed = [field.with_type(a.type) for field, a in zip(fields, arrays, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(typed))

    def sample(self, columns: list[int]) -> list[pa.RecordBatch]:
        """Sample the first rows of the first, the middle and the last row group.

        Files that have other columns are passed over: `check` refuses them all, and says why.
        """
        units = self.units
        if not self._summarized:
            alike = [not self._find_differences(part, columns) for part in self._parts]
            units = [unit for unit in units if alike[unit.key[0]]]
        return sample_units(self, units, columns) if columns else []

    def summarize(self) -> dict[str, Any]:
        """Return rows and bytes of all row groups, and what else the footers were asked for."""
        return {"groups": self._groups, "known": self._known}

    def null_count(self, path: tuple[int, ...]) -> int | None:
        """Count nulls by the row groups' statistics; None in lists, and if a group has none."""
        return self._look_up("nulls", path, self._count_nulls)

    def _count_nulls(self, path: tuple[int, ...]) -> int | None:
        if pa.types.is_nested(self._find_type(path)):
            return None
        total = 0
        for part, leaves in self._find_leaves(path):
            for leaf in leaves:
                for group in range(part.metadata.num_row_groups):
                    statistics = part.get_chunk(group, leaf).statistics
                    if statistics is None or not statistics.has_null_count:
                        return None
                    total += int(statistics.null_count)
        return total

    def column_bytes(self, path: tuple[int, ...]) -> int | None:
        """Return the bytes of the values once decoded, from the footers."""
        return self._look_up("bytes", path, self._estimate_bytes)

    def _look_up(
        self, what: str, path: tuple[int, ...], compute: Callable[[tuple[int, ...]], int | None]
    ) -> int | None:
        """Look up what the footers of all files say together; compute it the first time."""
        key = f"{what} of {path}"
        if key not in self._known:
            self._known[key] = compute(path)
        return self._known[key]

    def _estimate_bytes(self, path: tuple[int, ...]) -> int:
        return sum(
            part.estimate_leaf_bytes(group, leaf)
            for part, leaves in self._find_leaves(path)
            for group in range(part.metadata.num_row_groups)
            for leaf in leaves
        )

    def check(self, columns: list[int]) -> None:
        """Raise SourceInconsistent where a file's columns are not those of the first file."""
        for part in () if self._summarized else islice(self._parts, 1, None):
            lines = self._find_differences(part, columns)
            if len(columns) == len(self.schema):
                known = set(self.schema.names)
                lines += [f"{name}: only here" for name in part.names if name not in known]
            if lines:
                raise SourceInconsistent(
                    f"columns differ from those of {self._parts[0].path}: {'; '.join(lines)}",
                    file=part.path,
                    hint="Pack the files apart, or choose common columns with "
                    f"{mark_option('fields')} or {mark_option('exclude')}.",
                )

    def fingerprint(self) -> list[dict[str, Any]]:
        """Return path and size of each file, and its time, or the ETag of an object."""
        return [file.describe() for file in self._parts.files]

    def _find_differences(self, part: ParquetPart, columns: list[int]) -> list[str]:
        """Find the columns that a file lacks, or has with another type than the first file."""
        lines = []
        for column in columns:
            name = self.schema.field(column).name
            expected, actual = self.schema.field(column).type, part.get_type(name)
            if actual is None or _relax_type(actual) != _relax_type(expected):
                lines.append(f"{name}: {expected} there, {actual or 'missing'} here")
        return lines

    def _find_type(self, path: tuple[int, ...]) -> pa.DataType:
        kind = self.schema.field(path[0]).type
        for child in path[1:]:
            kind = _unwrap_extension(kind).field(child).type
        return _unwrap_extension(kind)

    def _find_leaves(self, path: tuple[int, ...]) -> Iterator[tuple[ParquetPart, range]]:
        """Find the leaf columns below a path, in each file that is like the first."""
        field = self.schema.field(path[0])
        kind, skipped = field.type, 0
        for child in path[1:]:
            kind = _unwrap_extension(kind)
            skipped += sum(count_leaves(kind.field(index).type) for index in range(child))
            kind = kind.field(child).type
        count = count_leaves(kind)
        for part in self._parts:
            if field.name in part.columns and not self._find_differences(part, [path[0]]):
                start = part.leaves[part.columns[field.name]].start + skipped
                yield part, range(start, start + count)


def _list_units(
    files: Sequence[LocalFile | RemoteFile], groups: Sequence[list[list[int]]]
) -> Iterator[Unit]:
    for number, (file, file_groups) in enumerate(zip(files, groups, strict=False)):
        path = file.path
        for group, (rows, size) in enumerate(file_groups):
            if rows:
                yield Unit(f"{path} row group {group}", rows, size, (number, group), file=path)


def _unwrap_extension(kind: pa.DataType) -> pa.DataType:
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind


def _relax_type(kind: pa.DataType) -> pa.DataType:
    """Remove from a type what may differ between files: widths of offsets, inner nullability."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return kind
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_fixed_size_list(kind):
        return pa.list_(_relax_type(kind.value_type), kind.list_size)
    if types.is_dictionary(kind):
        return pa.dictionary(pa.int32(), _relax_type(kind.value_type), kind.ordered)
    if types.is_struct(kind):
        return pa.struct([(field.name, _relax_type(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_relax_type(kind.key_type), _relax_type(kind.item_type))
    if is_list(kind):
        return pa.list_(_relax_type(kind.value_type))
    return kind


def _read_attributes(schema: pa.Schema) -> dict[str, Any]:
    attributes = {}
    for key, value in (schema.metadata or {}).items():
        if key not in _NOT_OURS:
            attributes[key.decode(errors="replace")] = value.decode(errors="replace")
    return attributes
