"""Arrow IPC: files (Feather), whose record batches are read one by one, and streams."""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import pyarrow as pa

from fieldslab.packer.column_names import check_utf8_names
from fieldslab.packer.source import Unit
from fieldslab.packer.sources.batches import cut_batch, make_damage_error
from fieldslab.packer.sources.fetching import RangeReader, Read
from fieldslab.packer.sources.ipc.messages import (
    FILE_MAGIC,
    Batch,
    Block,
    Damage,
    DictionaryBlock,
    find_column_ranges,
    find_footer,
    read_batch_metadata,
    read_footer,
    scan_stream,
)
from fieldslab.packer.sources.remote_file import RemoteFile
from fieldslab.packer.sources.table_files import AnyFile, TableFile
from fieldslab.packer.sources.table_source import TableSource
from fieldslab.schemas.errors import FieldslabError, SourceUnreadable

UNIT_BYTES = 4 << 20
"""Small record batches are read several at a time: so many bytes of them, or more."""
_END = 1 << 16
"""Bytes at the end of a file that are read first."""


@dataclass(frozen=True)
class IpcFile(TableFile):
    """One file or stream: its record batches, and the messages that they need.

    `batches` is None for a stream in a store, which is read from its start to its end.
    `head` is the message with the schema of a stream, None for a file; `footer` is the bytes of
    the footer of a file.
    """

    batches: tuple[Batch, ...] | None
    dictionaries: tuple[DictionaryBlock, ...]
    head: Block | None
    footer: int = 0

    def list_units(self) -> list[list[Any]]:
        """List rows and bytes of consecutive record batches, and which they are."""
        return self.units

    @cached_property
    def units(self) -> list[list[Any]]:
        """Rows and bytes of consecutive record batches, and which they are."""
        if self.batches is None:
            return [[None, self.file.size, 0, None]]
        units: list[list[Any]] = []
        rows = size = first = 0
        for number, batch in enumerate(self.batches):
            rows, size = rows + batch.rows, size + max(batch.block.body, self._measure(batch))
            if size >= UNIT_BYTES or number == len(self.batches) - 1:
                units.append([rows, size, first, number + 1])
                rows, size, first = 0, 0, number + 1
        return units

    def _measure(self, batch: Batch) -> int:
        """Estimate the decoded bytes of a batch, which may be compressed."""
        return batch.rows * sum(_get_width(field.type) for field in self.schema) // 8

    def list_needed(self, first: int, stop: int) -> list[Block]:
        """List the messages of a stream from which some of its record batches can be read."""
        assert self.batches is not None
        assert self.head is not None
        start = self.batches[first].block.offset
        end = self.batches[stop - 1].block.offset
        dictionaries: dict[int, list[Block]] = {}
        between = []
        for block, number, is_delta in self.dictionaries:
            if block.offset < start:
                dictionaries[number] = [*(dictionaries.get(number, []) if is_delta else []), block]
            elif block.offset < end:
                between.append(block)
        blocks = [block for blocks in dictionaries.values() for block in blocks] + between
        blocks += [batch.block for batch in self.batches[first:stop]]
        return [self.head, *sorted(blocks)]


