"""Files of a source on disks and in stores, which are read alike."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import IO, Any

from fieldslab.packer.sources.local_file import LocalFile
from fieldslab.packer.sources.path_lookup import list_files
from fieldslab.packer.sources.remote_file import RemoteFile
from fieldslab.packer.sources.remote_lookup import is_remote_source, list_remote_files, split_url
from fieldslab.schemas.stores.store_place import StorePlace

StoredFile = LocalFile | RemoteFile


def find_stored_files(
    paths: Sequence[str],
    suffixes: Sequence[str],
    kind: str,
    storage_options: Mapping[str, Any] | None = None,
) -> list[StoredFile]:
    """Find the files in the order given; of directories and globs sorted, with one of `suffixes`.

    `kind` is what the files are called.

    Raises NoFiles if there are none, SourceUnreadable if a directory may not be read, and for URLs
    what `list_remote_files` raises.
    """
    places: dict[str, StorePlace] = {}
    files: list[StoredFile] = []
    for path in paths:
        if is_remote_source(path):
            remote = split_url(path, storage_options, places)
            files += list_remote_files(remote, suffixes, kind)
        else:
            files += map(LocalFile.from_path, list_files(path, suffixes, kind))
    return files


class _NotingFile(io.RawIOBase):
    """Reads a file, and notes errors of the store, which `zipfile` takes for damage."""

    error: OSError | None = None

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to another position."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._file.tell()

    def read(self, size: int = -1) -> bytes:
        """Read bytes, fewer at the end of the file."""
        try:
            return bytes(self._file.read(size))
        except OSError as error:
            self.error = error
            raise


def open_zip(file: StoredFile) -> zipfile.ZipFile:
    """Open a zip. Raises what `zipfile` raises on damage, and what stores raise."""
    if isinstance(file, LocalFile):
        return zipfile.ZipFile(file.path)
    stream = _NotingFile(file.open_binary())
    try:
        return zipfile.ZipFile(stream)
    except zipfile.BadZipFile:
        if stream.error is not None:
            raise stream.error from None
        raise
