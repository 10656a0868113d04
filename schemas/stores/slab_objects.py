"""A slab in a store, read where it lies: whatever reads a slab's files reads its objects."""

import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.errors import (
    Damaged,
    DamagedArray,
    DamagedManifest,
    FieldslabError,
    IncompleteSlab,
    NotASlab,
    ObjectNotFound,
    SlabChanged,
    SlabNotFound,
    UsageError,
)
from fieldslab.schemas.files import RESTORE, OpenFolder, RemoteDescriptor
from fieldslab.schemas.folder import SlabFiles, check_slab_path, open_slab_files
from fieldslab.schemas.layout import TABLES, name_shard
from fieldslab.schemas.manifest import MANIFEST, MAX_BYTES, Manifest, decode_manifest
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.stores.store import Store, open_store
from fieldslab.schemas.urls import UrlPath, hide_credentials, is_url, restore_url

_ATTEMPTS = 3
"""So often a manifest is read that is damaged."""
_KEPT = 4096
"""Objects whose size and header are remembered, 4 KiB each."""


class SlabObjects(SlabFiles):
    """The objects of a slab in a store; see `SlabFiles`. Nothing is kept on this machine.

    Attributes
    ----------
    store
        The store, whose place is the slab.
    """

    def __init__(self, store: Store, manifest: Manifest, manifest_bytes: int) -> None:
        """Not for callers: use `open_slab_anywhere`."""
        self.path = UrlPath(store.url)
        self.manifest = manifest
        self.follow_links = False
        self.store = store
        self._read_stamp = (0, manifest_bytes, 0)
        self._opened = OpenedObjects(store)

    @contextmanager
    def open_folder(self, name: str = ".") -> Iterator[OpenFolder]:
        """Open a folder for a `with` block. Raises SlabChanged where another slab is there now."""
        try:
            yield _ObjectFolder(self._opened, self.path, "" if name == "." else name)
        except (Damaged, ObjectNotFound) as error:
            if self._is_replaced():
                raise SlabChanged(
                    "another slab is there since it was opened",
                    file=self.path,
                    hint="Open it again.",
                ) from error
            raise

    def close(self) -> None:
        """Do nothing: nothing is held open."""

    def _is_replaced(self) -> bool:
        try:
            return read_manifest(self.store)[0].id != self.manifest.id
        except ObjectNotFound:
            return True
        except FieldslabError:
            return False


class OpenedObjects:
    """What is known of the objects of a store, so that opening one again sends no request."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._starts: OrderedDict[str, tuple[int, memoryview]] = OrderedDict()
        self._folders: OrderedDict[str, dict[str, int]] = OrderedDict()
        self._lock = Lock()

    def list_sizes(self, folder: str) -> dict[str, int]:
        """List the sizes of what is in a folder, by name; 0 for a folder."""
        with self._lock:
            listed = self._folders.get(folder)
        if listed is not None:
            return listed
        sizes: dict[str, int] = {}
        for info in self.store.list_keys(folder):
            name, _, below = info.key.removeprefix(f"{folder}/" if folder else "").partition("/")
            sizes[name] = 0 if below else info.size
        with self._lock:
            self._folders[folder] = sizes
            while len(self._folders) > _KEPT // 64:
                self._folders.popitem(last=False)
        return sizes

    def load_start(self, folder: str, name: str) -> tuple[int, memoryview]:
        """Return the size of an object, and its first bytes. Raises what `Store.read` raises."""
        key = join_key(folder, name)
        with self._lock:
            if key in self._starts:
                self._starts.move_to_end(key)
                return self._starts[key]
        size = self.list_sizes(folder).get(name) if self.store.can_list else None
        if size is None:
            size = self.store.get_info(key).size
        start = size, self.store.read(key, 0, min(size, HEADER))
        with self._lock:
            self._starts[key] = start
            while len(self._starts) > _KEPT:
                self._starts.popitem(last=False)
        return start


class _ObjectFolder(OpenFolder):
    """A folder of a slab in a store."""

    def __init__(self, opened: OpenedObjects, slab: Path, name: str) -> None:
        super().__init__(slab / name, -1)
        self._opened = opened
        self._slab = slab
        self._name = name

    def list_names(self) -> list[str]:
        """List what is in it; nothing, where the store has no lists."""
        return list(self._opened.list_sizes(self._name)) if self._opened.store.can_list else []

    def find_size(self, name: str) -> int | None:
        """Return the size of an object in bytes; None if there is none."""
        if self._opened.store.can_list:
            return self._opened.list_sizes(self._name).get(name)
        try:
            return self._opened.load_start(self._name, name)[0]
        except ObjectNotFound:
            return None

    @contextmanager
    def open_file(
        self, name: str, damaged: type[Damaged] = DamagedArray, field: str | None = None
    ) -> Iterator[tuple[int, int]]:
        """Open an object for a `with` block: what stands for its descriptor, and its size."""
        try:
            with _add_context(field=field):
                size, start = self._opened.load_start(self._name, name)
        except ObjectNotFound as error:
            raise damaged("is missing", file=self.path / name, field=field, hint=RESTORE) from error
        yield _Object(self._opened.store, join_key(self._name, name), start, field), size

    @contextmanager
    def open_folder(self, name: str) -> Iterator[OpenFolder]:
        """Open a folder in it for a `with` block."""
        yield _ObjectFolder(self._opened, self._slab, join_key(self._name, name))


class _Object(RemoteDescriptor):
    """An object that is read like a file; its first bytes are known."""

    def __init__(self, store: Store, key: str, start: memoryview, field: str | None) -> None:
        self._field = field
        self._store = store
        self._key = key
        self._start = start

    def read_into(self, view: memoryview, offset: int) -> None:
        """Read a range; see `RemoteDescriptor.read_into`."""
        stop = offset + len(view)
        if stop <= len(self._start):
            view[:] = self._start[offset:stop]
        elif view:
            with _add_context(field=self._field, offset=offset):
                view[:] = self._store.read(self._key, offset, stop)

    async def read_range(self, start: int, stop: int) -> memoryview:
        """Read a range in an event loop; see `RemoteDescriptor.read_range`."""
        with _add_context(field=self._field, offset=start):
            return await self._store.read_range(self._key, start, stop)


@contextmanager
def _add_context(**context: object) -> Iterator[None]:
    """Add what a store does not know to what it raises in a `with` block."""
    try:
        yield
    except FieldslabError as error:
        error.context |= {key: value for key, value in context.items() if value is not None}
        raise


def join_key(folder: str, name: str) -> str:
    """Return the key of an object in a folder, which is empty for the slab's own."""
    return f"{folder}/{name}" if folder else name


