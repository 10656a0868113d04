"""What can be packed: the abstract class `Source`, and the lookup by name."""

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from fieldslab.packer.shard_rows import ShardRows
from fieldslab.packer.sources.path_errors import make_path_error
from fieldslab.packer.sources.path_lookup import list_files, name_disk_errors
from fieldslab.packer.sources.remote_kinds import find_kind_of_folders, find_special_kind
from fieldslab.packer.sources.remote_lookup import (
    find_first,
    holds_object,
    is_remote_source,
    split_url,
)
from fieldslab.packer.sources.versioned.table_logs import refuse_files_of_tables, split_version
from fieldslab.schemas.errors import SourceUnreadable, UsageError
from fieldslab.schemas.fields import DtypeName, Logical
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.registry import Registry, make_unknown_name_error
from fieldslab.schemas.renamed import refuse_renamed_methods, refuse_renamed_name


class Unit(NamedTuple):
    """A part of a source that is read in one go, such as a row group. Shards are cut between units.

    `rows` and `bytes` (of data, an estimate) are None where they are known only once the unit is
    read. `key` is for the source itself. `promised` is the number of rows in the metadata, for a
    unit that is cut as it is read. `read_span` compares the rows that it reads with `rows` or
    `promised`. `file` is the file that holds the whole unit, as `fingerprint` names it, or None.
    """

    name: str
    rows: int | None
    bytes: int | None
    key: Any
    promised: int | None = None
    file: str | None = None


@dataclass(frozen=True)
class ColumnHint:
    """What a source knows about a column beyond its Arrow type.

    Attributes
    ----------
    dtype
        What the column's scalars are stored as, where Arrow has no type of that name: complex
        numbers come as fixed_size_binary, bools as uint8, and binary of `uint8` is ragged unless
        it holds images.
    logical
        What the numbers stand for.
    attributes
        Kept with the field: JSON-ready.
    why
        The type as the source calls it, for people.
    image
        Whether the bytes are images, whatever they look like.
    refusal
        Why the column cannot be packed, and what to do about it; `{}` is the column's name.
    """

    dtype: DtypeName | None = None
    logical: Logical | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""
    image: bool = False
    refusal: tuple[str, str] | None = None


class Source(ABC):
    """Data to pack: a schema, a list of units, and a stream of record batches for each unit.

    `pack` calls `cls(paths)` with the paths that the user gave. Keyword-only parameters of the
    constructor are settings, which `pack(..., settings={...})` passes on. Three are exceptions:
    `tolerant` is true if rows with damaged images are left out; a source with this parameter
    then returns values that are not images like any other value. `storage_options` are for stores
    that URLs name; they may hold credentials, so a source keeps them in a `StorePlace` alone.
    `summary` is explained at `summarize`.

    The constructor reads only metadata, and sets `schema` and `units`. A class must have a `name`
    and define `read` and `fingerprint`; everything else has a default. Other packages register
    their sources under the entry point `fieldslab.sources`.

    Sources raise the errors of `fieldslab.schemas.errors`, with file and row. They never unpickle,
    evaluate or import what they read. Packing in several processes pickles a
    rereadable source, so keep open files out of its state.
    """

    name: str
    """The name that `--from` takes."""
    rereadable: bool = False
    """Whether `read` may be called again for a unit, so that a pack can be resumed."""
    schema: pa.Schema
    """Columns, with names made unique; metadata as in the source."""
    units: Sequence[Unit]
    """What is read, in order. `check` may change them."""
    attributes: Mapping[str, Any] = {}
    """The source's own attributes, ready for JSON. They are kept in the manifest."""
    suffixes: Sequence[str] = ()
    """How the names of its files end, in lower case."""
    shards: ShardRows | None = None
    """How the slab was cut that the source was exported from."""
    settings: Mapping[str, Any] = {}
    """Settings that decide what is read, ready for JSON; kept in the manifest."""
    hints: Mapping[int, ColumnHint] = {}
    """What the Arrow type of a column does not say, by the index of the column."""
    libraries: Sequence[str] = ()
    """Packages that decide which values `read` gives, beside numpy and pyarrow. A shard is not
    taken over by a later run that has other versions of them."""
    warnings: Sequence[str] = ()
    """What to warn the user about before anything is read. `pack` asks after `check`."""
    endings: Sequence[str] = ()
    """What to warn the user about after everything was read."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        refuse_renamed_methods(Source, cls)

    @staticmethod
    def accepts(paths: list[str]) -> bool:
        """Tell whether these paths are a source of this kind; called if the user names none."""
        return False

    @abstractmethod
    def read(self, unit: Unit, columns: list[int], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Read the rows of a unit: columns by ascending index, in batches near `batch_bytes`."""

    @abstractmethod
    def fingerprint(self) -> list[dict[str, Any]]:
        """Return a dict for each file: path, size and time; equal while the source is unchanged."""

    def sample(self, columns: list[int]) -> list[pa.RecordBatch]:
        """Sample a few rows of these columns from the start, the middle and the end of the source.

        By default empty for a source that cannot be read again: it would lose the rows it samples.
        """
        return sample_units(self, self.units, columns) if self.rereadable else []

    def null_count(self, path: tuple[int, ...]) -> int | None:
        """Return the number of nulls at a path by the metadata; None if the metadata does not say.

        A path is the index of a column, then of struct children.
        """
        return None

    def column_bytes(self, path: tuple[int, ...]) -> int | None:
        """Estimate the bytes of data at a path from metadata; None if it does not say."""
        return None

    def summarize(self) -> Any:
        """Return what a plan file is to keep of the metadata of all files, ready for JSON, or None.

        Where a part of the plan is packed, the constructor gets it as `summary`. The source then
        need not look into files that the part does not read; `fingerprint` still tells of all.
        """
        return None

    def apply_casts(self, casts: Mapping[str, str]) -> None:  # noqa: B027
        """Take what `--cast` makes of columns, if types are inferred: it may be read otherwise."""

    def check(self, columns: list[int]) -> None:  # noqa: B027  # most have nothing to check
        """Raise SourceInconsistent where the parts of the source differ in these columns."""

    def check_default_columns(self, columns: list[int]) -> None:  # noqa: B027
        """Raise for columns that are packed by default and are probably not needed."""

    def file_of(self, row: int) -> str | None:
        """Return the file that a row comes from, if each row is a file."""
        return None


