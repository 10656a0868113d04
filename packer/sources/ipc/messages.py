"""Where the record batches of an Arrow IPC file or stream lie, and how many rows each has.

pyarrow does not tell without reading the values. The metadata are FlatBuffers, as the columnar
format of Arrow describes them (Message.fbs, File.fbs); few members of them are needed here.
"""

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from fieldslab.packer.sources.fetching import Read

FILE_MAGIC = b"ARROW1"
_CONTINUATION = b"\xff\xff\xff\xff"
_TAIL = 4 + len(FILE_MAGIC)
_SCHEMA, _DICTIONARY, _RECORD_BATCH = 1, 2, 3
_MOST_METADATA = 1 << 28


class Damage(Exception):
    """The metadata contradict themselves; the text says how."""


class Block(NamedTuple):
    """A message: where it begins in the file, and the bytes of its two parts."""

    offset: int
    metadata: int
    body: int

    @property
    def range(self) -> tuple[int, int]:
        """Where the whole message lies in the file."""
        return self.offset, self.offset + self.metadata + self.body

    @property
    def metadata_range(self) -> tuple[int, int]:
        """Where its metadata lie in the file."""
        return self.offset, self.offset + self.metadata


class Batch(NamedTuple):
    """A record batch: its message, its rows, and offset and bytes of each buffer in the body."""

    block: Block
    rows: int
    buffers: tuple[tuple[int, int], ...]


class DictionaryBlock(NamedTuple):
    """A message with values of a dictionary, which they replace, or with more values of it."""

    block: Block
    id: int
    is_delta: bool


class _Table:
    """A table of a FlatBuffer. Raises Damage for what lies outside of the buffer."""

    def __init__(self, data: memoryview, position: int) -> None:
        self._data, self._position = data, position
        self._members = position - self._unpack("<i", position)
        self._size = self._unpack("<H", self._members)

    def get(self, number: int, kind: str, default: int = 0) -> int:
        """Return a scalar member."""
        place = self._find(number)
        return self._unpack(kind, place) if place else default

    def open(self, number: int) -> "_Table":
        """Return a member that is a table."""
        place = self._find(number)
        if not place:
            raise Damage(f"member {number} is missing")
        return _Table(self._data, place + self._unpack("<I", place))

    def list_structs(self, number: int, kind: str) -> list[tuple[int, ...]]:
        """Return a member that is a vector of structs."""
        place = self._find(number)
        if not place:
            return []
        place += self._unpack("<I", place)
        stop = place + 4 + self._unpack("<I", place) * struct.calcsize(kind)
        if stop > len(self._data):
            raise Damage("a list ends behind the metadata")
        return list(struct.iter_unpack(kind, self._data[place + 4 : stop]))

    def _find(self, number: int) -> int:
        slot = 4 + 2 * number
        if slot + 2 > self._size:
            return 0
        offset = self._unpack("<H", self._members + slot)
        return self._position + offset if offset else 0

    def _unpack(self, kind: str, place: int) -> int:
        if not 0 <= place <= len(self._data) - struct.calcsize(kind):
            raise Damage("an offset lies outside of the metadata")
        value: int = struct.unpack_from(kind, self._data, place)[0]
        return value


def _open_root(data: memoryview) -> _Table:
    if len(data) < 4:
        raise Damage("the metadata are too short")
    return _Table(data, struct.unpack_from("<I", data)[0])


class FileIndex(NamedTuple):
    """What the footer of a file lists."""

    dictionaries: tuple[Block, ...]
    batches: tuple[Block, ...]


def find_footer(end: memoryview) -> int | None:
    """Return the bytes of the footer with what follows it, from the end of a file.

    None for a stream, which has none. Raises Damage where it is longer than a footer can be.
    """
    if len(end) < _TAIL or bytes(end[-len(FILE_MAGIC) :]) != FILE_MAGIC:
        return None
    size: int = struct.unpack_from("<i", end, len(end) - _TAIL)[0]
    if not 0 < size <= _MOST_METADATA:
        raise Damage("the footer has no size")
    return size + _TAIL


def read_footer(data: memoryview, size: int) -> FileIndex:
    """Read the footer of a file of `size` bytes; `data` begins with it. Raises Damage."""
    footer = _open_root(data)
    lists = []
    for number in (2, 3):
        blocks = [
            Block(offset, metadata, body)
            for offset, metadata, body in footer.list_structs(number, "<qi4xq")
        ]
        for block in blocks:
            if not (block.offset > 0 and 8 <= block.metadata <= size and 0 <= block.body <= size):
                raise Damage("a record batch has no place")
            if block.range[1] > size:
                raise Damage("a record batch ends behind the file")
        lists.append(tuple(blocks))
    return FileIndex(*lists)


