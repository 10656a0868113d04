"""Which image files are meant, by their names, and in what order they come."""

import glob
import hashlib
import os
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fieldslab.packer.commands.text_format import format_count
from fieldslab.packer.sources.path_lookup import (
    FolderPath,
    NoFiles,
    check_readable,
    find_matches,
    get_glob_root,
    list_folder,
    make_remote_error,
)
from fieldslab.packer.sources.remote_file import RemoteFile
from fieldslab.packer.sources.remote_lookup import is_remote_source, list_remote_files, split_url
from fieldslab.schemas.errors import SourceUnreadable, UsageError, make_unreadable_source_error
from fieldslab.schemas.images import detect_format
from fieldslab.schemas.stores.store_place import StorePlace
from fieldslab.schemas.urls import hide_credentials, is_url

SUFFIXES = (
    ".jpg",
    ".jpeg",
    ".jpe",
    ".jfif",
    ".png",
    ".webp",
    ".bmp",
    ".gif",
    ".tif",
    ".tiff",
    ".ppm",
    ".pgm",
    ".pbm",
    ".pnm",
    ".jp2",
    ".avif",
)
"""What is an image by its name: JPEG, PNG, WebP, and what Pillow decodes besides."""

_BEGINNINGS = (
    b"BM",
    b"GIF8",
    b"II*\0",
    b"MM\0*",
    b"II+\0",
    b"MM\0+",
    b"\0\0\0\x0cjP  ",
    b"P1",
    b"P2",
    b"P3",
    b"P4",
    b"P5",
    b"P6",
)
HEAD = 12
"""Bytes that tell what a file is."""

_MOST_NAMED = 3


class ImageNames:
    """Image files below one folder, as the user named them: a folder, a glob, or files.

    `others` counts what was left out, and `shown` has the first files of it.
    """

    def __init__(self, root: str) -> None:
        """Start with no names below `root`."""
        self.root = root
        self.names: list[str] = []
        self.others: Counter[str] = Counter()
        self.shown: list[str] = []
        self.folders: list[str] = []

    @property
    def warnings(self) -> Iterator[str]:
        """What was left out, in a sentence."""
        parts = []
        if count := self.others["file"]:
            named = ", ".join(self.shown) + (", ..." if count > len(self.shown) else "")
            parts.append(f"{format_count(count, 'file')} without the name of an image ({named})")
        if count := self.others["hidden"]:
            parts.append(f"{count:,} hidden")
        if count := self.others["loop"]:
            parts.append(f"{format_count(count, 'link')} to folders that they are in")
        if parts:
            yield f"{self.root}: left out {', '.join(parts)}"
        classes = {first for name in self.names if (first := find_class(name)) is not None}
        empty = [folder for folder in self.folders if folder not in classes]
        if classes and empty:
            named = ", ".join(empty[:_MOST_NAMED]) + (", ..." if len(empty) > _MOST_NAMED else "")
            yield f"{self.root}: no images in {format_count(len(empty), 'folder')}: {named}"

    def count_left_out(self, name: str) -> None:
        """Count a file that is no image by its name."""
        self.others["file"] += 1
        if len(self.shown) < _MOST_NAMED:
            self.shown.append(name)


@dataclass(frozen=True)
class ImageFiles:
    """The files of a source, column by column: there may be millions.

    `paths` are relative to `base`; `classes` has the index into `labels` of each file's class, -1
    where it has none. `sizes`, `modified` and `inodes` are what a file must not differ in later; of
    objects in the store at `place`, `modified` is a hash of the version.
    """

    base: str
    paths: pa.StringArray
    labels: tuple[str, ...]
    classes: np.ndarray
    sizes: np.ndarray
    modified: np.ndarray
    inodes: np.ndarray
    parts: tuple[tuple[str, int], ...]
    warnings: tuple[str, ...]
    place: StorePlace | None = None

    def get_path(self, row: int) -> str:
        """Return the path of a file, to open it."""
        return os.path.join(self.base, self.paths[row].as_py())


def is_image(name: str) -> bool:
    """Return whether a file is an image by its name."""
    return name.lower().endswith(SUFFIXES)


