"""What can be packed: the `Source` protocol, and the lookup by name."""

import fnmatch
import importlib
import inspect
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from fieldslab.packer.sources.lookup import check_readable, disk_errors, find_matches, remote
from fieldslab.schemas.errors import (
    SourceInconsistent,
    SourceNotFound,
    SourceUnreadable,
    UsageError,
)
from fieldslab.schemas.fields import DtypeName, Logical
from fieldslab.schemas.folder import is_url
from fieldslab.schemas.manifest import MANIFEST
from fieldslab.schemas.optiontext import option

BUILT_IN = {
    "litdata": "fieldslab.packer.sources.litdata.source:LitData",
    "parquet": "fieldslab.packer.sources.parquet.source:ParquetSource",
    "arrow": "fieldslab.packer.sources.arrow:ArrowSource",
    "hdf5": "fieldslab.packer.sources.hdf5.source:HDF5Source",
    "images": "fieldslab.packer.sources.images.source:ImageSource",
    "slab": "fieldslab.packer.sources.slab:SlabSource",
}
"""Sources that come with fieldslab; others register under the entry point below."""

ENTRY_POINT = "fieldslab.sources"


class Unit(NamedTuple):
    """A piece of a source that is read at one go: a row group, say. Shards are cut between units.

    `rows` and `bytes` (of data, an estimate) are None where only reading tells; `key` is the
    source's own. `promised` are the rows of a unit that is cut as it is read, where its metadata
    tells them all the same. `read_span` compares what was read with either number. `file` is the
    file that holds all of the unit, as `fingerprint` calls it; None where there is none.
    """

    name: str
    rows: int | None
    bytes: int | None
    key: Any
    promised: int | None = None
    file: str | None = None


