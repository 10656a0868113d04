"""Directories on systems that cannot hold one open, such as Windows: files are opened by path.

What keeps one generation of a slab apart from the next is `manifest.json`, held open as long as the
slab is: Windows neither renames nor removes a directory while a file in it is open or mapped, so no
other slab can take its place. Links are looked for before a file is opened.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fieldslab.schemas.errors import Damaged, DamagedArray
from fieldslab.schemas.files import (
    OpenFolder,
    close_quietly,
    make_link_error,
    make_opening_error,
    make_unreadable_error,
    measure_regular_file,
)
from fieldslab.schemas.manifest import MANIFEST
from fieldslab.schemas.system import READ


class PathFolder(OpenFolder):
    """A directory whose files are opened by path. `fd` is that of `manifest.json`, or -1."""

    @contextmanager
    def open_file(
        self, name: str, damaged: type[Damaged] = DamagedArray, field: str | None = None
    ) -> Iterator[tuple[int, int]]:
        """Open a regular file for a `with` block; see `OpenFolder.open_file`."""
        path = self.path / name
        self._refuse_link(path, field)
        try:
            fd = os.open(path, READ)
        except OSError as error:
            raise make_opening_error(error, path, damaged, field) from error
        try:
            yield fd, measure_regular_file(fd, path, damaged, field)
        finally:
            close_quietly(fd)

    def list_names(self) -> list[str]:
        """List what is in it. Raises Unreadable."""
        try:
            return os.listdir(self.path)
        except OSError as error:
            raise make_unreadable_error(error, self.path) from error

    def get_info(self, name: str) -> os.stat_result:
        """Return what the system says of a file. Raises OSError."""
        return os.stat(self.path / name) if self.follow_links else os.lstat(self.path / name)

    @contextmanager
    def open_folder(self, name: str) -> Iterator[OpenFolder]:
        """Open a directory in this one for a `with` block. Raises the errors of `open_file`."""
        path = self.path / name
        self._refuse_link(path, None)
        if not path.is_dir():
            error = FileNotFoundError(2, "No such directory", str(path))
            raise make_opening_error(error, path, DamagedArray)
        yield PathFolder(path, -1, self.follow_links)

    def is_at(self, path: str) -> bool:
        """Return True if a path leads to this directory: to the same manifest."""
        try:
            return os.path.samestat(os.stat(os.path.join(path, MANIFEST)), os.fstat(self.fd))
        except OSError:
            return False

    def lock_for_reading(self) -> None:
        """Do nothing: the open manifest is lock enough."""

    def _refuse_link(self, path: Path, field: str | None) -> None:
        if not self.follow_links and path.is_symlink():
            raise make_link_error(path, field)


def open_path_folder(path: Path, follow_links: bool) -> PathFolder:
    """Open a slab's directory: its manifest. Raises OSError."""
    return PathFolder(path, os.open(path / MANIFEST, READ), follow_links)