def read_batch_metadata(data: memoryview, block: Block) -> Batch:
    """Read the metadata of the message of a record batch. Raises Damage."""
    kind, table, _ = _open_message(data[8 if data[:4] == _CONTINUATION else 4 :])
    if kind != _RECORD_BATCH:
        raise Damage("a message is no record batch")
    return _make_batch(table, block)


def scan_stream(read: Read, size: int) -> Iterator[Batch | DictionaryBlock | Block]:
    """Yield the messages of a stream: that of the schema as a Block, then the others.

    Only metadata are read. A stream ends with its file, or with a mark. Raises Damage.
    """
    offset = 0
    while offset < size:
        head = bytes(read(offset, min(offset + 8, size)))
        if len(head) < 4:
            raise Damage("the stream is cut off")
        prefix = 8 if head[:4] == _CONTINUATION else 4
        length = int.from_bytes(head[prefix - 4 : prefix], "little")
        if length == 0:
            return
        start, stop = offset + prefix, offset + prefix + length
        if len(head) < prefix or length > _MOST_METADATA or stop > size:
            raise Damage("the stream is cut off")
        kind, table, body = _open_message(memoryview(read(start, stop)))
        block = Block(offset, prefix + length, body)
        if body < 0 or block.range[1] > size:
            raise Damage("the stream is cut off")
        if (kind == _SCHEMA) != (offset == 0):
            raise Damage("the stream does not begin with one schema")
        if kind == _SCHEMA:
            yield block
        elif kind == _DICTIONARY:
            yield DictionaryBlock(block, table.get(0, "<q"), bool(table.get(2, "<B")))
        elif kind == _RECORD_BATCH:
            yield _make_batch(table, block)
        offset = block.range[1]


def _open_message(data: memoryview) -> tuple[int, _Table, int]:
    """Return kind and header of a message, and the bytes of its body."""
    message = _open_root(data)
    return message.get(1, "<B"), message.open(2), message.get(3, "<q")


def _make_batch(table: _Table, block: Block) -> Batch:
    rows = table.get(0, "<q")
    buffers = tuple(table.list_structs(2, "<qq"))
    if rows < 0 or any(
        start < 0 or size < 0 or start + size > block.body for start, size in buffers
    ):
        raise Damage("a buffer lies outside of its record batch")
    return Batch(block, rows, buffers)  # type: ignore[arg-type]


def find_column_ranges(
    batch: Batch, schema: pa.Schema, positions: list[int]
) -> list[tuple[int, int]]:
    """Find what of a file has to be read for some columns of a batch.

    Where the layout cannot be told from the types, as with views, it is the whole batch.
    """
    counts = [_count_buffers(field.type) for field in schema]
    if None in counts or sum(count or 0 for count in counts) != len(batch.buffers):
        return [batch.block.range]
    body = batch.block.metadata_range[1]
    ranges, first = [batch.block.metadata_range], 0
    for position, count in enumerate(counts):
        stop = first + (count or 0)
        if position in positions:
            buffers = batch.buffers[first:stop]
            ranges += [(body + start, body + start + size) for start, size in buffers if size]
        first = stop
    return ranges


def _count_buffers(kind: Any) -> int | None:
    """Count the buffers of a column; None where that depends on the values."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _count_buffers(kind.storage_type)
    if types.is_string_view(kind) or types.is_binary_view(kind) or types.is_union(kind):
        return None
    if types.is_null(kind):
        return 0
    if types.is_dictionary(kind) or not kind.num_fields:
        text = types.is_string(kind) or types.is_large_string(kind)
        binary = types.is_binary(kind) or types.is_large_binary(kind)
        return 3 if text or binary else 1 if types.is_struct(kind) else 2
    own_buffers = 2
    if types.is_struct(kind) or types.is_fixed_size_list(kind):
        own_buffers = 1
    elif types.is_list_view(kind) or types.is_large_list_view(kind):
        own_buffers = 3
    elif types.is_run_end_encoded(kind):
        own_buffers = 0
    children = [_count_buffers(kind.field(index).type) for index in range(kind.num_fields)]
    return None if None in children else own_buffers + sum(count or 0 for count in children)
