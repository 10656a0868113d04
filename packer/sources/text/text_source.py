"""What CSV and JSON lines share: rows that are text, whose types are inferred from a sample.

Local files are read once to count their rows, so that many shards can be packed at a time, and no
row can be lost; only what is not compressed can be divided. What is in a store is read in one pass.
A value that does not fit the type of its column is an error with the number of its line.
"""

import base64
import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from fieldslab.packer.source import Unit
from fieldslab.packer.sources.batches import make_damage_error
from fieldslab.packer.sources.remote_file import RemoteFile
from fieldslab.packer.sources.table_files import AnyFile, TableFile
from fieldslab.packer.sources.table_source import TableSource
from fieldslab.packer.sources.text.records import (
    BLOCK,
    Block,
    FindEnds,
    UnendedRecord,
    read_blocks,
)
from fieldslab.schemas.errors import FieldslabError, SourceUnreadable
from fieldslab.schemas.optiontext import mark_option

UNIT_BYTES = 32 << 20
"""A file is cut into units of about so many bytes."""
SAMPLE_BYTES = 1 << 20
SAMPLES = 16
"""Types are inferred from the first `SAMPLE_BYTES` of `SAMPLES` units, over all files."""

_CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class TextFile(TableFile):
    """One file: its columns, where its rows begin, and what is read of it in one go."""

    start: int
    line: int
    units: list[list[Any]]
    types: dict[str, pa.DataType]

    def list_units(self) -> list[list[Any]]:
        """List rows and bytes of each unit, its first and last byte, and its first line."""
        return self.units

    def get_type(self, name: str) -> pa.DataType | None:
        """Return the type that all files share; None where the file has no such column."""
        return self.types[name] if name in self.columns else super().get_type(name)


