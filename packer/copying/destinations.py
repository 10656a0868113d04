"""Where a copy of a slab goes: to a directory, by way of staging, or to a store, key by key."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock

from fieldslab.packer.commands.text_format import format_size
from fieldslab.packer.copying.signature_copy import warn_of_other_manifest
from fieldslab.packer.outputs.commit import Staging
from fieldslab.packer.outputs.ownership import (
    MARKER,
    check_writable,
    find_manifest,
    publish_manifest,
    take_place,
)
from fieldslab.packer.outputs.uploads import upload
from fieldslab.packer.write.attempts import make_attempt_folder
from fieldslab.packer.write.space import get_free_bytes
from fieldslab.packer.write.writers import ShardRecord
from fieldslab.schemas import layout
from fieldslab.schemas.access import Folder
from fieldslab.schemas.errors import NoSpace, OutputError, OutputExists
from fieldslab.schemas.files import OpenFolder
from fieldslab.schemas.manifest import MANIFEST, SIGNATURE, Manifest
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.stores.directory import DirectoryStore
from fieldslab.schemas.stores.slab_objects import join_key
from fieldslab.schemas.stores.store import Data, Store
from fieldslab.schemas.write_errors import name_write_errors


class Destination(ABC):
    """A place that a slab is copied to, for a `with` block."""

    @abstractmethod
    def __enter__(self) -> "Destination":
        """Take the place, and find what an earlier run has copied.

        Raises
        ------
        OutputExists
            Another slab is there, or something else.
        OutputDenied, OutputError, Busy
            Nothing can be written there, or another process writes there.
        """

    @abstractmethod
    def __exit__(self, *error: object) -> None:
        """Leave what a later run can go on with."""

    @abstractmethod
    def has_file(self, folder: str, name: str, size: int) -> bool:
        """Return True for a file that is there already. Folders are asked for in order."""

    @abstractmethod
    def write_file(
        self, folder: str, name: str, size: int, read_pieces: Callable[[], Iterator[Data]]
    ) -> None:
        """Write one file of `size` bytes, whole or not at all; several threads may.

        `read_pieces` is called again where the file has to be written once more.
        """

    @abstractmethod
    def finish_folder(self, folder: Folder) -> None:
        """Note that all files of a folder are there."""

    @abstractmethod
    def publish(self, manifest: bytes, signature: bytes | None = None) -> None:
        """Write the manifest, last of all: then there is a slab. It may have a signature."""


class DirectoryDestination(Destination):
    """A directory: the slab is built beside it, and put in its place by one rename.

    A later run goes on after the last shard that was copied whole.

    Attributes
    ----------
    first_shard
        What the first shard of the slab that is being copied becomes.
    """

    first_shard = 0

    def __init__(self, out: Path, manifest: Manifest, size: int, *, force: bool) -> None:
        """Copy the slab of this manifest, of `size` bytes, to `out`."""
        self._out = out
        self._manifest = manifest
        self._size = size
        self._versions = {"copy of": manifest.id}
        self._staging = Staging(out, manifest.made.plan, self._versions, force=force)
        self._attempts: dict[str, Path] = {}
        self._lock = Lock()

    def __enter__(self) -> "DirectoryDestination":
        """Take the place; raises NoSpace, too, for a slab that is larger than what is free."""
        self._staging.__enter__()
        try:
            if self.completed is None:
                self._check_space()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """Keep the shards that were copied whole."""
        self._staging.__exit__(*error)  # type: ignore[arg-type]

    @property
    def completed(self) -> Manifest | None:
        """The manifest, where an earlier run was killed after it had published the slab."""
        return self._staging.completed

    def has_file(self, folder: str, name: str, size: int) -> bool:
        """Return True for all files of a shard that was copied whole."""
        name = self._rename(folder)
        return any(layout.name_shard(index) == name for index in self._staging.finished)

    def write_file(
        self, folder: str, name: str, size: int, read_pieces: Callable[[], Iterator[Data]]
    ) -> None:
        """Write one file."""
        DirectoryStore(self._get_attempt(folder)).write(name, read_pieces())

    def link_file(self, folder: str, name: str, source: OpenFolder) -> None:
        """Give a file of another slab a second name here. Raises OutputError."""
        path = self._get_attempt(folder) / name
        try:
            os.link(name, path, src_dir_fd=source.fd, follow_symlinks=False)
        except OSError as error:
            raise OutputError(
                f"cannot be a hard link: {error.strerror}",
                file=self._out,
                found=source.path / name,
                hint=f"Give {mark_option('copy', True)}.",
            ) from error

    def finish_folder(self, folder: Folder) -> None:
        """Move the folder into the slab, durably."""
        name = self._rename(folder.path.name)
        attempt = self._attempts.pop(name, None)
        if attempt is None:
            return
        if not folder.holds_rows:
            self._staging.move_into_slab(attempt, name)
            return
        with name_write_errors(attempt):
            size = sum(file.stat().st_size for file in attempt.iterdir())
        record = ShardRecord(
            index=int(name.partition("-")[2]),
            rows=folder.rows,
            elements=[],
            nulls=[],
            root=folder.root,
            tallies={},
            bytes=size,
            attempt=attempt.name,
            versions=self._versions,
        )
        self._staging.accept_shard(record)

    def publish(self, manifest: bytes, signature: bytes | None = None) -> None:
        """Put the slab in its place."""
        if self._staging.completed is None:
            if signature is not None:
                DirectoryStore(self._staging.slab).write(SIGNATURE, signature)
            self._staging.publish(self._manifest, manifest)

    def _rename(self, folder: str) -> str:
        if folder == layout.TABLES:
            return folder
        return layout.name_shard(int(folder.partition("-")[2]) + self.first_shard)

    def _get_attempt(self, folder: str) -> Path:
        """Return the folder that becomes a folder of the slab; it is made when it is needed."""
        name = self._rename(folder)
        with self._lock:
            if name not in self._attempts:
                self._attempts[name] = make_attempt_folder(self._staging.attempts.folder, name)
            return self._attempts[name]

    def _check_space(self) -> None:
        written_bytes = sum(record.bytes for record in self._staging.finished.values())
        free = get_free_bytes(self._out)
        if self._size - written_bytes > free:
            raise NoSpace(
                "not enough space left on the device: nothing was copied",
                file=self._out,
                expected=format_size(self._size - written_bytes),
                found=f"{format_size(free)} free",
                hint="Free some space, or choose another destination.",
            )


class StoreDestination(Destination):
    """A store: objects come under their keys at once, and the manifest makes them a slab.

    A marker says whose objects they are, so that a later run goes on with those that are there.
    """

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self._store = store
        self._id = manifest.id
        self._sizes: dict[str, int] = {}

    def __enter__(self) -> "StoreDestination":
        """Leave the marker, or find that of an earlier run."""
        store = self._store
        check_writable(store)
        self._sizes = {info.key: info.size for info in store.list_keys()}
        manifest = find_manifest(store)
        if manifest is not None and manifest.id != self._id:
            raise OutputExists(
                "another slab is there",
                file=store.url,
                expected=self._id,
                found=manifest.id,
                hint="Choose another destination, or delete that slab first.",
            )
        if manifest is None and not take_place(store, {"copying": self._id}, self._sizes):
            return self.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Leave all objects where they are, and the marker unless the slab is whole."""

    def has_file(self, folder: str, name: str, size: int) -> bool:
        """Return True for an object of this size: it was compared with its digests before."""
        return self._sizes.get(join_key(folder, name)) == size

    def write_file(
        self, folder: str, name: str, size: int, read_pieces: Callable[[], Iterator[Data]]
    ) -> None:
        """Write one object, and have the store say that it is right."""
        upload(self._store, join_key(folder, name), size, read_pieces)

    def finish_folder(self, folder: Folder) -> None:
        """Do nothing: objects are where they belong."""

    def publish(self, manifest: bytes, signature: bytes | None = None) -> None:
        """Write the manifest unless it is there; the same slab from another copy is as good."""
        publish_manifest(self._store, manifest, self._id)
        if signature is not None:
            if bytes(self._store.read(MANIFEST)) == manifest:
                self._store.write(SIGNATURE, signature)
            else:
                warn_of_other_manifest()
        self._store.delete(MARKER)
