"""Headers of tar files: ustar, POSIX (pax) and GNU, parsed in one pass from front to back.

`tarfile` takes a damaged header for the end of a tar, and a tar that was cut off between two
members for a whole one. Here, a tar ends with a block of zeros, and there is nothing behind it.
"""

import zlib
from collections.abc import Iterator
from typing import NamedTuple, Protocol

BLOCK = 512
_MOST_META = 1 << 20
"""Bytes of the name of a member, or of what POSIX says beside a header, at most."""
_FILES = (b"0", b"\0", b"7")
_DIRECTORY = b"5"
_WITHOUT_DATA = (b"1", b"2", b"3", b"4", b"5", b"6")
_SPARSE = "sparse members are not read"


class BadTar(Exception):
    """What is wrong with a tar; `offset` is where the member begins that is damaged."""

    def __init__(self, problem: str, offset: int) -> None:
        super().__init__(problem)
        self.offset = offset


class ForwardReader(Protocol):
    """Reads bytes at offsets that only grow."""

    def read(self, offset: int, size: int) -> memoryview:
        """Read `size` bytes at an offset, fewer where the file ends."""


class TarMember(NamedTuple):
    """A member: where its first header is, where its data is, and whether it is a plain file."""

    name: str
    offset: int
    data: int
    size: int
    is_file: bool
    is_folder: bool


def list_members(reader: ForwardReader, size: int | None) -> Iterator[TarMember]:
    """List all members; `size` is that of the file, None where it is compressed.

    Raises BadTar where the tar is damaged, has no end, or goes on behind it.
    """
    offset = 0
    defaults: dict[str, str] = {}
    while (member := _read_member(reader, offset, size, defaults)) is not None:
        yield member
        offset = member.data
        if member.is_file:
            offset += -(-member.size // BLOCK) * BLOCK
    offset = _skip_global_headers(reader, offset)
    while len(block := reader.read(offset, 1 << 16)):
        if bytes(block).strip(b"\0"):
            raise BadTar("there is data behind the end of the tar", offset)
        offset += len(block)


def _skip_global_headers(reader: ForwardReader, offset: int) -> int:
    """Return where the zeros at the end begin: global headers may stand in front of them."""
    block = reader.read(offset, BLOCK)
    while len(block) == BLOCK and bytes(block[156:157]) == b"g":
        offset += BLOCK + -(-_parse_number(block[124:136], offset) // BLOCK) * BLOCK
        block = reader.read(offset, BLOCK)
    return offset


def _read_member(
    reader: ForwardReader, offset: int, size: int | None, defaults: dict[str, str]
) -> TarMember | None:
    """Read a header with those in front of it that say more; None at the end of the tar."""
    start, long_name, extended, pending = offset, None, dict(defaults), False
    while True:
        block = reader.read(offset, BLOCK)
        if len(block) < BLOCK:
            raise BadTar("the end of the tar is missing", start)
        data = bytes(block)
        if not data[0] and not any(data):
            if pending:
                raise BadTar("the end of the tar is missing", start)
            return None
        _check_sum(data, start)
        kind, length = data[156:157], _parse_number(data[124:136], start)
        offset += BLOCK
        if kind not in (b"L", b"K", b"x", b"X", b"g"):
            break
        if length > _MOST_META:
            raise BadTar(f"a name of {length:,} bytes is too long", start)
        pending = pending or kind != b"g"
        text = bytes(reader.read(offset, length))
        if len(text) < length:
            raise BadTar("unexpected end of data", start)
        offset += -(-length // BLOCK) * BLOCK
        if kind == b"L":
            long_name = _decode(text.partition(b"\0")[0], start)
        elif kind != b"K":
            records = _parse_records(text, start)
            extended |= records
            if kind == b"g":
                defaults |= records
                start = start if pending else offset
    if kind == b"S" or any(key.startswith("GNU.sparse.") for key in extended):
        raise BadTar(_SPARSE, start)
    name = extended.get("path", long_name)
    if name is None:
        name = _read_name(data, start)
    if "size" in extended:
        length = _parse_decimal(extended["size"], start)
    is_folder = kind == _DIRECTORY or (kind == b"\0" and name.endswith("/"))
    if kind in _WITHOUT_DATA or is_folder:
        length = 0
    if size is not None and offset + length > size:
        raise BadTar("unexpected end of data", start)
    if is_folder:
        name = name.rstrip("/")
    is_file = kind in _FILES and not is_folder
    if not is_file and length:  # of a kind that nobody knows: its data is passed over
        offset += -(-length // BLOCK) * BLOCK
    return TarMember(name, start, offset, length, is_file, is_folder)


def _check_sum(data: bytes, offset: int) -> None:
    """Compare the sum of all bytes; those of the sum itself count as spaces.

    Adler-32 has the sum of up to 256 bytes in its lower half, plus one.
    """
    expected = _parse_number(data[148:156], offset)
    first, second = zlib.adler32(data[:256]) & 0xFFFF, zlib.adler32(data[256:]) & 0xFFFF
    total = first + second - 2 - sum(data[148:156]) + 8 * 32
    if total == expected:
        return
    signed = total - 256 * sum(value > 127 for value in data[:148] + data[156:])
    if signed != expected:
        raise BadTar("bad checksum", offset)


def _parse_number(field: bytes | memoryview, offset: int) -> int:
    """Parse an octal number, or a large one as GNU tar writes it, to the base 256."""
    data = bytes(field)
    if data[0] == 0x80:
        return int.from_bytes(data[1:], "big")
    try:
        text = data.partition(b"\0")[0].strip()
        number = int(text, 8) if text else 0
    except ValueError as error:
        raise BadTar("invalid header", offset) from error
    if number < 0:
        raise BadTar("invalid header", offset)
    return number


def _parse_decimal(text: str, offset: int) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise BadTar("invalid header", offset)
    return int(text)


def _read_name(data: bytes, offset: int) -> str:
    name = data[:100].partition(b"\0")[0]
    if data[257:263] == b"ustar\0" and data[345]:
        name = data[345:500].partition(b"\0")[0] + b"/" + name
    return _decode(name, offset)


def _decode(name: bytes, offset: int) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise BadTar(f"a name is not UTF-8: {name[:80]!r}", offset) from error


def _parse_records(text: bytes, offset: int) -> dict[str, str]:
    """Parse the records `LENGTH KEY=VALUE` that POSIX puts in front of a header."""
    records = {}
    position = 0
    while position < len(text) and text[position]:
        digits, space, _ = text[position : position + 20].partition(b" ")
        if not space or not digits.isdigit():
            raise BadTar("invalid header", offset)
        end = position + int(digits)
        key, equals, value = text[position + len(digits) + 1 : end - 1].partition(b"=")
        if end > len(text) or end <= position or not equals or text[end - 1] != 10:
            raise BadTar("invalid header", offset)
        if key in (b"path", b"size") or key.startswith(b"GNU.sparse."):
            records[key.decode(errors="replace")] = _decode(value, offset)
        position = end
    return records
