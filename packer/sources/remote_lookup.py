"""Which objects of a store the user means: one, those of a folder, those that a glob matches."""

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple
from urllib.parse import unquote

from fieldslab.packer.sources.path_lookup import NoFiles
from fieldslab.packer.sources.remote_file import RemoteFile
from fieldslab.schemas.errors import ObjectNotFound, UsageError
from fieldslab.schemas.stores.hub import split_hub_url
from fieldslab.schemas.stores.store import STORES, ObjectInfo, Store, check_key
from fieldslab.schemas.stores.store_place import StorePlace
from fieldslab.schemas.urls import get_scheme, hide_credentials, is_url, restore_url

_USER = re.compile(r"[a-z0-9+.-]+://[^/]*:[^/]*@|https?://[^/]*@", re.IGNORECASE)


class RemotePath(NamedTuple):
    """What a URL names: a place that is opened as a store, and a key or a pattern of keys in it."""

    place: StorePlace
    key: str

    @property
    def has_magic(self) -> bool:
        """Whether it is a glob."""
        return glob.has_magic(self.key)

    @property
    def root(self) -> str:
        """The folder in front of the first wildcard, or the whole key."""
        parts = self.key.strip("/").split("/")
        magic = next((n for n, part in enumerate(parts) if glob.has_magic(part)), len(parts))
        return "/".join(parts[:magic])


def is_remote_source(path: str) -> bool:
    """Return whether a path is a URL that a store reads, and no file that is called like one."""
    return (
        is_url(path)
        and get_scheme(path) != "file"
        and get_scheme(path) in STORES
        and not os.path.lexists(path)
    )


def split_url(
    url: str,
    storage_options: Mapping[str, Any] | None = None,
    places: dict[str, StorePlace] | None = None,
) -> RemotePath:
    """Split a URL into its store and what is named in it; nothing is sent yet.

    `places` has the stores of URLs that were split before: many URLs share a few connections.

    Raises UsageError for a URL with credentials, which plans and manifests would repeat, and for
    one that cannot name an object.
    """
    url = restore_url(url)
    scheme, _, rest = url.partition("://")
    is_web = scheme.lower() in ("http", "https")
    if _USER.match(url) or (is_web and "?" in rest):
        raise UsageError(
            "a URL with a password or a query may hold credentials, and plans and manifests would "
            "repeat them",
            file=hide_credentials(url),
            hint="Pass credentials in the environment or as storage_options. What a URL with a "
            "signature names must be downloaded first.",
        )
    if is_web:  # a server's root may be another server's gateway: one store for each folder
        folder, _, key = rest.rpartition("/") if "/" in rest else (rest, "", "")
        key = unquote(key)
    elif scheme.lower() == "hf":
        dataset, key = split_hub_url(url)
        folder = dataset.partition("://")[2]
    else:
        folder, _, key = rest.partition("/")
    try:
        check_key(key.removesuffix("/") or "folder")
    except UsageError as error:
        raise UsageError(
            "the URL cannot name an object",
            file=url,
            expected="names between single slashes, none of them . or ..",
        ) from error
    store_url = f"{scheme}://{folder}"
    places = {} if places is None else places
    return RemotePath(places.setdefault(store_url, StorePlace(store_url, storage_options)), key)


def list_remote_files(
    remote: RemotePath, suffixes: Sequence[str], kind: str, hidden: str = "._"
) -> list[RemoteFile]:
    """List the objects that a URL names, sorted; of a folder, those with a known suffix.

    As of directories, objects with a name that begins with one of the characters `hidden` are left
    out of folders, and what is in folders of such names.

    Raises
    ------
    NoFiles
        There is none; `kind` is what they are called.
    UsageError
        A glob or a folder on a web server, which has no lists.
    AccessDenied, RemoteUnreadable, MissingLibrary
        The store refuses, fails, or needs a library.
    """
    store = remote.place.store
    if remote.has_magic:
        _require_list(store, remote)
        infos = [
            info
            for info in _match(store, "", remote.key.split("/"))
            if kind != "image" or info.key.lower().endswith(tuple(suffixes))
        ]
        problem = "no object matches"
    else:
        info = None if remote.key.endswith("/") or not remote.key else _find_object(store, remote)
        if info is not None:
            return [RemoteFile.from_info(remote.place, info)]
        if not store.can_list and not remote.key.endswith("/") and remote.key:
            raise NoFiles("no such object", file=store.locate(remote.key), hint="Check the URL.")
        _require_list(store, remote)
        infos = list(walk_folder(store, remote.root, tuple(suffixes), hidden))
        problem = f"no such object, and no {kind} files ({', '.join(suffixes)}) below it"
    if not infos:
        raise NoFiles(problem, file=store.locate(remote.key), hint="Check the URL.")
    infos.sort(key=lambda info: info.key)
    return [RemoteFile.from_info(remote.place, info) for info in infos]


