"""The files of a mirror: those of the slab, of the same sizes, with holes for what is absent."""

import ctypes
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fieldslab.schemas.arrays import HEADER, make_array_header
from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.errors import FieldslabError
from fieldslab.schemas.files import OpenFolder
from fieldslab.schemas.mirror.blockmap import BlockMap, Unit
from fieldslab.schemas.mirror.names import SIDE, make_cache_error, name_cache_errors, refuse_link

_KEEP_SIZE_AND_PUNCH = 0x03
_libc = ctypes.CDLL(None, use_errno=True)


class SparseSlab:
    """The folder `ID/` of a cache directory, held open.

    Shards come into being when they are first asked for: with all their files, whose headers
    follow from the manifest, and without data.
    """

    def __init__(self, cache: Path, content: str, blocks: BlockMap) -> None:
        """`content` is the slab's `id`. Raises OutputDenied, NoSpace, OutputError."""
        self.path = cache / content
        self._side = cache / (content + SIDE)
        self._blocks = blocks
        self._prepared = set[str]()
        with name_cache_errors(self.path):
            self.path.mkdir(exist_ok=True)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
            self.directory = OpenFolder(self.path, os.open(self.path, flags))

    def prepare_folder(self, folder: int, name: str) -> None:
        """Have a folder of the slab there, with files of the right sizes.

        A power cut may have cost files their sizes and headers: they get them again.
        """
        if name in self._prepared:
            return
        refuse_link(self.path / name)
        with name_cache_errors(self.path / name):
            if not self._has(name):
                self._create_folder(folder, name)
            for unit in self._list_units(folder):
                self._write_header(f"{name}/{unit.file_name}", self.directory.fd, unit)
        self._prepared.add(name)

    @contextmanager
    def open_file(self, unit: Unit) -> Iterator[int]:
        """Open the file of a unit to read and write, for a `with` block; yield its descriptor."""
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        name = f"{unit.folder_name}/{unit.file_name}"
        try:
            fd = os.open(name, flags, dir_fd=self.directory.fd)
            try:
                yield fd
            finally:
                os.close(fd)
        except OSError as error:
            if isinstance(error, FieldslabError):
                raise
            raise make_cache_error(error, self.path / name) from error

    def punch_unit(self, unit: Unit) -> None:
        """Make a hole of the data of a unit. Raises OutputError where the file system cannot."""
        with self.open_file(unit) as fd:
            punch_hole(fd, HEADER, self._compute_size(unit) - HEADER)

    def read_bytes(self, unit: Unit, start: int, size: int) -> bytes:
        """Read so many bytes of the file of a unit, or fewer where it ends too early."""
        parts = []
        with self.open_file(unit) as fd:
            while size > 0 and (data := os.pread(fd, size, start)):
                parts.append(data)
                start, size = start + len(data), size - len(data)
        return b"".join(parts)

    def write_blocks(self, fd: int, first: int, data: memoryview) -> None:
        """Write data from block `first` of a file on."""
        offset = HEADER + first * BLOCK
        while data:
            count = os.pwrite(fd, data, offset)
            data, offset = data[count:], offset + count

    def close(self) -> None:
        """Let go of the folder."""
        fd, self.directory.fd = self.directory.fd, -1
        if fd >= 0:
            os.close(fd)

    def _list_units(self, folder: int) -> list[Unit]:
        files = [*self._blocks.list_folder_files(folder), None]
        return [self._blocks.get_unit(self._blocks.find_unit(folder, file)) for file in files]

    def _has(self, name: str) -> bool:
        try:
            os.stat(name, dir_fd=self.directory.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _create_folder(self, folder: int, name: str) -> None:
        """Create a folder with all its files at once, unless another process is faster."""
        unfinished = self._side / f"{name}.{secrets.token_hex(4)}"
        unfinished.mkdir()
        try:
            for unit in self._list_units(folder):
                self._write_header(os.fspath(unfinished / unit.file_name), None, unit)
            try:
                os.rename(unfinished, name, dst_dir_fd=self.directory.fd)
            except OSError:
                if not self._has(name):
                    raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    def _write_header(self, path: str, directory: int | None, unit: Unit) -> None:
        """Give a file its size and header, unless it has them."""
        header, size = make_array_header(*self._describe_array(unit)), self._compute_size(unit)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(path, flags, 0o666, dir_fd=directory)
        try:
            if os.fstat(fd).st_size != size:
                os.ftruncate(fd, size)
            if os.pread(fd, HEADER, 0) != header:
                os.pwrite(fd, header, 0)
        finally:
            os.close(fd)

    def _describe_array(self, unit: Unit) -> tuple[np.dtype[Any], tuple[int, ...]]:
        if unit.file is None:
            return self._blocks.describe_table(unit.folder)
        return unit.file.dtype, unit.file.shape

    def _compute_size(self, unit: Unit) -> int:
        if unit.file is None:
            return HEADER + self._blocks.count_digest_bytes(unit.folder)
        return HEADER + unit.file.data_bytes


def punch_hole(fd: int, start: int, size: int) -> None:
    """Free the room of some bytes of a file, which are zeros from then on. Raises OSError."""
    fallocate = getattr(_libc, "fallocate64", None) or getattr(_libc, "fallocate", None)
    if fallocate is None:
        raise OSError(95, "this system cannot make holes in files")
    arguments = ctypes.c_int64(start), ctypes.c_int64(size)
    if size and fallocate(fd, _KEEP_SIZE_AND_PUNCH, *arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
