"""Text cut into blocks of whole records, with the number of the line at which each begins."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

BLOCK = 4 << 20
"""Bytes that are read and parsed at a time; a record may be longer."""
MOST_RECORD = 1 << 28
"""Bytes of a record at most: a longer one is a quote that is not closed, or no text of lines."""


class Block(NamedTuple):
    """Whole records: `line` is the number of the first line, from 1; `rows` counts no blank lines.

    `ends` says where each record ends, blank ones included.
    """

    data: bytes
    line: int
    rows: int
    ends: np.ndarray


class UnendedRecord(Exception):
    """A record that is too long, or that does not end; it begins at this line."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


FindEnds = Callable[[bytes], np.ndarray]
"""Finds where records end in text that begins with one: int64[records]."""


def read_blocks(
    stream: pa.NativeFile, find_ends: FindEnds, line: int, stop: int | None, size: int = BLOCK
) -> Iterator[Block]:
    """Read the rest of a stream, or `stop` bytes of it, in blocks near `size` bytes.

    Raises UnendedRecord.
    """
    rest, left = b"", stop
    while True:
        data = stream.read(size if left is None else min(size, left))
        left = None if left is None else left - len(data)
        rest += data
        if not data and rest and not rest.endswith(b"\n"):
            rest += b"\n"  # the last record of a file need not end
        ends = find_ends(rest) if rest else np.empty(0, np.int64)
        if len(ends):
            text, rest = rest[: int(ends[-1])], rest[int(ends[-1]) :]
            yield Block(text, line, _count_rows(text, ends), ends)
            line += text.count(b"\n")
        if not data:
            if rest:
                raise UnendedRecord(line)
            return
        if len(rest) > MOST_RECORD:
            raise UnendedRecord(line)
        size = max(size, len(rest))  # a long record is not looked at again and again


def find_lines(data: bytes) -> np.ndarray:
    """Find where lines end: int64[lines]."""
    return np.flatnonzero(np.frombuffer(data, np.uint8) == 10) + 1


def make_quoted_finder(delimiter: str) -> FindEnds:
    """Make what finds the ends of records of CSV, where quoted values may hold line ends."""
    sign = re.escape(delimiter.encode())
    quoted = re.compile(rb"(?:\A|[\r\n]|" + sign + rb')"(?:[^"]|"")*+(?:"|\Z)')

    may_precede = np.isin(np.arange(256), [10, 13, 34, ord(delimiter)])

    def hide(match: re.Match[bytes]) -> bytes:
        text = match[0]
        return text[:1] + text[1:].replace(b"\n", b" ")

    def find_ends(data: bytes) -> np.ndarray:
        values = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(values == 10) + 1
        quotes = np.flatnonzero(values == 34)
        if not len(quotes):
            return ends
        # Where each quote that opens stands behind a delimiter, a line end or a quote, those with
        # an odd number of quotes before them are inside of quotes. Else values are looked at.
        opening = quotes[::2]
        previous = values[opening[opening > 0] - 1]
        if may_precede[previous].all():
            return ends[np.searchsorted(quotes, ends) % 2 == 0]
        return find_lines(quoted.sub(hide, data))

    return find_ends


def _count_rows(data: bytes, ends: np.ndarray) -> int:
    """Count the records that are not blank."""
    starts = np.concatenate([[0], ends[:-1]])
    sizes = ends - starts
    short = starts[sizes == 2]
    blank = int(np.count_nonzero(sizes == 1))
    blank += int(np.count_nonzero(np.frombuffer(data, np.uint8)[short] == 13))
    return len(ends) - blank