def begins_as_image(head: bytes) -> bool:
    """Return whether a file is an image by its first `HEAD` bytes."""
    known = detect_format(memoryview(head)) is not None
    return known or head.startswith(_BEGINNINGS) or head[4:12] in (b"ftypavif", b"ftypavis")


def find_class(name: str) -> str | None:
    """Return the class, the first folder of a relative path; None if there is no folder."""
    folder, slash, _ = name.partition("/")
    return sys.intern(folder) if slash else None  # millions of files share a few names


def holds_images(path: str) -> bool:
    """Return whether a folder, a glob or a file's name means images."""
    if os.path.isdir(path):
        return next(_walk_folder(path, "", ImageNames(path), FolderPath(path)), None) is not None
    if not os.path.lexists(path) and glob.has_magic(path):
        return any(map(is_image, find_matches(path)))
    return is_image(path)


def find_images(
    paths: Sequence[str], storage_options: Mapping[str, Any] | None = None
) -> ImageFiles:
    """Find the requested image files: in the order given, those of folders and globs sorted.

    Raises
    ------
    NoFiles
        A path, folder or glob has none.
    SourceUnreadable
        One cannot be looked at, or has a name that is not UTF-8.
    UsageError
        URLs of several stores, or also paths.
    """
    if any(map(is_remote_source, paths)):
        objects = RemoteImages(paths, storage_options)
        return make_image_files(objects.parts, objects.read_info, objects.place)
    return make_image_files(list(_find_parts(paths)), _read_file_info)


def make_image_files(
    parts: Sequence[ImageNames],
    read_info: Callable[[str], tuple[int, int, int]],
    place: StorePlace | None = None,
) -> ImageFiles:
    """Make the columns of all parts; `read_info` tells size, time and inode of a path."""
    base = parts[0].root
    if len(parts) > 1:
        base = os.path.commonpath([os.path.abspath(part.root) for part in parts])
    names: list[str] = []
    classes: list[str | None] = []
    for part in parts:
        inside = "" if len(parts) == 1 else os.path.relpath(os.path.abspath(part.root), base)
        before = "" if inside in ("", ".") else inside + "/"
        names += [before + name for name in part.names] if before else part.names
        classes += map(find_class, part.names)
    labels = sorted({name for name in classes if name is not None})
    codes: dict[str | None, int] = {name: index for index, name in enumerate(labels)}
    facts = np.empty((3, len(names)), np.int64)
    for index, name in enumerate(names):
        facts[:, index] = read_info(os.path.join(base, name))
    sizes, modified, inodes = facts
    url = "" if place is None else hide_credentials(place.url)
    return ImageFiles(
        base=url + base,
        paths=pa.array(names, pa.string()),
        labels=tuple(labels),
        classes=np.array([codes.get(name, -1) for name in classes], np.int64),
        sizes=sizes,
        modified=modified,
        inodes=inodes,
        parts=tuple((url + part.root, len(part.names)) for part in parts),
        warnings=tuple(text for part in parts for text in part.warnings),
        place=place,
    )


class RemoteImages:
    """Objects that are images by their names; keys stand as paths below the root of the store.

    Attributes
    ----------
    place
        The store that all are in.
    parts
        What each URL names.
    """

    def __init__(self, urls: Sequence[str], storage_options: Mapping[str, Any] | None) -> None:
        """List all objects. Raises what `list_remote_files` raises, and UsageError."""
        places: dict[str, StorePlace] = {}
        self._files: dict[str, RemoteFile] = {}
        self.parts: list[ImageNames] = []
        named: list[str] = []
        remotes = [split_url(url, storage_options, places) for url in urls if is_remote_source(url)]
        self.place = remotes[0].place
        if len(places) > 1 or len(remotes) < len(urls):
            raise UsageError(
                "images of one slab must be in one store, or all on disks",
                found=", ".join(hide_credentials(url) for url in [*urls[:1], *urls[-1:]]),
            )
        for remote in remotes:
            files = list_remote_files(remote, SUFFIXES, "image", hidden=".")
            self._files |= {f"/{file.key}": file for file in files}
            keys = [f"/{file.key}" for file in files]
            if keys == [f"/{remote.key}"]:
                named += keys
                continue
            self._group_named(named)
            root = f"/{remote.root}"
            part = ImageNames(root)
            part.names = [os.path.relpath(key, root) for key in keys]
            part.names.sort(key=lambda name: name.split("/"))
            self.parts.append(part)
        self._group_named(named)

    def _group_named(self, named: list[str]) -> None:
        if named:
            self.parts.append(_group_named_files(named))
            named.clear()

    def read_info(self, path: str) -> tuple[int, int, int]:
        """Return the size of an object, a hash of its version, and 0."""
        file = self._files[path]
        return file.size, hash_version(file.version), 0