SOURCES = Registry(
    "source",
    "fieldslab.sources",
    {
        "delta": "fieldslab.packer.sources.versioned.delta:DeltaSource",
        "iceberg": "fieldslab.packer.sources.versioned.iceberg:IcebergSource",
        "lance": "fieldslab.packer.sources.versioned.lance:LanceSource",
        "zarr": "fieldslab.packer.sources.zarr.source:ZarrSource",
        "litdata": "fieldslab.packer.sources.litdata.source:LitDataOpener",
        "parquet": "fieldslab.packer.sources.parquet.source:ParquetSource",
        "ipc": "fieldslab.packer.sources.ipc.source:IpcSource",
        "orc": "fieldslab.packer.sources.orc:OrcSource",
        "arrow": "fieldslab.packer.sources.arrow:ArrowSource",
        "hdf5": "fieldslab.packer.sources.hdf5.source:HDF5Source",
        "images": "fieldslab.packer.sources.images.source:ImageSource",
        "csv": "fieldslab.packer.sources.text.csv:CsvSource",
        "jsonl": "fieldslab.packer.sources.text.jsonl:JsonLinesSource",
        "webdataset": "fieldslab.packer.sources.webdataset:WebDatasetSource",
        "npy": "fieldslab.packer.sources.npy.source:NpySource",
        "slab": "fieldslab.packer.sources.slab_source:SlabSource",
    },
    option="from_",
    base=Source,
)
"""Every kind of source, in the order in which they are asked whether they accept a path."""


_OF_STORES = ("parquet", "ipc", "orc", "images", "csv", "jsonl", "webdataset", "npy")
"""Sources whose files may be objects of stores."""


@name_disk_errors()
def find_source(
    data: Any,
    name: str | None = None,
    settings: Mapping[str, Any] | None = None,
    *,
    tolerant: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    summary: Any = None,
) -> Source:
    """Find the source for the user's input: paths, URLs and globs, or an object in memory.

    Where rows with damaged images are left out, it is `tolerant`. `summary` is what `summarize` of
    the same source returned.

    Raises
    ------
    UsageError
        No source of this name, or a setting that the source does not know.
    SourceUnreadable
        No source accepts it.
    AccessDenied, RemoteUnreadable, MissingLibrary
        A store refuses, fails, or needs a library.
    """
    arguments = {"tolerant": tolerant, "storage_options": storage_options, "summary": summary}
    items = [data] if isinstance(data, str) or hasattr(data, "__fspath__") else data
    paths = isinstance(items, Sequence) and all(
        isinstance(item, str) or hasattr(item, "__fspath__") for item in items
    )
    if type(data).__module__ == "fieldslab.reader.slab":  # which this layer may not import
        return _make_source(SOURCES.load("slab"), data, settings, arguments)
    if not paths:
        return _make_source(SOURCES.load("arrow"), data, settings, arguments)
    if not items:
        raise UsageError(
            "no source given",
            hint="Pass paths, or rows as dicts. For a dataset without rows, pass an empty table, "
            "which has a schema: pyarrow.schema(...).empty_table().",
        )
    items = [os.fspath(item) for item in items]
    if "" in items:
        raise UsageError("an empty path", hint="Name files, globs or directories.")
    if name is not None:
        return _make_source(SOURCES.load(name), items, settings, arguments)
    if is_remote_source(items[0]) and (name := _find_remote_kind(items[0], storage_options)):
        kind = SOURCES.load(name)
        refuse_files_of_tables(kind, items, storage_options)
        return _make_source(kind, items, settings, arguments)
    kind = _find_kind(items)
    if kind is None:
        raise _make_no_source_error(items[0])
    kind = _settle_mixed_folder(kind, items)
    for item in items[1:]:
        item_kind = kind if kind.accepts([item]) else _find_kind([item])
        if item_kind is not None and item_kind is not kind:
            raise UsageError(
                "sources of one slab must be of one kind",
                file=item,
                expected=f"{kind.name}, as {items[0]}",
                found=item_kind.name,
                hint="Pack each kind into a slab of its own.",
            )
    refuse_files_of_tables(kind, items, storage_options)
    return _make_source(kind, items, settings, arguments)