class IpcSource(TableSource):
    """Record batches of Arrow IPC files, Feather files and streams."""

    name = "ipc"
    kind = "Arrow IPC"
    suffixes = (".arrow", ".feather", ".ipc", ".arrows")
    magic = (FILE_MAGIC,)

    def open_table(self, file: AnyFile) -> IpcFile:
        """Read the footer of a file and the metadata of its record batches."""
        with name_ipc_errors(file.path):
            end = file.fetch_end(_END)
            tail = read_range(end, max(file.size - _END, 0), file.size)
            footer = find_footer(tail)
            if footer is None:
                return _open_stream(file)
            if footer > file.size:
                raise Damage("the footer is larger than the file")
            index = read_footer(read_range(end, file.size - footer, file.size), file.size)
            ranges = [block.metadata_range for block in index.batches]
            with end.fetch(ranges) as fetched, open_reads(fetched) as read:
                batches = tuple(
                    read_batch_metadata(read(*block.metadata_range), block)
                    for block in index.batches
                )
            with open_input(end) as opened, pa.ipc.open_file(opened) as reader:
                schema = reader.schema
            check_utf8_names(schema)
            dictionaries = tuple(DictionaryBlock(block, 0, True) for block in index.dictionaries)
            return IpcFile(file, schema, {}, batches, dictionaries, None, footer)

    def read_table(
        self, table: IpcFile, unit: Unit, positions: list[int], batch_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Read record batches; every value is validated."""
        first, stop = table.units[unit.key[1]][2:]
        with table.refuse_changed(), name_ipc_errors(unit.name):
            for batch in _read_batches(table, first, stop, positions):
                table.file.check_unchanged()
                batch.validate(full=True)
                yield from cut_batch(batch, batch_bytes)

    def name_unit(self, path: str, unit: int) -> str:
        """Return the name of some record batches; `unit` counts those that are read at one go."""
        return f"{path} batches {unit}"


def _open_stream(file: AnyFile) -> IpcFile:
    with open_reads(file) as read:
        start = bytes(read(0, min(len(FILE_MAGIC), file.size)))
    if start[:4] == b"FEA1":
        raise SourceUnreadable(
            "is Feather of version 1, which is no Arrow IPC",
            file=file.path,
            hint="Write it again: pyarrow.feather.write_feather(pyarrow.feather.read_table(old), "
            "new).",
        )
    if start == FILE_MAGIC:
        raise Damage("the file is cut off: its footer is missing")
    with open_input(file) as opened, pa.ipc.open_stream(opened) as reader:
        schema = reader.schema
    check_utf8_names(schema)
    if isinstance(file, RemoteFile):
        return IpcFile(file, schema, {}, None, (), None)
    with open_reads(file) as read:
        head, *messages = scan_stream(read, file.size)
    assert isinstance(head, Block)
    batches = tuple(message for message in messages if isinstance(message, Batch))
    dictionaries = tuple(message for message in messages if isinstance(message, DictionaryBlock))
    return IpcFile(file, schema, {}, batches, dictionaries, head)


def _read_batches(
    table: IpcFile, first: int, stop: int | None, positions: list[int]
) -> Iterator[pa.RecordBatch]:
    if not positions and table.batches is not None:
        for batch in table.batches[first:stop]:
            yield pa.RecordBatch.from_arrays([pa.nulls(batch.rows)], ["rows"])
        return
    options = pa.ipc.IpcReadOptions(included_fields=positions, use_threads=False)
    if table.batches is None or stop is None:
        with table.file.fetch([(0, table.file.size)]) as fetched, open_input(fetched) as opened:
            yield from pa.ipc.open_stream(opened, options=options)
    elif table.head is not None:
        with open_reads(table.file) as read:
            blocks = table.list_needed(first, stop)
            stream = _join_ranges(read, [block.range for block in blocks])
            yield from pa.ipc.open_stream(pa.PythonFile(stream, mode="r"), options=options)
    else:
        batches = table.batches[first:stop]
        ranges = [(table.file.size - table.footer, table.file.size)]
        ranges += [block.range for block, *_ in table.dictionaries]
        ranges += [
            piece
            for batch in batches
            for piece in find_column_ranges(batch, table.schema, positions)
        ]
        with table.file.fetch(ranges) as fetched, open_input(fetched) as opened:
            reader = pa.ipc.open_file(opened, options=options)
            for number in range(first, stop):
                yield reader.get_batch(number)


def _join_ranges(read: Read, ranges: list[tuple[int, int]]) -> RangeReader:
    """Return a file that consists of ranges of another."""
    starts = [0, *accumulate(stop - start for start, stop in ranges)]

    def read_joined(start: int, stop: int) -> memoryview:
        pieces = []
        while start < stop:
            number = bisect_right(starts, start) - 1
            end = min(stop, starts[number + 1])
            shift = ranges[number][0] - starts[number]
            pieces.append(read(start + shift, end + shift))
            start = end
        return pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))

    return RangeReader(read_joined, starts[-1])


@contextmanager
def open_input(file: Any) -> Iterator[pa.NativeFile]:
    """Open a file for pyarrow, for a `with` block. A path is read, not mapped: it may change."""
    opened = file.open()
    with pa.OSFile(opened) if isinstance(opened, str) else opened as stream:
        yield stream


@contextmanager
def open_reads(file: Any) -> Iterator[Read]:
    """Open a file to be read by ranges, for a `with` block."""
    with open_input(file) as opened:

        def read(start: int, stop: int) -> memoryview:
            data = opened.read_at(stop - start, start)
            if len(data) < stop - start:
                raise Damage("the file is cut off")
            return memoryview(data)

        yield read


def read_range(file: Any, start: int, stop: int) -> memoryview:
    """Read a range of a file."""
    with open_reads(file) as read:
        return read(start, stop)


@contextmanager
def name_ipc_errors(what: str) -> Iterator[None]:
    """Turn what is raised on bad files into a named error."""
    try:
        yield
    except FieldslabError:
        raise
    except (Damage, pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise make_damage_error(error, "Arrow IPC", what) from error


def _get_width(kind: Any) -> int:
    """Return the bits of a value; 0 where they differ."""
    try:
        return int(kind.bit_width)
    except (ValueError, AttributeError):
        return 0