def hash_version(version: str | None) -> int:
    """Hash the version of an object to an int64."""
    digest = hashlib.sha256((version or "").encode()).digest()
    return int.from_bytes(digest[:8], "little", signed=True)


def _find_parts(paths: Sequence[str]) -> Iterator[ImageNames]:
    """Yield the content of folders and globs one by one; files in a row are one part."""
    files: list[str] = []
    for path in paths:
        check_readable(path)
        if os.path.lexists(path) and not os.path.isdir(path):
            files.append(path)
            continue
        if files:
            yield _group_named_files(files)
            files = []
        part = _list_folder_images(path) if os.path.isdir(path) else _list_glob_images(path)
        if not part.names and is_url(path):
            raise make_remote_error(path, "image")
        if not part.names:
            raise NoFiles(
                f"no image files ({', '.join(SUFFIXES)}) in here"
                if os.path.isdir(path)
                else "no file matches"
                if glob.has_magic(path)
                else "no such file",
                file=path,
                hint=None if os.path.isdir(path) else "Check the path.",
            )
        yield part
    if files:
        yield _group_named_files(files)


def _list_folder_images(path: str) -> ImageNames:
    part = ImageNames(path)
    part.names.extend(_walk_folder(path, "", part, FolderPath(path)))
    return part


def _list_glob_images(pattern: str) -> ImageNames:
    """List the matches of a glob that are images by name."""
    part = ImageNames(get_glob_root(pattern) or ".")
    paths = [path for path in find_matches(pattern) if not os.path.isdir(path)]
    names = [os.path.relpath(path, part.root) for path in paths]
    for name in sorted(names, key=lambda name: name.split("/")):
        if is_image(name):
            part.names.append(name)
        else:
            part.count_left_out(name)
    return part


def _group_named_files(paths: list[str]) -> ImageNames:
    """Group the files that were named one by one, below the folder that all of them are in."""
    part = ImageNames(
        os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in paths])
    )
    part.names += [os.path.relpath(os.path.abspath(path), part.root) for path in paths]
    return part


def _walk_folder(root: str, inside: str, part: ImageNames, folders: FolderPath) -> Iterator[str]:
    """Image files of a folder and those in it, sorted name by name; counts what is left out."""
    for entry in list_folder(os.path.join(root, inside) if inside else root):
        name = inside + entry.name
        if entry.name.startswith("."):
            part.others["hidden"] += 1
        elif entry.is_dir():
            with folders.descend(os.path.join(root, name)) as new:
                if not new:
                    part.others["loop"] += 1
                    continue
                if not inside:
                    part.folders.append(entry.name)
                yield from _walk_folder(root, name + "/", part, folders)
        elif is_image(name):
            yield name
        else:
            part.count_left_out(name)


def _read_file_info(path: str) -> tuple[int, int, int]:
    """Size, time and inode of a file. Raises SourceUnreadable."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        shown = os.fsencode(path).decode(errors="backslashreplace")
        raise SourceUnreadable(
            "its name is not UTF-8",
            file=shown,
            hint="Give it another name.",
        ) from error
    try:
        info = os.stat(path)
    except OSError as error:
        raise make_unreadable_source_error(
            error, f"cannot be read: {error.strerror}", file=path
        ) from error
    if not stat.S_ISREG(info.st_mode):  # a pipe would block forever
        raise SourceUnreadable("is not a file", file=path)
    return info.st_size, info.st_mtime_ns, info.st_ino