class TextSource(TableSource):
    """Rows of text files."""

    endings_of_names: ClassVar[tuple[str, ...]]
    """How names end, but for what compression adds."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.suffixes = tuple(
            suffix + packed for suffix in cls.endings_of_names for packed in ("", *_CODECS)
        )

    def __init__(
        self,
        paths: list[str],
        *,
        unify: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        summary: Any = None,
    ) -> None:
        """Count the rows of local files, and infer the types of columns from samples of all.

        `unify="widen"` reads columns that a file lacks as null.
        """
        self.types: dict[str, pa.DataType] = {}
        super().__init__(paths, unify=unify, storage_options=storage_options, summary=summary)
        if "types" in self._known:
            data = base64.b64decode(self._known["types"])
            kinds = pa.ipc.read_schema(pa.py_buffer(data))
            self.types.update(zip(kinds.names, kinds.types, strict=True))
        else:
            self.types.update(self.infer_types(list(self._read_samples())))
            if self._unified:
                self._known["widened"] = self._add_columns()
            data = pa.schema(list(self.types.items())).serialize().to_pybytes()
            self._known["types"] = base64.b64encode(data).decode()
        self.warnings = tuple(self._known.get("widened", ()))
        self.set_schema()

    @abstractmethod
    def make_finder(self, file: AnyFile) -> FindEnds:
        """Return what finds the ends of records."""

    @abstractmethod
    def read_names(self, file: AnyFile, first: Block) -> tuple[list[str], int]:
        """Read the names of columns, and find where the rows begin in the first block."""

    @abstractmethod
    def infer_types(self, samples: list[tuple[TextFile, Block]]) -> dict[str, pa.DataType]:
        """Infer the types of all columns."""

    @abstractmethod
    def parse(self, file: TextFile, block: Block, names: list[str]) -> pa.RecordBatch:
        """Parse some columns of a block. Raises ValueError where a value does not fit."""

    @abstractmethod
    def find_misfit(
        self, file: TextFile, record: bytes, names: list[str]
    ) -> tuple[str, str] | None:
        """Find column and text of the value that does not fit; None where the record is damaged."""

    def set_schema(self) -> None:
        """Set the schema by the types of the columns."""
        first = self._files[0]
        fields = [pa.field(name, kind) for name, kind in self.types.items()]
        fields += [pa.field(key, value.type) for key, value in first.partition.items()]
        self.schema = pa.schema(fields)

    def open_table(self, file: AnyFile) -> TextFile:
        """Read the names of columns; of local files, count the rows."""
        with self._name_errors(file.path, file.path), _open_text(file) as stream:
            mark = len(_MARK) if stream.read(len(_MARK)) == _MARK else 0
        find_ends = self.make_finder(file)
        with self._name_errors(file.path, file.path), _open_text(file, mark) as stream:
            empty = Block(b"", 1, 0, find_ends(b""))
            first = next(read_blocks(stream, find_ends, 1, None, 1 << 16), empty)
        names, start = self.read_names(file, first)
        line = 1 + first.data[:start].count(b"\n")
        schema = pa.schema([(name, pa.string()) for name in names])
        start += mark
        units: list[list[Any]] = [[None, file.size, start, None, line]]
        if not isinstance(file, RemoteFile) and not self._summarized:
            units = list(self._count_rows(file, start, line))
        return TextFile(file, schema, {}, start, line, units, self.types)

    def read_table(
        self, table: TextFile, unit: Unit, positions: list[int], batch_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Parse a unit block by block."""
        names = [list(table.columns)[position] for position in positions]
        with table.refuse_changed():
            for block in self._read_blocks(table, unit):
                table.file.check_unchanged()
                if not block.rows:
                    continue
                if not names:
                    yield pa.RecordBatch.from_arrays([pa.nulls(block.rows)], ["rows"])
                    continue
                try:
                    batch = self.parse(table, block, names)
                except (ValueError, RecursionError) as error:
                    raise self._make_misfit_error(table, block, names, error) from error
                rows = max(1, batch_bytes * batch.num_rows // max(batch.nbytes, 1))
                for start in range(0, batch.num_rows, rows):
                    yield batch.slice(start, rows)
            table.file.check_unchanged()  # it may end earlier now

    def name_unit(self, path: str, unit: int) -> str:
        """Return the path: errors name lines."""
        return path

    def _count_rows(self, file: AnyFile, start: int, line: int) -> Iterator[list[Any]]:
        """Count the rows of units, which end with blocks. A compressed file is one unit."""
        packed = _find_codec(file.path) is not None
        rows = size = 0
        unit_start, unit_line = start, line
        with self._name_errors(file.path, file.path), _open_text(file, start) as stream:
            for block in read_blocks(stream, self.make_finder(file), line, None):
                rows, size = rows + block.rows, size + len(block.data)
                if size >= UNIT_BYTES and not packed:
                    yield [rows, size, unit_start, unit_start + size, unit_line]
                    unit_start, rows, size = unit_start + size, 0, 0
                    unit_line = block.line + block.data.count(b"\n")
        if rows:
            yield [rows, size, unit_start, None, unit_line]

    def _read_blocks(self, table: TextFile, unit: Unit, size: int = BLOCK) -> Iterator[Block]:
        number, index = unit.key
        start, stop, line = self._groups[number][index][2:]
        with (
            self._name_errors(unit.name, table.path),
            table.file.fetch([(0, table.file.size)]) as fetched,
            _open_text(fetched, start) as stream,
        ):
            left = None if stop is None else stop - start
            yield from read_blocks(stream, self.make_finder(table.file), line, left, size)

    def _read_samples(self) -> Iterator[tuple[TextFile, Block]]:
        """Read the first rows of some units, evenly over all of them, and of all columns."""
        last = len(self.units) - 1
        steps = range(SAMPLES) if last >= 0 else ()
        chosen = {last * step // (SAMPLES - 1) for step in steps}
        if self._unified:
            seen_names: set[str] = set()
            for number, unit in enumerate(self.units):
                names = self._files[unit.key[0]].columns.keys()
                chosen |= set() if names <= seen_names else {number}
                seen_names |= names
        for number in sorted(chosen):
            unit = self.units[number]
            table = self._files[unit.key[0]]
            block = next(self._read_blocks(table, unit, SAMPLE_BYTES), None)
            if block is not None:
                yield table, block
        if last < 0:
            yield self._files[0], Block(b"", 1, 0, self.make_finder(self._files[0].file)(b""))

    def widen_columns(self) -> None:
        """Leave the columns as they are: their types are those of all files already."""

    def _add_columns(self) -> list[str]:
        """Add the columns that no sample has, as text; say which are null in how many files."""
        counts: Counter[str] = Counter(name for file in self._files for name in file.columns)
        for name in counts:
            self.types.setdefault(name, pa.string())
        total = len(self._files)
        return [
            f"{name}: null in {total - count:,} files of {total:,}, which lack it"
            for name, count in counts.items()
            if count < total
        ]

    def _make_misfit_error(
        self, table: TextFile, block: Block, names: list[str], error: ValueError | RecursionError
    ) -> FieldslabError:
        """Make the error for the first record of a block that cannot be parsed."""
        low, high = 0, len(block.ends)  # up to record `high`, parsing fails
        while high - low > 1:
            middle = (low + high) // 2
            try:
                size = int(block.ends[middle - 1])
                self.parse(table, Block(block.data[:size], 0, 0, block.ends[:middle]), names)
                low = middle
            except (ValueError, RecursionError) as earlier:
                high, error = middle, earlier
        start = int(block.ends[low - 1]) if low else 0
        record = block.data[start : int(block.ends[low])]
        line = block.line + block.data[:start].count(b"\n")
        file = f"{table.path} line {line}"
        misfit = self.find_misfit(table, record, names)
        if misfit is None:
            text = " ".join(str(error).split()).rstrip(".")
            return SourceUnreadable(
                f"damaged {self.kind}: {text[:300]}",
                file=file,
                hint="Correct the line, or leave it out.",
            )
        name, text = misfit
        return SourceUnreadable(
            "a value does not fit the type that was inferred from a sample",
            file=file,
            field=name,
            expected=str(self.types.get(name, "no such column")),
            found=text[:80],
            hint=self.advise_cast(name, text),
        )

    def advise_cast(self, name: str, text: str) -> str:
        """Say which `--cast` reads a column that holds this text."""
        try:
            float(text)
            lossless = pa.types.is_integer(self.types[name]) and not text.lstrip("-").isdigit()
        except (ValueError, RecursionError):
            lossless = False
        target = "f8" if lossless else "text"
        return f"{mark_option('cast', target, column=name)} reads the whole column as {target}."

    @contextmanager
    def _name_errors(self, what: str, path: str) -> Iterator[None]:
        """Turn what is raised on bad files into a named error."""
        try:
            yield
        except FieldslabError:
            raise
        except UnendedRecord as error:
            raise SourceUnreadable(
                "a record does not end, or is too long",
                file=f"{path} line {error.line}",
                hint='A quote (") that is not closed is the usual reason.',
            ) from error
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise make_damage_error(error, self.kind, what) from error


def get_suffix(path: str) -> str:
    """Return the suffix of a name without that of its compression, in lower case."""
    name, suffix = os.path.splitext(path.lower())
    return os.path.splitext(name)[1] if suffix in _CODECS else suffix


def _find_codec(path: str) -> str | None:
    return _CODECS.get(os.path.splitext(path.lower())[1])


@contextmanager
def _open_text(file: Any, skip: int = 0) -> Iterator[pa.NativeFile]:
    """Open a file, decompressed, behind its first `skip` bytes, for a `with` block."""
    opened, codec = file.open(), _find_codec(file.path)
    with pa.OSFile(opened) if isinstance(opened, str) else opened as stream:
        if codec is None:
            stream.seek(skip)
            yield stream
            return
        with pa.CompressedInputStream(stream, codec) as text:
            while skip:
                skip -= len(text.read(skip)) or skip
            yield text
