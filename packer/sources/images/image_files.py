"""The image files of a source, column by column: on disks and in stores."""

import hashlib
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from fieldslab.packer.sources.images.archives import (
    ARCHIVES,
    ArchiveImages,
    ArchiveMembers,
    find_archives,
)
from fieldslab.packer.sources.images.image_names import (
    SUFFIXES,
    ImageNames,
    find_class,
    find_parts,
    group_named_files,
)
from fieldslab.packer.sources.remote_file import RemoteFile
from fieldslab.packer.sources.remote_lookup import is_remote_source, list_remote_files, split_url
from fieldslab.schemas.errors import (
    SourceUnreadable,
    SourceUnsupported,
    UsageError,
    make_unreadable_source_error,
)
from fieldslab.schemas.stores.store_place import StorePlace
from fieldslab.schemas.urls import hide_credentials


@dataclass(frozen=True)
class ImageFiles:
    """The files of a source, column by column: there may be millions.

    `paths` are relative to `base`; `classes` has the index into `labels` of each file's class, -1
    where it has none. `sizes`, `modified` and `inodes` are what a file must not differ in later; of
    objects in the store at `place`, `modified` is a hash of the version; of `members` of archives,
    their CRC, or the time of the archive. `annotations` are the paths of files that may say more
    about them.
    """

    base: str
    paths: pa.StringArray
    labels: tuple[str, ...]
    classes: np.ndarray
    sizes: np.ndarray
    modified: np.ndarray
    inodes: np.ndarray
    parts: tuple[ImageNames, ...]
    annotations: tuple[str, ...]
    place: StorePlace | None = None
    members: ArchiveMembers | None = None

    def get_path(self, row: int) -> str:
        """Return the path of a file, to open it."""
        return self.get_name_path(self.paths[row].as_py())

    def get_name_path(self, name: str) -> str:
        """Return the path of a file by its name below `base`."""
        return os.path.join(self.base, name)

    def read_annotation(self, name: str) -> bytes:
        """Read a file of annotations by its name below `base`. Raises SourceUnreadable."""
        if self.members is not None:
            return self.members.read_annotation(self.get_name_path(name))
        try:
            with open(self.get_name_path(name), "rb") as file:
                return file.read()
        except OSError as error:
            raise make_unreadable_source_error(
                error, f"cannot be read: {error.strerror}", file=self.get_name_path(name)
            ) from error


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
    if archives := find_archives(paths):
        inside = ArchiveImages(archives)
        files = make_image_files(inside.parts, inside.read_info)
        names = map(files.get_name_path, files.paths.to_pylist())
        columns = inside.make_columns(names, map(files.get_name_path, files.annotations))
        return replace(files, members=columns)
    return make_image_files(list(find_parts(paths)), _read_file_info)


def make_image_files(
    parts: Sequence[ImageNames],
    read_info: Callable[[str], tuple[int, int, int]],
    place: StorePlace | None = None,
) -> ImageFiles:
    """Make the columns of all parts; `read_info` tells size, time and inode of a path."""
    base = parts[0].root
    if len(parts) > 1:
        base = os.path.commonpath([os.path.abspath(part.root) for part in parts])
    url = "" if place is None else hide_credentials(place.url)
    names: list[str] = []
    annotations: list[str] = []
    classes: list[str | None] = []
    for part in parts:
        inside = "" if len(parts) == 1 else os.path.relpath(os.path.abspath(part.root), base)
        before = "" if inside in ("", ".") else inside + "/"
        classes += map(find_class, part.names)
        annotations += [before + name for name in part.annotations]
        names += part.hand_over(before, url)
    labels = sorted({name for name in classes if name is not None})
    codes: dict[str | None, int] = {name: index for index, name in enumerate(labels)}
    facts = np.empty((3, len(names)), np.int64)
    for index, name in enumerate(names):
        facts[:, index] = read_info(os.path.join(base, name))
    sizes, modified, inodes = facts
    return ImageFiles(
        base=url + base,
        paths=pa.array(names, pa.string()),
        labels=tuple(labels),
        classes=np.array([codes.get(name, -1) for name in classes], np.int64),
        sizes=sizes,
        modified=modified,
        inodes=inodes,
        parts=tuple(parts),
        annotations=tuple(annotations),
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
        named_paths: list[str] = []
        remotes = [split_url(url, storage_options, places) for url in urls if is_remote_source(url)]
        self.place = remotes[0].place
        for url in urls:
            if url.lower().endswith(ARCHIVES):
                raise SourceUnsupported(
                    "images in archives are not read from URLs",
                    file=hide_credentials(url),
                    hint="Download the archive first.",
                )
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
                named_paths += keys
                continue
            self._group_named(named_paths)
            root = f"/{remote.root}"
            part = ImageNames(root)
            part.names = [os.path.relpath(key, root) for key in keys]
            part.names.sort(key=lambda name: name.split("/"))
            self.parts.append(part)
        self._group_named(named_paths)

    def _group_named(self, named_paths: list[str]) -> None:
        if named_paths:
            self.parts.append(group_named_files(named_paths))
            named_paths.clear()

    def read_info(self, path: str) -> tuple[int, int, int]:
        """Return the size of an object, a hash of its version, and 0."""
        file = self._files[path]
        return file.size, hash_version(file.version), 0


def hash_version(version: str | None) -> int:
    """Hash the version of an object to an int64."""
    digest = hashlib.sha256((version or "").encode()).digest()
    return int.from_bytes(digest[:8], "little", signed=True)


def _read_file_info(path: str) -> tuple[int, int, int]:
    """Size, time and inode of a file. Raises SourceUnreadable."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        shown = os.fsencode(path).decode(errors="backslashreplace")
        raise SourceUnreadable(
            "its name is not UTF-8",
            file=shown,
            hint="Paths are kept as text: rename it, for example with `convmv -f latin1 -t utf8`.",
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
