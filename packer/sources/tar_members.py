"""Members of tar files, read from front to back; damage is named with its offset."""

import gzip
import os
import re
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from fieldslab.packer.sources.batches import make_damage_error
from fieldslab.packer.sources.local_file import LocalFile
from fieldslab.packer.sources.table_files import AnyFile
from fieldslab.packer.sources.tar_headers import BadTar, ForwardReader, TarMember, list_members
from fieldslab.schemas.errors import FieldslabError, SourceUnreadable
from fieldslab.schemas.files import close_quietly

MOST_BYTES = 1 << 31
"""A member of so many bytes is an error: compressed tars may be bombs."""

_WINDOW = 1 << 22
"""Bytes that are read at a time where data is read, and not only headers."""
_HEADERS = 1 << 13
_NAME = re.compile(r"((?:.*/)?[^./]+)\.([^/]+)", re.DOTALL)
_META = re.compile(r"(?:.*/)?__[^/]*__", re.DOTALL)


class Member(NamedTuple):
    """A member of a sample: its place in the tar, and what its name says.

    `offset` is where its header is, `data` where its `size` bytes are. An index does not keep the
    `name`.
    """

    key: str
    extension: str
    offset: int
    data: int
    size: int
    name: str = ""

    @property
    def shown(self) -> str:
        """The name, for people."""
        return self.name or f"{self.key}.{self.extension}"


class PassedOver(NamedTuple):
    """A member that belongs to no sample, and why."""

    name: str
    why: str


class TarIndex:
    """Where the members of a tar are, some 25 bytes each, so that headers are parsed once.

    It is not pickled: another process parses headers again.
    """

    def __init__(self) -> None:
        """Start with no members."""
        self.keys: list[str] = []
        self.extensions: list[str] = []
        self._codes: dict[str, int] = {}
        self._starts = array("q")
        self._members = array("q")
        self._extensions = array("i")

    def __len__(self) -> int:
        return len(self._extensions)

    def __reduce__(self) -> Any:
        return (type(None), ())

    def append(self, sample: list[Member]) -> None:
        """Append a sample."""
        self.keys.append(sample[0].key)
        self._starts.append(len(self))
        for member in sample:
            code = self._codes.setdefault(member.extension, len(self._codes))
            self._members.extend((member.offset, member.data, member.size))
            self._extensions.append(code)

    def list_samples(self) -> Iterator[list[Member]]:
        """List the members of each sample."""
        names = list(self._codes)
        stops = [*self._starts[1:], len(self)] if self.keys else []
        for key, start, stop in zip(self.keys, self._starts, stops, strict=True):
            places = self._members[3 * start : 3 * stop]
            yield [
                Member(key, names[code], offset, data, size)
                for code, offset, data, size in zip(
                    self._extensions[start:stop],
                    places[::3],
                    places[1::3],
                    places[2::3],
                    strict=True,
                )
            ]


class Tar:
    """A tar that is open for one pass."""

    def __init__(self, path: str, reader: ForwardReader, size: int | None) -> None:
        """Begin in front of the first header.

        `size` is None where the file is compressed: then members are read as they are listed, and
        held until the next sample, as nothing can be read twice.
        """
        self.path, self._reader, self._size = path, reader, size
        self.passed: list[PassedOver] = []
        self._held: dict[int, memoryview] = {}

    def list_samples(self) -> Iterator[list[Member]]:
        """List the members of each sample; members are read before the next sample is asked for.

        Raises SourceUnreadable where a key comes back behind another sample.
        """
        keys: set[int] = set()
        sample: list[Member] = []
        for member in self._list_members():
            if sample and member.key != sample[0].key:
                keys.add(hash(sample[0].key))
                yield sample
                for finished in sample:
                    self._held.pop(finished.data, None)
                sample = []
            if not sample and hash(member.key) in keys:
                raise SourceUnreadable(
                    "the members of a sample are not side by side",
                    file=f"{self.path} byte {member.offset}",
                    found=member.shown,
                    hint="Write the tar again with its members sorted by name.",
                )
            if any(member.extension == other.extension for other in sample):
                raise SourceUnreadable(
                    "two members of a sample have one extension",
                    file=f"{self.path} byte {member.offset}",
                    found=member.shown,
                    hint="Upper and lower case are the same. Write the tar again.",
                )
            sample.append(member)
        if sample:
            yield sample

    def read(self, member: Member, size: int | None = None) -> memoryview:
        """Read a member, or its first bytes. Raises BadTar."""
        size = member.size if size is None else min(size, member.size)
        if member.data in self._held:
            return self._held[member.data][:size]
        data = self._reader.read(member.data, size)
        if len(data) < size:
            raise BadTar("unexpected end of data", member.offset)
        return data

    def _list_members(self) -> Iterator[Member]:
        for member in list_members(self._reader, self._size):
            if member.is_folder:
                continue
            if not member.is_file:
                self.passed.append(PassedOver(member.name, "no plain file"))
                continue
            match = _NAME.fullmatch(member.name)
            if match is None or _META.fullmatch(member.name):
                self.passed.append(PassedOver(member.name, "no name with an extension"))
                continue
            check_size(member)
            place = member.offset, member.data, member.size
            part = Member(match[1], match[2].lower(), *place, member.name)
            if self._size is None:
                self._held[member.data] = self.read(part)
            yield part