def is_remote(place: object) -> bool:
    """Return True for a URL, but not for a directory that looks like one."""
    return isinstance(place, str | os.PathLike) and is_url(str(place)) and not os.path.exists(place)


def find_slab_path(place: str | Path) -> Path:
    """Return the place of a slab, for messages. Raises UsageError where it is no path or URL."""
    if is_remote(place):
        return UrlPath(hide_credentials(restore_url(place)).rstrip("/"))
    return check_slab_path(place)


def open_slab_anywhere(
    place: str | Path,
    *,
    follow_links: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> SlabFiles:
    """Open a slab to be read where it lies, in a directory or at a URL; to be closed.

    Raises
    ------
    UsageError
        `storage_options` or `follow_links` do not go with this place.
    RemoteUnreadable, AccessDenied, MissingLibrary
        The store fails, refuses, or needs a library.
    NotASlab, IncompleteSlab, UnsupportedVersion, DamagedManifest, Unreadable, SlabReplaced
        As `open_slab_files` raises them.
    """
    if not is_remote(place):
        if storage_options:
            raise UsageError(
                f"{mark_option('storage_options')}: for URLs only, and this is a directory",
                file=place,
            )
        return open_slab_files(place, follow_links=follow_links)
    store = open_store(restore_url(place), storage_options)
    try:
        manifest, data = read_manifest(store)
    except ObjectNotFound as error:
        raise _make_absent_error(store) from error
    return SlabObjects(store, manifest, len(data))


def read_manifest(store: Store) -> tuple[Manifest, bytes]:
    """Read the manifest of the slab in a store: return it decoded, and its bytes.

    One that is damaged is read again, as bytes may change on their way. Raises DamagedManifest for
    one that stays so, and what stores raise.
    """
    for _ in range(_ATTEMPTS - 1):
        with suppress(DamagedManifest):
            return _read_manifest(store)
    return _read_manifest(store)


def _read_manifest(store: Store) -> tuple[Manifest, bytes]:
    content = store.read_small(MANIFEST, MAX_BYTES)
    if content is None:
        raise DamagedManifest(
            "manifest is too large",
            file=store.locate(MANIFEST),
            expected=f"at most {MAX_BYTES} bytes",
        )
    data = bytes(content)
    return decode_manifest(data, UrlPath(store.locate(MANIFEST))), data


def _make_absent_error(store: Store) -> NotASlab:
    """Make the error for a place without a manifest."""
    folders = (TABLES, name_shard(0))
    if store.can_list and any(next(store.list_keys(folder), None) for folder in folders):
        return IncompleteSlab(
            "no manifest.json: the slab was not packed or copied whole",
            file=store.url,
            hint="Run the same command again: it goes on where it was cut off.",
        )
    return SlabNotFound(
        "there is no slab: no manifest.json",
        file=store.url,
        hint="Check the URL: a slab is the folder that holds manifest.json.",
    )
