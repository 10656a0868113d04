"""Members of zip files: listed from the directory at the end, read by offset, and checked."""

import io
import os
import struct
import zipfile
import zlib
from itertools import pairwise
from typing import Any, NamedTuple

from fieldslab.schemas.errors import (
    FieldslabError,
    SourceUnreadable,
    SourceUnsupported,
    make_unreadable_source_error,
)

STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
_LOCAL = struct.Struct("<4s5H3I2H")
_UTF8 = 0x800
_ENCRYPTED = 1
_MOST_EXPANSION = 1032
"""Bytes that one byte of deflate can stand for, at most."""


class ArchiveMember(NamedTuple):
    """A file in an archive: `stored` bytes at `offset` stand for `size`.

    Of a zip, `offset` is that of its header; `method` says how it is compressed, and `crc` is the
    CRC-32 of its content. Of a tar, `method` is STORED and `crc` is -1.
    """

    name: str
    offset: int
    stored: int
    size: int
    method: int = STORED
    crc: int = -1


class _NotingFile(io.FileIO):
    """Notes an error of the disk, which `zipfile` takes for damage."""

    error: OSError | None = None

    def readinto(self, buffer: Any) -> int | None:
        """Read into a buffer."""
        try:
            return super().readinto(buffer)
        except OSError as error:
            self.error = error
            raise

    def readall(self) -> bytes:
        """Read all that is left."""
        try:
            return super().readall()
        except OSError as error:
            self.error = error
            raise


def list_zip_members(path: str) -> list[ArchiveMember]:
    """List the files of a zip, in the order of their names.

    Raises
    ------
    SourceUnreadable
        The directory is damaged, or members lie upon each other.
    """
    try:
        with _NotingFile(path) as raw, io.BufferedReader(raw) as file:
            try:
                with zipfile.ZipFile(file) as archive:
                    if "" in archive.NameToInfo:
                        raise ValueError("a member has no name")
                    infos = [info for info in archive.infolist() if not info.is_dir()]
                    end = archive.start_dir
            finally:
                if raw.error is not None:
                    raise raw.error
    except OSError as error:
        raise make_unreadable_source_error(
            error, f"cannot be read: {error.strerror or error}", file=path
        ) from error
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError, struct.error) as error:
        raise make_zip_error(path, str(error)) from error
    ranges = sorted(
        (info.header_offset, info.header_offset + 30 + info.compress_size) for info in infos
    )
    for (_, stop), (start, _) in pairwise([*ranges, (end, end)]):
        if start < stop:
            raise make_zip_error(path, f"members lie upon each other at byte {start}, as in a bomb")
    return [
        ArchiveMember(
            _decode_name(info),
            info.header_offset,
            info.compress_size,
            info.file_size,
            -1 if info.flag_bits & _ENCRYPTED else info.compress_type,
            info.CRC,
        )
        for info in infos
    ]


def check_zip_member(path: str, member: ArchiveMember) -> None:
    """Raise SourceUnsupported for a member that is encrypted, or compressed in a way not read.

    Raises SourceUnreadable for one that promises more than its bytes can hold.
    """
    file = f"{path}/{member.name}"
    if member.method == -1:
        raise SourceUnsupported(
            "is encrypted", file=file, hint="Write the zip again without a password."
        )
    if member.method not in (STORED, DEFLATED):
        raise SourceUnsupported(
            "is compressed in a way that is not read",
            file=file,
            expected="stored or deflate",
            found=zipfile.compressor_names.get(member.method, str(member.method)),  # type: ignore[attr-defined]
            hint="Write the zip again, for example with `zip -0 -r`.",
        )
    most = member.stored * (_MOST_EXPANSION if member.method == DEFLATED else 1)
    if member.size > most:
        raise make_zip_error(
            file, f"{member.stored:,} bytes cannot hold {member.size:,}, as in a bomb"
        )


def read_zip_member(file: int, member: ArchiveMember, path: str) -> bytes:
    """Read a member from an open zip, and compare it with its CRC.

    Raises SourceUnreadable where it is damaged; `path` is what it is called then.
    """
    head = read_fully(file, _LOCAL.size, member.offset)
    if len(head) < _LOCAL.size or head[:4] != b"PK\x03\x04":
        raise make_zip_error(path, f"no header at byte {member.offset}")
    fields = _LOCAL.unpack(head)
    if fields[2] & _ENCRYPTED or fields[3] != member.method:
        raise make_zip_error(path, f"the header at byte {member.offset} contradicts the directory")
    start = member.offset + _LOCAL.size + fields[9] + fields[10]
    data = read_fully(file, member.stored, start)
    if len(data) < member.stored:
        raise make_zip_error(path, "unexpected end of data")
    if member.method == DEFLATED:
        stream = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            content = stream.decompress(data, member.size + 1)
        except zlib.error as error:
            raise make_zip_error(path, str(error)) from error
        if len(content) > member.size:
            raise make_zip_error(path, f"it holds more than {member.size:,} bytes, as in a bomb")
    else:
        content = data
    if len(content) != member.size or zlib.crc32(content) != member.crc:
        raise make_zip_error(path, "its content does not have the CRC that the zip promises")
    return content


def read_fully(file: int, size: int, offset: int) -> bytes:
    """Read bytes at an offset, fewer only at the end of the file."""
    pieces = [os.pread(file, size, offset)]
    done = len(pieces[0])
    while done < size and pieces[-1]:
        pieces.append(os.pread(file, size - done, offset + done))
        done += len(pieces[-1])
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _decode_name(info: zipfile.ZipInfo) -> str:
    """Decode a name: UTF-8 where the zip says so, or where it can be; else code page 437."""
    if info.flag_bits & _UTF8:
        return info.filename
    try:
        return info.filename.encode("cp437").decode()
    except UnicodeError:
        return info.filename


def make_zip_error(path: str, problem: str) -> FieldslabError:
    """Make the error for a damaged zip or member."""
    text = " ".join(problem.split()).rstrip(".")
    return SourceUnreadable(
        f"damaged or unreadable zip: {text}",
        file=path,
        hint="Write or download the file again.",
    )
