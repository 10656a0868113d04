"""Which files are images by their names, and in what order they come."""

import glob
import os
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from fieldslab.packer.commands.text_format import escape_controls, format_count
from fieldslab.packer.sources.path_lookup import (
    FolderPath,
    NoFiles,
    check_readable,
    find_matches,
    get_glob_root,
    list_folder,
    make_remote_error,
)
from fieldslab.schemas.images import detect_format
from fieldslab.schemas.urls import is_url

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

_ANNOTATIONS = ("metadata.csv", "metadata.jsonl", "metadata.parquet", ".json", ".xml")
_MOST_NAMED = 3


class ImageNames:
    """Image files below one folder, as the user named them: a folder, a glob, or files.

    `others` counts what was left out, and `shown` has the first files of it. `annotations` are the
    files that may say more about images. Once all `names` are elsewhere, behind `before`, `count`
    and `classes` are what is left of them.
    """

    def __init__(self, root: str) -> None:
        """Start with no names below `root`."""
        self.root = root
        self.names: list[str] = []
        self.others: Counter[str] = Counter()
        self.shown: list[str] = []
        self.folders: list[str] = []
        self.annotations: list[str] = []
        self.before = ""
        self.count = 0
        self.classes: set[str] = set()

    def list_warnings(self, used: Collection[str] = ()) -> Iterator[str]:
        """List what was left out, in sentences; annotations that are `used` were not."""
        parts = []
        unused = [name for name in self.annotations if self.before + name not in used]
        if count := self.others["file"] + len(unused):
            shown = sorted([*self.shown, *unused[:_MOST_NAMED]], key=lambda name: name.split("/"))
            examples = ", ".join(map(escape_controls, shown[:_MOST_NAMED]))
            examples += ", ..." if count > _MOST_NAMED else ""
            parts.append(f"{format_count(count, 'file')} without the name of an image ({examples})")
        if count := self.others["hidden"]:
            parts.append(f"{count:,} hidden")
        if count := self.others["loop"]:
            parts.append(f"{format_count(count, 'link')} to folders that they are in")
        if parts:
            yield f"{self.root}: left out {', '.join(parts)}"
        empty = [folder for folder in self.folders if folder not in self.classes]
        if self.classes and empty and not used:
            examples = ", ".join(map(escape_controls, empty[:_MOST_NAMED]))
            examples += ", ..." if len(empty) > _MOST_NAMED else ""
            yield f"{self.root}: no images in {format_count(len(empty), 'folder')}: {examples}"

    def hand_over(self, before: str, url: str) -> list[str]:
        """Return all names with `before` in front of them, and forget them."""
        names, self.names = self.names, []
        self.before, self.count, self.root = before, len(names), url + self.root
        self.classes = {first for name in names if (first := find_class(name)) is not None}
        return [before + name for name in names] if before else names

    def count_left_out(self, name: str) -> None:
        """Count a file that is no image by its name; one that may annotate images is kept."""
        if name.lower().endswith(_ANNOTATIONS):
            self.annotations.append(name)
            return
        self.others["file"] += 1
        if len(self.shown) < _MOST_NAMED:
            self.shown.append(name)


def is_image(name: str) -> bool:
    """Return whether a file is an image by its name."""
    return name.lower().endswith(SUFFIXES)


def begins_as_image(head: bytes) -> bool:
    """Return whether a file is an image by its first `HEAD` bytes."""
    is_known = detect_format(memoryview(head)) is not None
    return is_known or head.startswith(_BEGINNINGS) or head[4:12] in (b"ftypavif", b"ftypavis")


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


def find_parts(paths: Sequence[str]) -> Iterator[ImageNames]:
    """Yield the content of folders and globs one by one; files in a row are one part."""
    files: list[str] = []
    for path in paths:
        check_readable(path)
        if os.path.lexists(path) and not os.path.isdir(path):
            files.append(path)
            continue
        if files:
            yield group_named_files(files)
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
        yield group_named_files(files)


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


def group_named_files(paths: list[str]) -> ImageNames:
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
