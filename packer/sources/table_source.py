"""Tables in files: what sources like Parquet, Arrow IPC and CSV share.

Such a source is a class that derives from `TableSource` and says how a file is opened, and how a
part of it is read. Which files are meant, hive partitions, differences between files, plans and
fingerprints are here.
"""

import base64
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar

import pyarrow as pa

from fieldslab.packer.column_names import make_names_unique
from fieldslab.packer.convert.dense import is_list
from fieldslab.packer.shard_rows import SHARDS_KEY, decode_shards
from fieldslab.packer.source import Source, Unit, sample_units
from fieldslab.packer.sources.path_lookup import NoFiles
from fieldslab.packer.sources.remote_lookup import is_remote_source
from fieldslab.packer.sources.table_files import AnyFile, TableFile, TableFiles, find_files
from fieldslab.packer.sources.widening import widen_schema, widen_type
from fieldslab.schemas.errors import SourceInconsistent, UsageError
from fieldslab.schemas.optiontext import mark_option

_NOT_OURS = {b"ARROW:schema", b"pandas", b"huggingface", SHARDS_KEY}


class TableSource(Source):
    """Parts of one or many files with rows and columns."""

    rereadable = True
    kind: ClassVar[str]
    """What its files are called, for people."""
    magic: ClassVar[tuple[bytes, ...]] = ()
    """How files of this kind begin, whatever their name is; all of one length."""

    def __init__(
        self,
        paths: list[str],
        *,
        unify: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        summary: Any = None,
    ) -> None:
        """Open every file; with the summary of all, each when it is first needed.

        `unify="widen"` makes one schema of those of all files. Raises UsageError for anything else,
        SourceUnreadable where a file is missing or damaged, and for URLs what stores raise.
        """
        if unify not in (None, "widen"):
            raise UsageError(f"{mark_option('unify')}: must be 'widen'", found=repr(unify))
        self.settings = {} if unify is None else {"unify": unify}
        self._unified = unify is not None
        self._summarized = summary is not None
        places = find_files(paths, self.suffixes, self.kind, storage_options)
        self._files: TableFiles[Any] = TableFiles(places, self.open_table)
        if summary is None:
            self._files.open_all()
            summary = {"groups": [file.list_units() for file in self._files], "known": {}}
        self._groups: list[list[list[Any]]] = summary["groups"]
        self._known: dict[str, Any] = summary["known"]
        first = self._files[0]
        fields = [
            field.with_name(name)
            for field, name in zip(first.schema, make_names_unique(first.schema.names), strict=True)
        ]
        fields += [pa.field(key, value.type) for key, value in first.partition.items()]
        self.schema = pa.schema(fields, first.schema.metadata)
        self.attributes = _read_attributes(first.schema)
        self.shards = decode_shards((first.schema.metadata or {}).get(SHARDS_KEY))
        if self._unified:
            self.widen_columns()
        self.units = list(self._list_units())

    @abstractmethod
    def open_table(self, file: AnyFile) -> TableFile:
        """Open one file, and read its metadata alone. Called in threads.

        Raises SourceUnreadable where it is damaged.
        """

    @abstractmethod
    def read_table(
        self, table: Any, unit: Unit, positions: list[int], batch_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Read the columns at some positions of a file, ascending; without any, rows alone.

        The key of a unit is the number of its file, and which it is of those that `list_units`
        lists. Raises SourceUnreadable or SourceChanged, which name the unit.
        """

    def name_unit(self, path: str, unit: int) -> str:
        """Return what a unit of a file is called, for people."""
        return f"{path} part {unit}"

    @classmethod
    def accepts(cls, paths: list[str]) -> bool:
        """Return whether the first path looks like this kind, by its name or its first bytes."""
        if is_remote_source(paths[0]):
            return paths[0].lower().endswith(tuple(cls.suffixes))
        try:
            first = str(find_files(paths[:1], cls.suffixes, cls.kind)[0][0])
            if not os.path.isfile(first):  # a pipe would block forever
                return False
            if first.lower().endswith(tuple(cls.suffixes)):
                return True
            with open(first, "rb") as file:
                return bool(cls.magic) and file.read(len(cls.magic[0])) in cls.magic
        except PermissionError:
            return False  # the last source that is asked reports it
        except NoFiles:
            return paths[0].lower().endswith(tuple(cls.suffixes))

    def read(self, unit: Unit, columns: list[int], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Read one unit batch by batch, with the values of its partition."""
        table = self._files[unit.key[0]]
        fields = [self.schema.field(column) for column in columns]
        inside = sorted(
            table.columns[field.name] for field in fields if field.name in table.columns
        )
        places = {position: place for place, position in enumerate(inside)}
        for batch in self.read_table(table, unit, inside, batch_bytes):
            arrays = []
            for field in fields:
                position = table.columns.get(field.name)
                if position is not None:
                    arrays.append(batch.column(places[position]))
                elif field.name in table.partition:
                    arrays.append(pa.repeat(table.partition[field.name], batch.num_rows))
                else:
                    arrays.append(pa.nulls(batch.num_rows, field.type))
                if self._unified and _relax_type(arrays[-1].type) != _relax_type(field.type):
                    arrays[-1] = arrays[-1].cast(field.type)
            typed = [field.with_type(a.type) for field, a in zip(fields, arrays, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(typed))

    def sample(self, columns: list[int]) -> list[pa.RecordBatch]:
        """Sample the first rows of the first, the middle and the last unit.

        Files that have other columns are passed over: `check` refuses them all, and says why.
        """
        units = self.units
        if not self._summarized:
            alike = [not self.find_differences(file, columns) for file in self._files]
            units = [unit for unit in units if alike[unit.key[0]]]
        return sample_units(self, units, columns) if columns else []

    def summarize(self) -> dict[str, Any]:
        """Return rows and bytes of all units, and what else all files were asked for."""
        return {"groups": self._groups, "known": self._known}

    def check(self, columns: list[int]) -> None:
        """Raise SourceInconsistent where a file's columns are not those of the first file."""
        for file in () if self._summarized else islice(self._files, 1, None):
            lines = self.find_differences(file, columns)
            if len(columns) == len(self.schema):
                names = set(self.schema.names)
                lines += [f"{name}: only here" for name in file.names if name not in names]
            if lines:
                advice = f" {mark_option('unify', 'widen')} joins them." if self._fits(file) else ""
                raise SourceInconsistent(
                    f"columns differ from those of {self._files[0].path}: {'; '.join(lines)}",
                    file=file.path,
                    hint="Pack the files apart, or choose common columns with "
                    f"{mark_option('fields')} or {mark_option('exclude')}.{advice}",
                )

    def fingerprint(self) -> list[dict[str, Any]]:
        """Return path and size of each file, and its time, or the ETag of an object."""
        return [file.describe() for file in self._files.files]

    def find_differences(self, file: TableFile, columns: Sequence[int]) -> list[str]:
        """Find the columns that a file lacks, or has with another type than the first file."""
        lines = []
        for column in columns:
            name = self.schema.field(column).name
            expected, actual = self.schema.field(column).type, file.get_type(name)
            if self._unified and (actual is None or widen_type(expected, actual) == expected):
                continue
            if actual is None or _relax_type(actual) != _relax_type(expected):
                lines.append(f"{name}: {expected} there, {actual or 'missing'} here")
        return lines

    def _fits(self, file: TableFile) -> bool:
        """Return whether `unify` would join a file with the first one."""
        kinds = [(self._files[0].get_type(name), file.get_type(name)) for name in file.names]
        return not self._unified and all(
            first is None or _relax_type(first) == _relax_type(kind) or widen_type(first, kind)
            for first, kind in kinds
        )

    def widen_columns(self) -> None:
        """Make the schema that of all files."""
        if "schema" not in self._known:
            columns = dict(zip(self.schema.names, self.schema.types, strict=True))
            kinds, lines = widen_schema(columns, self._files)
            data = pa.schema(list(kinds.items())).serialize().to_pybytes()
            self._known |= {"schema": base64.b64encode(data).decode(), "widened": lines}
        data = base64.b64decode(self._known["schema"])
        self.schema = pa.ipc.read_schema(pa.py_buffer(data)).with_metadata(self.schema.metadata)
        self.warnings = tuple(self._known["widened"])

    def _list_units(self) -> Iterator[Unit]:
        for number, (file, units) in enumerate(zip(self._files.files, self._groups, strict=False)):
            for index, (rows, size, *_) in enumerate(units):
                if rows != 0:
                    name = self.name_unit(file.path, index)
                    yield Unit(name, rows, size, (number, index), file=file.path)


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
