"""Members of tar files, read once from front to back; damage is named with its offset.

`tarfile` takes a damaged header for the end of a tar, and a tar that was cut off between two
members for a whole one. Here, a tar ends with a block of zeros, and there is nothing behind it.
"""

import gzip
import re
import struct
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from fieldslab.packer.sources.table_files import AnyFile
from fieldslab.schemas.errors import FieldslabError, SourceUnreadable, make_unreadable_source_error

MOST_BYTES = 1 << 31
"""A member of so many bytes is an error: compressed tars may be bombs."""

_NAME = re.compile(r"((?:.*/)?[^./]+)\.([^/]+)")
_META = re.compile(r"(?:.*/)?__[^/]*__")


class Member(NamedTuple):
    """A member of a sample: its place in the tar, and what its name says."""

    info: tarfile.TarInfo
    key: str
    extension: str


class PassedOver(NamedTuple):
    """A member that belongs to no sample, and why."""

    name: str
    why: str


class Tar:
    """A tar that is open for one pass."""

    def __init__(self, path: str, stream: Any, size: int | None) -> None:
        """Read the first header. `size` is that of the file; None where it is compressed."""
        self.path, self._stream, self._size = path, stream, size
        self.offset = 0
        """Where the member begins that is read now."""
        self.passed: list[PassedOver] = []
        self._tar = tarfile.TarFile(
            path, "r", stream, tarinfo=_StrictInfo, encoding="utf-8", errors="strict"
        )

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
                sample = []
            if not sample and hash(member.key) in keys:
                raise SourceUnreadable(
                    "the members of a sample are not side by side",
                    file=f"{self.path} byte {member.info.offset}",
                    found=member.info.name,
                    hint="Write the tar again with its members sorted by name.",
                )
            if any(member.extension == other.extension for other in sample):
                raise SourceUnreadable(
                    "two members of a sample have one extension",
                    file=f"{self.path} byte {member.info.offset}",
                    found=member.info.name,
                    hint="Upper and lower case are the same. Write the tar again.",
                )
            sample.append(member)
        if sample:
            yield sample

    def read(self, member: Member, size: int | None = None) -> bytes:
        """Read a member, or its first bytes."""
        self.offset = member.info.offset
        file = self._tar.extractfile(member.info)
        assert file is not None  # links and folders are passed over
        data = file.read() if size is None else file.read(size)
        if len(data) < min(member.info.size, member.info.size if size is None else size):
            raise tarfile.ReadError("unexpected end of data")
        return data

    def _list_members(self) -> Iterator[Member]:
        while True:
            self.offset = self._tar.offset
            info = self._tar.next()
            if info is None:
                self._check_end()
                return
            self._tar.members = []  # type: ignore[attr-defined]  # a tar may have millions
            self.offset = info.offset
            if info.isdir():
                continue
            if not info.isreg():
                self.passed.append(PassedOver(info.name, "no plain file"))
                continue
            match = _NAME.fullmatch(info.name)
            if match is None or _META.fullmatch(info.name):
                self.passed.append(PassedOver(info.name, "no name with an extension"))
                continue
            stored = 0 if info.issparse() else info.size
            if self._size is not None and info.offset_data + stored > self._size:
                raise tarfile.ReadError("unexpected end of data")
            if info.size >= MOST_BYTES:
                raise tarfile.ReadError(f"a member of {info.size:,} bytes is too large")
            yield Member(info, match[1], match[2].lower())

    def _check_end(self) -> None:
        while block := self._stream.read(1 << 20):
            if block.strip(b"\0"):
                raise tarfile.ReadError("there is data behind the end of the tar")


class _StrictInfo(tarfile.TarInfo):
    """A header whose damage is not taken for the end of the tar."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_StrictInfo":
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            missing = len(buf) < tarfile.BLOCKSIZE
            text = "the end of the tar is missing" if missing else str(error)
            raise tarfile.ReadError(text) from error


@contextmanager
def open_tar(file: AnyFile) -> Iterator[Tar]:
    """Open a tar for a `with` block. Raises SourceUnreadable with the offset of what is damaged."""
    path, tar = file.path, None
    try:
        opened = file.open()
        with open(opened, "rb") if isinstance(opened, str) else opened as stream:
            if path.lower().endswith(".tar"):
                tar = Tar(path, stream, file.size)
                yield tar
            else:
                with gzip.GzipFile(fileobj=stream) as text:
                    tar = Tar(path, text, None)
                    yield tar
    except FieldslabError:
        raise
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError, struct.error) as error:
        offset = 0 if tar is None else tar.offset
        problem = " ".join(str(error).split()).rstrip(".")
        raise make_unreadable_source_error(
            error,
            f"damaged or unreadable tar: {problem}",
            file=path if isinstance(error, OSError) and error.errno else f"{path} byte {offset}",
            hint="Write or download the file again.",
        ) from error