def _find_kind(items: list[str]) -> type[Source] | None:
    """Find the class of the sources that accept these paths; None where none does."""
    for name in SOURCES:
        try:
            kind: type[Source] = SOURCES.load(name)
        except UsageError:
            if name in SOURCES.built_in:
                raise
            continue  # it may have nothing to do with these paths; `_make_no_source_error` tells
        if kind.accepts(items):
            return kind
    return None


def _find_remote_kind(url: str, storage_options: Mapping[str, Any] | None) -> str | None:
    """Find the name of the sources that a URL is read by; None to ask each as for paths."""
    remote = split_url(url, storage_options)
    kinds = {suffix: name for name in _OF_STORES for suffix in SOURCES.load(name).suffixes}
    if not remote.key.lower().endswith(tuple(kinds)) and (name := find_special_kind(remote)):
        return name
    key = find_first(remote, tuple(kinds))
    if key != remote.key and not remote.has_magic and holds_object(remote, "index.json"):
        return "litdata"  # which downloads it by itself
    if key is None:
        table, version = split_version(url)
        if version is not None:
            return find_special_kind(split_url(table, storage_options))
        return find_kind_of_folders(remote)
    return next(kind for suffix, kind in kinds.items() if key.lower().endswith(suffix))


def _settle_mixed_folder(kind: type[Source], items: list[str]) -> type[Source]:
    """Return images for a folder of them where the only Parquet is `metadata.parquet` beside them.

    Raises UsageError for any other folder of Parquet or HDF5 that holds images, too.
    """
    if kind.name not in ("parquet", "hdf5"):
        return kind
    images: type[Source] = SOURCES.load("images")
    for item in items:
        if os.path.isdir(item) and images.accepts([item]):
            tables = list_files(item, kind.suffixes, kind.name)
            if {os.path.basename(table).lower() for table in tables} == {"metadata.parquet"}:
                return images
            raise UsageError(
                f"holds both {kind.name} files and images",
                file=item,
                hint=f"Say which of them to pack: {mark_option('from_', kind.name)}, or "
                f"{mark_option('from_', 'images')}.",
            )
    return kind


def _make_no_source_error(path: str) -> SourceUnreadable:
    """Make the error for a path that no source accepts; it names sources that cannot be loaded."""
    error = make_path_error(path)
    for name in SOURCES.find_plugins():
        try:
            SOURCES.load(name)
        except UsageError as broken:
            error.add_hint(f"{broken.statement[0].upper()}{broken.statement[1:]}.")
    return error


def _make_source(
    cls: Any, data: Any, settings: Mapping[str, Any] | None, arguments: Mapping[str, Any]
) -> Source:
    parameters = inspect.signature(cls).parameters.values()
    keywords = [
        parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY
    ]
    settings_of_kind = [name for name in keywords if name not in arguments]
    for setting in settings or {}:
        if setting not in settings_of_kind:
            problem = f"{mark_option(setting)}: {cls.name} sources have no such setting"
            raise make_unknown_name_error(problem, setting, settings_of_kind)
    common_arguments = {name: value for name, value in arguments.items() if name in keywords}
    return cls(data, **common_arguments, **(settings or {}))


SAMPLE_ROWS = 16
SAMPLE_BYTES = 2**20
"""Most rows that `sample` reads from each place; fewer if they are large, but at least one."""


def sample_units(source: Source, units: Sequence[Unit], columns: list[int]) -> list[pa.RecordBatch]:
    """Sample some units of a source that can be read again; see `Source.sample`."""
    count = len(units)
    starts = sorted({0, count // 2, count - 1}) if count else []
    return [batch for start in starts for batch in _read_first_rows(source, units[start:], columns)]


def _read_first_rows(
    source: Source, units: Sequence[Unit], columns: list[int]
) -> Iterator[pa.RecordBatch]:
    rows = size = 0
    for unit in units:
        for batch in source.read(unit, columns, SAMPLE_BYTES):
            head = batch.slice(0, SAMPLE_ROWS - rows)
            yield head
            rows += head.num_rows
            size += head.nbytes
            if rows >= SAMPLE_ROWS or size >= SAMPLE_BYTES:
                return


def __getattr__(name: str) -> Any:
    refuse_renamed_name(__name__, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