@dataclass(frozen=True)
class Hint:
    """What a source knows of a column that its Arrow type does not say.

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


@runtime_checkable
class Source(Protocol):
    """A schema, a list of units and, for a unit, a stream of record batches.

    A source class also has `accepts(paths) -> bool`, asked when no `--from` is given, and is
    made from the list of what the user wrote; its keyword-only parameters are the settings that
    `pack(..., settings={...})` may give. Sources raise the errors of
    `fieldslab.schemas.errors`; they never unpickle, evaluate or import what they read.

    A source may also have `hints` (column index -> Hint), `warnings` (texts for the user, asked
    for after `check`), `endings` (texts, asked for when all was read), `settings` (those that
    decide what it reads, JSON-ready), `file_of` (row of the source -> the file it comes from),
    `check_unchosen` (columns: raises for what is plausible and hardly meant, asked where no
    `--fields` chose them), and `tolerant`, which is set where rows with damaged images are left
    out: what is no image at all is then handed over like any other.
    """

    name: str
    """What `--from` calls it."""
    rereadable: bool
    """Whether `read` may be called again for a unit, so that a pack can be resumed."""
    schema: pa.Schema
    """Columns, with names made unique; metadata as in the source."""
    units: Sequence[Unit]
    attributes: dict[str, Any]
    """What the source says of itself, JSON-ready; kept in the manifest."""

    def read(self, unit: Unit, columns: list[int], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """The rows of a unit: these columns (ascending indices), batches near `batch_bytes`."""

    def sample(self, columns: list[int]) -> list[pa.RecordBatch]:
        """A few rows of these columns from the start, the middle and the end of the source."""

    def null_count(self, path: tuple[int, ...]) -> int | None:
        """Nulls at a path as the metadata tells; None where it does not.

        A path is the index of a column, then of struct children.
        """

    def column_bytes(self, path: tuple[int, ...]) -> int | None:
        """Bytes of data at a path, an estimate from the metadata; None where it does not tell."""

    def check(self, columns: list[int]) -> None:
        """Raise SourceInconsistent where the parts of the source differ in these columns."""

    def fingerprint(self) -> list[dict[str, Any]]:
        """One dict a file: path, size, time. Equal as long as the source has not changed."""


@disk_errors()
def find_source(
    given: Any, name: str | None = None, settings: Mapping[str, Any] | None = None
) -> Source:
    """The source for what the user gave: paths and globs, or an object in memory.

    Raises
    ------
    UsageError
        No source of this name, or a setting that the source does not know.
    SourceUnreadable
        No source accepts it.
    """
    items = [given] if isinstance(given, str) or hasattr(given, "__fspath__") else given
    paths = isinstance(items, Sequence) and all(
        isinstance(item, str) or hasattr(item, "__fspath__") for item in items
    )
    if type(given).__module__ == "fieldslab.reader.slab":  # which this layer may not import
        return _make(_load("slab"), given, settings)
    if not paths:
        return _make(_load("arrow"), given, settings)
    if not items:
        raise UsageError("no source given", hint="Name files, globs or directories.")
    items = [os.fspath(item) for item in items]
    if "" in items:
        raise UsageError("an empty path", hint="Name files, globs or directories.")
    if name is not None:
        return _make(_load(name), items, settings)
    found = _kind(items)
    if found is None:
        raise _not_a_source(items[0])
    _check_unmixed(found, items)
    for item in items[1:]:
        other = found if found.accepts([item]) else _kind([item])
        if other is not None and other is not found:
            raise UsageError(
                "sources of one slab must be of one kind", file=item,
                expected=f"{found.name}, as {items[0]}", found=other.name,
                hint="Pack each kind into a slab of its own.",
            )  # fmt: skip
    return _make(found, items, settings)


def _kind(items: list[str]) -> Any:
    """The class of the sources that accept these paths; None where none does."""
    for candidate in _names():
        cls = _load(candidate)
        if cls.accepts(items):
            return cls
    return None


def _check_unmixed(found: Any, items: list[str]) -> None:
    """Raise UsageError for a folder of Parquet or HDF5 that holds images, too."""
    if found.name not in ("parquet", "hdf5"):
        return
    images = _load("images")
    for item in items:
        if os.path.isdir(item) and images.accepts([item]):
            raise UsageError(
                f"holds both {found.name} files and images", file=item,
                hint=f"Say which of them to pack: {option('from_', found.name)}, or "
                f"{option('from_', 'images')}.",
            )  # fmt: skip


def _not_a_source(path: str) -> SourceUnreadable:
    """Why nothing can be packed from a path."""
    check_readable(path)
    if os.path.isfile(os.path.join(path, MANIFEST)):
        return SourceUnreadable(
            "is a slab already", file=path,
            hint="Pack what it was packed from; `fieldslab info` says what that was.",
        )  # fmt: skip
    if is_url(path):
        return remote(path)
    if not os.path.exists(path) and not any(map(os.path.exists, find_matches(path))):
        hint = "Check the path."
        return SourceNotFound("no such file or directory", file=path, hint=hint)
    return SourceUnreadable(
        "nothing here that fieldslab can pack",
        file=path,
        expected="Parquet, HDF5 or image files, a directory of them, or a LitData stream",
        hint=f"Check the path; {option('from_')} names the kind of source. From Python, "
        "`pack` takes whatever "
        "Arrow can read: a table, a dataset, a stream of record batches.",
    )


def _names() -> Iterator[str]:
    """Built-in sources first: to look for others takes longer than a small pack."""
    yield from BUILT_IN
    yield from (point.name for point in entry_points(group=ENTRY_POINT))


def _load(name: str) -> Any:
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    for point in entry_points(group=ENTRY_POINT, name=name):
        return point.load()
    raise UsageError(
        f"{option('from_')}: no source is called {name!r}", expected=", ".join(BUILT_IN)
    )


def _make(cls: Any, given: Any, settings: Mapping[str, Any] | None) -> Source:
    parameters = inspect.signature(cls).parameters.values()
    known = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
    for setting in settings or {}:
        if setting not in known:
            raise UsageError(
                f"{option(setting)}: {cls.name} sources have no such setting",
                expected=", ".join(known) or None,
            )
    return cls(given, **(settings or {}))


def hint_of(source: Source, column: int) -> Hint:
    """What a source says of a column beside its type."""
    hints: Mapping[int, Hint] = getattr(source, "hints", {})
    return hints.get(column, Hint())


SAMPLE_ROWS = 16
SAMPLE_BYTES = 2**20
"""`sample` reads so many rows from each place, fewer where they are large, but one at least."""


def sample_units(source: Source, units: Sequence[Unit], columns: list[int]) -> list[pa.RecordBatch]:
    """`Source.sample` for a source that can be read again, from some of its units."""
    count = len(units)
    starts = sorted({0, count // 2, count - 1}) if count else []
    return [batch for at in starts for batch in _first_rows(source, units[at:], columns)]


def _first_rows(
    source: Source, units: Sequence[Unit], columns: list[int]
) -> Iterator[pa.RecordBatch]:
    rows = size = 0
    for unit in units:
        for batch in source.read(unit, columns, SAMPLE_BYTES):
            taken = batch.slice(0, SAMPLE_ROWS - rows)
            yield taken
            rows += taken.num_rows
            size += taken.nbytes
            if rows >= SAMPLE_ROWS or size >= SAMPLE_BYTES:
                return


def unique_names(names: Iterable[str]) -> list[str]:
    """Names in order, all different: the second `a` becomes `a#2`."""
    names = list(names)
    if len(set(names)) == len(names):
        return names
    taken, result, seen = set(names), [], set()
    for name in names:
        unique, count = name, 1
        while unique in seen or (count > 1 and unique in taken):
            count += 1
            unique = f"{name}#{count}"
        seen.add(unique)
        result.append(unique)
    return result


def check_names(schema: pa.Schema) -> None:
    """Raise UnicodeDecodeError where a name or a time zone in a schema is not UTF-8."""
    for column in schema:
        _check_name(column)


def _check_name(column: pa.Field) -> None:
    kind, texts = column.type, [column.name]  # pyarrow decodes each when it is asked for
    if isinstance(kind, pa.BaseExtensionType):
        texts.append(kind.extension_name)
        _check_name(pa.field("", kind.storage_type))
    elif pa.types.is_dictionary(kind):
        _check_name(pa.field("", kind.value_type))
    elif pa.types.is_timestamp(kind):
        texts.append(kind.tz)
    for index in range(kind.num_fields):
        _check_name(kind.field(index))


class Span(NamedTuple):
    """Some rows of a unit: from row `skip` on, `rows` of them (None: to the end)."""

    unit: Unit
    skip: int
    rows: int | None


def read_span(
    source: Source, span: Span, columns: list[int], batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The batches of a span; batches without rows are left out.

    Where the span ends with its unit, the unit is read to its end, and its rows are counted.

    Raises SourceInconsistent where a unit has fewer or more rows than its metadata promises.
    """
    unit, first_row = span.unit, span.skip
    promised = unit.promised if unit.rows is None else unit.rows
    end = None if span.rows is None else first_row + span.rows
    rows_read = 0
    for batch in source.read(unit, columns, batch_bytes):
        batch_start, rows_read = rows_read, rows_read + batch.num_rows
        if promised is not None and rows_read > promised:
            break
        start = max(first_row - batch_start, 0)
        stop = batch.num_rows if end is None else min(end - batch_start, batch.num_rows)
        if stop > start:
            yield batch.slice(start, stop - start)
        if end is not None and rows_read >= end and end != promised:
            return  # the rest of the unit is not asked for
    if promised is not None and rows_read != promised:
        found = f"{rows_read:,} rows" if rows_read <= promised else f"more than {promised:,} rows"
        raise SourceInconsistent(
            "other rows were read than the metadata promises", file=unit.name,
            expected=f"{promised:,} rows", found=found,
            hint="Write or download the source again; columns that are damaged can be left out "
            f"with {option('exclude')}.",
        )  # fmt: skip


def cut_rows(units: Iterable[Unit], rows: tuple[int, int | None] | None) -> list[Span]:
    """The spans that hold rows A to B of the units, empty units left out.

    Raises UsageError where the units are known to end before A.
    """
    start, stop = rows or (0, None)
    spans, first = [], 0
    for unit in units:
        if unit.rows is None:
            left = None if stop is None else stop - start
            if left != 0:
                spans.append(Span(unit, start, left))
            continue
        skip = max(start - first, 0)
        end = unit.rows if stop is None else min(unit.rows, stop - first)
        if end > skip:
            spans.append(Span(unit, skip, end - skip))
        first += unit.rows
    if start > 0 and not spans and stop != start and start >= first:
        raise UsageError(
            f"{option('rows')}: starts behind the last row", found=start, expected=f"below {first}"
        )
    return spans


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that a shell pattern matches; an exact name matches itself alone."""
    names = list(names)
    return [pattern] if pattern in names else fnmatch.filter(names, pattern)
