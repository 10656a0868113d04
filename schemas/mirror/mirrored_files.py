"""The files of a slab that is read through a mirror."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import ref

from fieldslab.schemas.access import find_shard_folder, find_table_folder
from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.files import OpenFolder
from fieldslab.schemas.folder import SlabFiles
from fieldslab.schemas.mapped_ranges import Watch
from fieldslab.schemas.mirror.mirror import Mirror
from fieldslab.schemas.urls import UrlPath, hide_credentials


class MirroredFiles(SlabFiles):
    """The folder of a mirror. What is opened in it is created first, if need be, with holes."""

    mirror: Mirror

    def __init__(self, mirror: Mirror, manifest_bytes: int) -> None:
        """Take a mirror, which is closed with this object."""
        directory = OpenFolder(mirror.sparse.path, os.dup(mirror.sparse.directory.fd))
        super().__init__(directory, mirror.manifest, (0, manifest_bytes, 0))
        self.watch = Watch(None)  # files change as they are filled
        self.path = UrlPath(hide_credentials(mirror.origin.place).rstrip("/"))
        self.mirror = mirror
        weak_self = ref(self)  # the mirror must not keep what closes it

        def describe_rows(position: int) -> str | None:
            files = weak_self()
            return None if files is None else files._describe_rows(position)

        mirror.describe_rows = describe_rows

    @contextmanager
    def open_folder(self, name: str = ".") -> Iterator[OpenFolder]:
        """Open a folder of the mirror, for a `with` block; see `SlabFiles.open_folder`."""
        self._check_descriptor()
        if name != ".":
            self.mirror.prepare_folder(name)
        with self._directory.open_folder(name) as folder:
            yield OpenFolder(self.path / name, folder.fd, watch=self.watch)

    def close(self) -> None:
        """Let go of the mirror; what is mapped stays mapped."""
        self.mirror.close()
        super().close()

    def _describe_rows(self, position: int) -> str | None:
        """The first and the last row that the block at a position belongs to."""
        unit, shards = self.mirror.find_unit(position), self.manifest.shards
        if unit.file is None:
            return None
        folder = find_table_folder(self)
        if unit.folder < len(shards):
            first_row = sum(shard.rows for shard in shards[: unit.folder])
            folder = find_shard_folder(self, unit.folder, first_row)
        assert folder is not None
        block = position - self.mirror.blocks.get_first_position(unit.number)
        end = min((block + 1) * BLOCK, unit.file.data_bytes)
        rows = folder.find_rows(unit.file, block * BLOCK, end)
        return None if rows is None else f"{rows[0]}..{rows[1]}"
