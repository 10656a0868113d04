"""Arrays in `.npy` files and `.npz` archives: their headers, and some rows of them."""

import ast
import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from lzma import LZMAError
from math import prod
from typing import IO, Any

import numpy as np

from fieldslab.packer.sources.array_source import ArrayPart, StoredArray
from fieldslab.packer.sources.batches import make_damage_error
from fieldslab.packer.sources.stored_files import StoredFile, open_zip
from fieldslab.schemas.errors import FieldslabError
from fieldslab.schemas.optiontext import mark_option

MAGIC = b"\x93NUMPY"
PIECE_BYTES = 8 << 20
"""Of archives, about so many bytes are read at a time."""
MOST_HEADER = 1 << 16
"""Bytes of a header at most: it is text that is parsed."""
_ERRORS = (
    *(ValueError, OSError, EOFError, SyntaxError, TypeError, KeyError, RuntimeError),
    *(NotImplementedError, zipfile.BadZipFile, zlib.error, LZMAError, tokenize.TokenError),
    MemoryError,  # what a header of endless brackets raises
)


@dataclass(frozen=True)
class Header:
    """What an `.npy` says of its array; the values begin at byte `start`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    start: int

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return self.start + prod(self.shape) * self.dtype.itemsize

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def columnwise(self) -> bool:
        """Whether the values of a row lie apart from each other."""
        return self.fortran and len(self.shape) > 1

    def make_array(self, name: str) -> StoredArray:
        """Make the array for a source."""
        refusal = None
        if self.dtype.hasobject:
            refusal = (
                "an array of Python objects is a pickle, which is never read",
                f"Save it as an array of numbers or text; {mark_option('exclude', ['{}'])} "
                "leaves it out.",
            )
        return StoredArray(name, self.shape, self.dtype, refusal=refusal)


@dataclass(frozen=True)
class NpyPart(ArrayPart):
    """`.npy` files side by side."""

    files: Mapping[str, tuple[StoredFile, Header]] = None  # type: ignore[assignment]

    def read(self, names: Sequence[str], start: int, stop: int) -> dict[str, np.ndarray]:
        """Read some rows. Raises SourceUnreadable, SourceChanged."""
        arrays = {}
        for name in names:
            file, header = self.files[name]
            with name_errors(file.path, file):
                arrays[name] = _read_rows(file, header, start, stop)
            file.check_unchanged()
        return arrays


@dataclass(frozen=True)
class NpzDirectory:
    """What an `.npz` holds: the headers of its arrays, and where each begins and ends.

    `end` is where the directory of the archive begins and ends.
    """

    headers: Mapping[str, Header]
    places: Mapping[str, tuple[int, int]]
    end: tuple[int, int]

    def list_ranges(self, names: Sequence[str], rows: int) -> list[tuple[int, int]]:
        """List where the first rows of some arrays lie, at most, and the directory."""
        return [*(self._find_rows(name, rows) for name in names), self.end]

    def _find_rows(self, name: str, rows: int) -> tuple[int, int]:
        header, (start, stop) = self.headers[name], self.places[name]
        if header.columnwise:
            return start, stop
        return start, min(stop, start + MOST_HEADER + rows * header.row_bytes)


@dataclass(frozen=True)
class NpzPart(ArrayPart):
    """The arrays of an `.npz`, which are read from their first row to their last."""

    file: StoredFile = None  # type: ignore[assignment]
    directory: NpzDirectory = None  # type: ignore[assignment]

    def read_pieces(
        self, names: Sequence[str], start: int, stop: int
    ) -> Iterator[dict[str, np.ndarray]]:
        """Read some rows in pieces; what is read to its end is compared with its checksum."""
        with name_errors(self.file.path, self.file), ExitStack() as stack:
            headers = self.directory.headers
            rows = max(headers[name].shape[0] for name in names)
            row_bytes = sum(headers[name].row_bytes for name in names)
            step = max(1, PIECE_BYTES // max(row_bytes, 1))
            ranges = self.directory.list_ranges(names, stop)
            file: Any = stack.enter_context(self.file.fetch(ranges))
            archive = stack.enter_context(open_zip(file))
            members = {
                name: _Member(stack.enter_context(archive.open(f"{name}.npy"))) for name in names
            }
            for member in members.values():
                member.skip(start)
            for first in range(start, stop, step):
                count = min(step, stop - first)
                piece = {name: member.read(count) for name, member in members.items()}
                if first + count == rows:
                    for member in members.values():
                        member.finish()
                yield piece
        self.file.check_unchanged()


class _Member:
    """An array of an archive, read from its start to its end."""

    def __init__(self, stream: IO[bytes]) -> None:
        """Read the header."""
        self._stream = stream
        self._header = read_npy_header(stream)
        self._row = 0
        self._whole: np.ndarray | None = None
        if self._header.columnwise:
            header = self._header
            data = self._read_bytes(prod(header.shape) * header.dtype.itemsize)
            self._whole = np.frombuffer(data, header.dtype).reshape(header.shape, order="F")

    def skip(self, rows: int) -> None:
        """Pass over some rows."""
        step = max(1, PIECE_BYTES // max(self._header.row_bytes, 1))
        while self._row < rows:
            self.read(min(step, rows - self._row))

    def read(self, rows: int) -> np.ndarray:
        """Read some rows."""
        start, self._row = self._row, self._row + rows
        if self._whole is not None:
            return self._whole[start : self._row]
        data = self._read_bytes(rows * self._header.row_bytes)
        return np.frombuffer(data, self._header.dtype).reshape(rows, *self._header.shape[1:])

    def finish(self) -> None:
        """Read to the end, where the checksum is compared. Raises ValueError for further bytes."""
        if self._stream.read(1):
            raise ValueError("there are bytes behind the array")

    def _read_bytes(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise ValueError("the array is cut off")
        return data


def open_npy(file: StoredFile) -> Header:
    """Read the header of a file. Raises SourceUnreadable where it is damaged, or cut off."""
    with name_errors(file.path, file), file.open_binary() as stream:
        header = read_npy_header(stream)
        if not header.dtype.hasobject and header.size != file.size:
            raise ValueError(
                f"its header says {header.size:,} bytes, and it has {file.size:,}"
                if header.size > file.size
                else f"there are {file.size - header.size:,} bytes behind the array"
            )
    return header


def open_npz(file: StoredFile) -> NpzPart:
    """Read the headers of all arrays of an archive. Raises SourceUnreadable."""
    directory = read_npz_directory(file)
    arrays = {name: header.make_array(name) for name, header in directory.headers.items()}
    return NpzPart(file.path, arrays, divided=False, file=file, directory=directory)


def read_npz_directory(file: StoredFile) -> NpzDirectory:
    """Read the headers of the arrays of an archive, in their order. Raises SourceUnreadable."""
    headers: dict[str, Header] = {}
    starts: dict[str, int] = {}
    with name_errors(file.path, file), open_zip(file) as archive:
        for info in archive.infolist():
            name, suffix = os.path.splitext(info.filename)
            if not info.filename:
                raise ValueError("a member has no name")
            if info.is_dir():
                continue
            if suffix != ".npy":
                raise ValueError(f"the member {info.filename} is no .npy")
            if name in headers:
                raise ValueError(f"there are two members {info.filename}")
            with archive.open(info) as stream:
                header = headers[name] = read_npy_header(stream)
            starts[name] = info.header_offset
            if not header.dtype.hasobject and header.size != info.file_size:
                raise ValueError(
                    f"{info.filename}: its header says {header.size:,} bytes, and it has "
                    f"{info.file_size:,}"
                )
        directory = archive.start_dir
    stops = dict(pairwise([*sorted(starts.values()), directory]))
    places = {name: (start, stops[start]) for name, start in starts.items()}
    return NpzDirectory(headers, places, (directory, file.size))


def read_npy_header(stream: IO[bytes]) -> Header:
    """Read the header of an `.npy`. Raises ValueError, SyntaxError."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream, MOST_HEADER)
    elif version == (2, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream, MOST_HEADER)
    elif version == (3, 0):
        shape, fortran, dtype = _read_header_3(stream)
    else:
        raise ValueError(f"its version is {version}")
    if any(length < 0 for length in shape):
        raise ValueError(f"its shape is {shape}")
    return Header(tuple(map(int, shape)), dtype, fortran, stream.tell())