def find_first(remote: RemotePath, suffixes: tuple[str, ...]) -> str | None:
    """Find one object that a URL names and that has a known suffix: its key; None where none does.

    Raises what `list_remote_files` raises, but not NoFiles.
    """
    if remote.key.lower().endswith(suffixes):
        return remote.key
    store = remote.place.store
    if remote.has_magic or not remote.key or remote.key.endswith("/"):
        _require_list(store, remote)
    if not store.can_list:
        return None
    infos = (
        _match(store, "", remote.key.split("/"))
        if remote.has_magic
        else walk_folder(store, remote.root, suffixes)
    )
    return next((info.key for info in infos if info.key.lower().endswith(suffixes)), None)


def holds_object(remote: RemotePath, name: str) -> bool:
    """Return whether there is an object of this name in a folder. Raises what stores raise."""
    key = f"{remote.root}/{name}".lstrip("/")
    return _find_object(remote.place.store, remote._replace(key=key)) is not None


def check_object(
    planned: Mapping[str, Any], storage_options: Mapping[str, Any] | None = None
) -> bool:
    """Return whether an object is there as its fingerprint says. Raises what stores raise."""
    remote = split_url(planned["path"], storage_options)
    info = _find_object(remote.place.store, remote)
    return info is not None and RemoteFile.from_info(remote.place, info).describe() == planned


def walk_folder(
    store: Store, folder: str, suffixes: tuple[str, ...], hidden: str = "._"
) -> Iterator[ObjectInfo]:
    """Yield the objects below a folder that have a known suffix, but none that is hidden."""
    for info in store.list_keys(folder):
        names = info.key[len(folder) + 1 if folder else 0 :].split("/")
        is_hidden = any(name.startswith(tuple(hidden)) for name in names)
        if not is_hidden and names[-1].lower().endswith(suffixes):
            yield info


def _find_object(store: Store, remote: RemotePath) -> ObjectInfo | None:
    try:
        return store.get_info(remote.key)
    except ObjectNotFound:
        return None


def _require_list(store: Store, remote: RemotePath) -> None:
    if not store.can_list:
        raise UsageError(
            "a web server has no list of its files, so that globs and folders cannot be looked up",
            file=store.locate(remote.key),
            hint="Give the URL of each file.",
        )


def _match(store: Store, folder: str, parts: Sequence[str]) -> Iterator[ObjectInfo]:
    """Yield the objects below a folder that match the parts of a glob; only what may is listed."""
    pattern, *rest = parts
    before = f"{folder}/" if folder else ""
    if pattern == "**":
        for info in store.list_keys(folder):
            if _matches(info.key[len(before) :].split("/"), [*parts[:1], *(rest or ["*"])]):
                yield info
    elif rest and not glob.has_magic(pattern):
        yield from _match(store, before + pattern, rest)
    else:
        objects, folders = store.list_folder(folder)
        if rest:
            for name in sorted(folders):
                if _matches_name(name, pattern):
                    yield from _match(store, before + name, rest)
        else:
            for info in objects:
                if _matches_name(info.key[len(before) :], pattern):
                    yield info


def _matches(names: Sequence[str], parts: Sequence[str]) -> bool:
    if not parts or not names:
        return not parts and not names
    if parts[0] == "**":
        deeper = not names[0].startswith(".") and _matches(names[1:], parts)
        return deeper or _matches(names, parts[1:])
    return _matches_name(names[0], parts[0]) and _matches(names[1:], parts[1:])


def _matches_name(name: str, pattern: str) -> bool:
    """Return whether a name matches; only a pattern with a dot in front matches hidden ones."""
    return fnmatchcase(name, pattern) and (pattern.startswith(".") or not name.startswith("."))
