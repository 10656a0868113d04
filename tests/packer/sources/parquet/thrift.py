"""Parquet files written byte by byte: footers that no library would write."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

Value = tuple[int, bytes]
"""A value of thrift's compact protocol: the number of its type, and its bytes."""

INT64 = 2
"""Parquet's number of the physical type."""


def _varint(number: int) -> bytes:
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])


def _zigzag(number: int) -> bytes:
    return _varint(2 * number if number >= 0 else -2 * number - 1)


def i32(number: int) -> Value:
    """A number of 32 bits."""
    return 5, _zigzag(number)


def i64(number: int) -> Value:
    """A number of 64 bits."""
    return 6, _zigzag(number)


def text(content: str) -> Value:
    """A string."""
    data = content.encode()
    return 8, _varint(len(data)) + data


def list_of(items: Sequence[Value]) -> Value:
    """A list of values of one type."""
    kind, count = items[0][0] if items else 12, len(items)
    head = bytes([count << 4 | kind]) if count < 15 else bytes([0xF0 | kind]) + _varint(count)
    return 9, head + b"".join(data for _, data in items)


def struct_of(fields: Mapping[int, Value]) -> Value:
    """A struct of values by their ids."""
    data, before = b"", 0
    for number, (kind, value) in sorted(fields.items()):
        data += bytes([(number - before) << 4 | kind]) + value
        before = number
    return 12, data + b"\0"


def group(name: str, members: int) -> Value:
    """A required group in the schema, the next `members` elements of which are in it."""
    return struct_of({3: i32(0), 4: text(name), 5: i32(members)})


def int64(name: str) -> Value:
    """A required int64 column in the schema."""
    return struct_of({1: i32(INT64), 3: i32(0), 4: text(name)})


def page(values: Iterable[int]) -> bytes:
    """A plain data page of required int64 values."""
    content = b"".join(struct.pack("<q", value) for value in values)
    counts = struct_of({1: i32(len(content) // 8), 2: i32(0), 3: i32(3), 4: i32(3)})
    head = struct_of({1: i32(0), 2: i32(len(content)), 3: i32(len(content)), 5: counts})
    return head[1] + content


def write(
    path: Path,
    schema: Sequence[Value],
    rows: int,
    columns: Mapping[str, Sequence[int]],
    promised: int | None = None,
) -> Path:
    """A file of one row group: int64 columns by their paths, each in one page.

    The footer says that there are `rows`, whatever the pages hold, and `promised` in the group.
    """
    body, chunks = b"PAR1", []
    for name, values in columns.items():
        data = page(values)
        path_in_schema = list_of([text(part) for part in name.split(".")])
        chunk = struct_of(
            {
                1: i32(INT64),
                2: list_of([i32(0), i32(3)]),
                3: path_in_schema,
                4: i32(0),
                5: i64(rows),
                6: i64(len(data)),
                7: i64(len(data)),
                9: i64(len(body)),
            }
        )
        chunks.append(struct_of({2: i64(len(body)), 3: chunk}))
        body += data
    promised = rows if promised is None else promised
    row_group = struct_of({1: list_of(chunks), 2: i64(len(body) - 4), 3: i64(promised)})
    footer = struct_of(
        {1: i32(1), 2: list_of(list(schema)), 3: i64(rows), 4: list_of([row_group])}
    )[1]
    path.write_bytes(body + footer + struct.pack("<I", len(footer)) + b"PAR1")
    return path