def _read_header_3(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read a header in UTF-8, for which numpy has no public function."""
    size = int.from_bytes(stream.read(4), "little")
    if size > MOST_HEADER:
        raise ValueError(f"its header has {size:,} bytes")
    header = ast.literal_eval(stream.read(size).decode())
    if not isinstance(header, dict) or header.keys() != {"descr", "fortran_order", "shape"}:
        raise ValueError("its header is none of numpy")
    if not isinstance(header["fortran_order"], bool):
        raise ValueError(f"its order is {header['fortran_order']!r}")
    return header["shape"], header["fortran_order"], np.lib.format.descr_to_dtype(header["descr"])


def _read_rows(file: StoredFile, header: Header, start: int, stop: int) -> np.ndarray:
    """Read some rows of a file; no map, which a file that is cut off would turn into a crash."""
    ranges = _list_ranges(header, start, stop)
    pieces = []
    with file.fetch(ranges) as fetched, fetched.open_binary() as stream:
        for first, last in ranges:
            stream.seek(first)
            pieces.append(stream.read(last - first))
            if len(pieces[-1]) < last - first:
                raise ValueError("the file is cut off")
    data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    rows, inner = stop - start, header.shape[1:]
    values = np.frombuffer(data, header.dtype, rows * prod(inner))
    return (
        values.reshape(*inner[::-1], rows).T if header.columnwise else values.reshape(rows, *inner)
    )


def _list_ranges(header: Header, start: int, stop: int) -> list[tuple[int, int]]:
    """List where some rows lie in the file: the values of a row may lie apart."""
    if not header.columnwise:
        first = header.start + start * header.row_bytes
        return [(first, first + (stop - start) * header.row_bytes)]
    item, rows = header.dtype.itemsize, header.shape[0]
    firsts = (header.start + (line * rows + start) * item for line in range(prod(header.shape[1:])))
    return [(first, first + (stop - start) * item) for first in firsts]


@contextmanager
def name_errors(path: str, planned: StoredFile | None = None) -> Iterator[None]:
    """Turn what damaged files raise into SourceUnreadable, or SourceChanged if not as planned."""
    try:
        yield
    except FieldslabError:
        raise
    except _ERRORS as error:
        if planned is not None:
            planned.check_unchanged()
        raise make_damage_error(error, "file of numpy", path) from error