def check_size(member: TarMember) -> None:
    """Raise BadTar for a member that is too large."""
    if member.size >= MOST_BYTES:
        raise BadTar(f"a member of {member.size:,} bytes is too large", member.offset)


class _FileReader:
    """Reads a file by `read_at(size, offset)`, a window at a time."""

    def __init__(self, read_at: Callable[[int, int], bytes], window: int) -> None:
        self._read_at, self._window = read_at, window
        self._start, self._data = 0, memoryview(b"")

    def read(self, offset: int, size: int) -> memoryview:
        """Read bytes, fewer at the end of the file."""
        start = offset - self._start
        if not 0 <= start <= len(self._data) - size:
            window = max(size, self._window)
            pieces = [self._read_at(window, offset)]
            while pieces[-1] and sum(map(len, pieces)) < size:
                read_bytes = sum(map(len, pieces))
                pieces.append(self._read_at(window - read_bytes, offset + read_bytes))
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._start, self._data, start = offset, memoryview(data), 0
        return self._data[start : start + size]


class _StreamReader:
    """Reads a stream that only goes forward."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._start, self._data = 0, memoryview(b"")

    def read(self, offset: int, size: int) -> memoryview:
        """Read bytes, fewer at the end of the stream; nothing in front of the last offset."""
        while self._start + len(self._data) < offset:
            self._start += len(self._data)
            data = self._load(min(offset - self._start, _WINDOW))
            self._data = memoryview(data)
            if not data:
                return self._data
        start = offset - self._start
        if len(self._data) - start < size:
            pieces = [bytes(self._data[start:])]
            missing = size - len(pieces[0])
            while missing > 0 and (data := self._load(max(missing, _HEADERS))):
                pieces.append(data)
                missing -= len(data)
            self._start, self._data, start = offset, memoryview(b"".join(pieces)), 0
        return self._data[start : start + size]

    def _load(self, size: int) -> bytes:
        try:
            return bytes(self._stream.read(size))
        except (zlib.error, EOFError, gzip.BadGzipFile) as error:
            raise BadTar(str(error), self._start + len(self._data)) from error


@contextmanager
def open_headers(path: str) -> Iterator[tuple[ForwardReader, int]]:
    """Open a file on a disk to read the headers of a tar, for a `with` block; also its size."""
    with open(path, "rb", 0) as file:
        read_at = partial(os.pread, file.fileno())
        yield _FileReader(read_at, _HEADERS), os.fstat(file.fileno()).st_size


@contextmanager
def name_tar_errors(path: str) -> Iterator[None]:
    """Turn what is raised on bad tars into SourceUnreadable, with the offset of what is damaged."""
    try:
        yield
    except FieldslabError:
        raise
    except (BadTar, OSError) as error:
        place = f"{path} byte {error.offset}" if isinstance(error, BadTar) else path
        raise make_damage_error(error, "tar", place) from error


@contextmanager
def open_tar(file: AnyFile, *, headers: bool = False) -> Iterator[Tar]:
    """Open a tar for a `with` block, to read all of it or `headers` alone.

    Raises SourceUnreadable with the offset of what is damaged.
    """
    path = file.path
    with name_tar_errors(path):
        window = _HEADERS if headers else _WINDOW
        compressed = not path.lower().endswith(".tar")
        if isinstance(file, LocalFile) and not compressed:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                read_at = partial(os.pread, descriptor)
                yield Tar(path, _FileReader(read_at, window), file.size)
            finally:
                close_quietly(descriptor)
            return
        opened = file.open()
        with open(opened, "rb") if isinstance(opened, str) else opened as stream:
            if compressed:
                with gzip.GzipFile(fileobj=stream) as text:
                    yield Tar(path, _StreamReader(text), None)
                return

            def read_there(size: int, offset: int) -> bytes:
                stream.seek(offset)
                return bytes(stream.read(size))

            yield Tar(path, _FileReader(read_there, window), file.size)
