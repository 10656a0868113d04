"""LitData's compact form of lists and dicts (its `json` leaves), read with every bound checked.

A value is a tag byte and what belongs to it; numbers are little-endian. Before that form came,
JSON text was stored, which no tag looks like.
"""

import json
import struct
from collections.abc import Callable
from typing import Any

_TEXT_FROM = 0x21
_RECORDS = 6
_DEEPEST = 200


class NotNested(ValueError):
    """Bytes that are not a value in this form."""


def decode_nested(data: bytes) -> Any:
    """Decode the value of one leaf: lists, dicts, text, numbers, bools and None.

    Raises NotNested for anything else than one whole value.
    """
    if not data:
        raise NotNested("no bytes at all")
    if data[0] >= _TEXT_FROM:
        return _parse_json(data)
    reader = _NestedValueReader(data)
    value = reader.read_value(0)
    if reader.position != len(data):
        raise NotNested(f"{len(data) - reader.position} bytes too many")
    return value


def _parse_json(data: bytes) -> Any:
    try:
        return json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise NotNested(f"not JSON: {error}") from error


class _NestedValueReader:
    """Takes value after value from some bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def read_value(self, depth: int) -> Any:
        tag = self._read_byte()
        if tag in _SCALARS:
            return _SCALARS[tag](self)
        if tag in _LISTS:
            read, least = _LISTS[tag]
            return read(self, self._read_count(least))
        if tag == _DICT:
            if depth >= _DEEPEST:
                raise NotNested("nested too deeply")
            return {
                self.read_text(): self.read_value(depth + 1) for _ in range(self._read_count(5))
            }
        if tag == _RECORDS:
            return self._read_records()
        raise NotNested(f"unknown tag {tag}")

    def _read_records(self) -> list[dict[str, Any]]:
        """Read many dicts with the same keys, which are stored once."""
        (rows,) = self._unpack_values("<I")
        names = [self.read_text() for _ in range(self._read_count(4))]
        if not names or rows * len(names) > len(self.data) - self.position:
            raise NotNested("more values than bytes")
        return [{name: self._read_tagged_value() for name in names} for _ in range(rows)]

    def _read_tagged_value(self) -> Any:
        tag = self._read_byte()
        if tag not in _MEMBERS:
            raise NotNested(f"unknown tag {tag}")
        return _MEMBERS[tag](self)

    def read_text(self) -> str:
        try:
            return self.read_bytes(self._read_count(1)).decode()
        except UnicodeDecodeError as error:
            raise NotNested("text is not UTF-8") from error

    def read_number(self, form: str) -> Any:
        return self._unpack_values(form)[0]

    def read_numbers(self, form: str, count: int) -> list[Any]:
        return list(self._unpack_values(f"<{count}{form}"))

    def read_json_text(self) -> Any:
        return _parse_json(self.read_bytes(self._read_count(1)))

    def read_bytes(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self.data):
            raise NotNested("cut off")
        data, self.position = self.data[self.position : end], end
        return data

    def _read_byte(self) -> int:
        return self.read_bytes(1)[0]

    def _read_count(self, least: int) -> int:
        """Read a count of things of at least so many bytes each; all must lie in the data."""
        (count,) = self._unpack_values("<I")
        if count * least > len(self.data) - self.position:
            raise NotNested("cut off")
        return int(count)

    def _unpack_values(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(form, self.read_bytes(struct.calcsize(form)))


def _read_none(reader: _NestedValueReader) -> None:
    return None


def _read_bool(reader: _NestedValueReader) -> bool:
    return reader.read_bytes(1) != b"\0"


def _read_int(reader: _NestedValueReader) -> Any:
    return reader.read_number("<q")


def _read_float(reader: _NestedValueReader) -> Any:
    return reader.read_number("<d")


_DICT = 5
_SCALARS: dict[int, Callable[[_NestedValueReader], Any]] = {
    0: _NestedValueReader.read_json_text,
    7: _NestedValueReader.read_text,
    8: _read_int,
    9: _read_float,
    10: _read_bool,
    11: _read_none,
}
_MEMBERS: dict[int, Callable[[_NestedValueReader], Any]] = {
    0x10: _read_none,
    0x11: _NestedValueReader.read_text,
    0x12: _read_int,
    0x13: _read_float,
    0x14: _read_bool,
}
_LISTS: dict[int, tuple[Callable[[_NestedValueReader, int], list[Any]], int]] = {
    1: (lambda reader, count: [reader.read_text() for _ in range(count)], 4),
    2: (lambda reader, count: reader.read_numbers("q", count), 8),
    3: (lambda reader, count: reader.read_numbers("d", count), 8),
    4: (lambda reader, count: [byte != 0 for byte in reader.read_bytes(count)], 1),
}
"""How a list is read, and the least bytes of one of its items."""
