"""Images in zip and tar files: which members are images, and where. Nothing is extracted."""

import glob
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from fieldslab.packer.commands.text_format import escape_controls
from fieldslab.packer.sources.images.image_names import ImageNames, is_image
from fieldslab.packer.sources.images.zip_members import (
    STORED,
    ArchiveMember,
    check_zip_member,
    list_zip_members,
    read_fully,
    read_zip_member,
)
from fieldslab.packer.sources.local_file import LocalFile
from fieldslab.packer.sources.path_lookup import NoFiles, check_readable, find_matches
from fieldslab.packer.sources.tar_headers import BadTar, TarMember, list_members
from fieldslab.packer.sources.tar_members import name_tar_errors, open_headers
from fieldslab.schemas.errors import (
    SourceChanged,
    SourceUnreadable,
    SourceUnsupported,
    UsageError,
    make_unreadable_source_error,
)
from fieldslab.schemas.files import close_quietly

ARCHIVES = (".zip", ".tar")
_COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
_BESIDE = (".csv", ".jsonl", ".parquet", ".json", ".xml", ".txt", ".md")
_LOOKED_AT = 1024
"""Members of a tar that tell whether it is of images or of samples."""


@dataclass(frozen=True)
class ArchiveMembers:
    """Where files lie in archives, column by column: see `ArchiveMember`.

    `numbers` has the archive of each file. `annotations` are files that may annotate images, by
    their paths.
    """

    archives: tuple[LocalFile, ...]
    numbers: np.ndarray
    offsets: np.ndarray
    stored: np.ndarray
    sizes: np.ndarray
    methods: np.ndarray
    crcs: np.ndarray
    annotations: Mapping[str, tuple[int, ArchiveMember]]

    def read(self, row: int, path: str, into: memoryview) -> None:
        """Fill `into` with a file that is called `path`. Raises SourceUnreadable, SourceChanged."""
        places = (self.offsets, self.stored, self.sizes, self.methods, self.crcs)
        member = ArchiveMember(path, *(int(column[row]) for column in places))
        into[:] = self._read(int(self.numbers[row]), member, path)

    def read_annotation(self, path: str) -> bytes:
        """Read a file of annotations. Raises SourceUnreadable, SourceUnsupported, SourceChanged."""
        number, member = self.annotations[path]
        if self.archives[number].path.lower().endswith(".zip"):
            check_zip_member(self.archives[number].path, member)
        return self._read(number, member, path)

    def _read(self, number: int, member: ArchiveMember, path: str) -> bytes:
        archive = self.archives[number]
        try:
            file = os.open(archive.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            archive.check_unchanged()
            raise make_unreadable_source_error(
                error, f"cannot be read: {error.strerror}", file=archive.path
            ) from error
        try:
            info = os.fstat(file)
            if (info.st_size, info.st_mtime_ns, info.st_ino) != archive[1:]:
                raise SourceChanged(
                    "the archive changed while it was read",
                    file=archive.path,
                    hint="Pack again when nothing writes to it.",
                )
            if member.crc >= 0:
                return read_zip_member(file, member, path)
            data = read_fully(file, member.size, member.offset)
            if len(data) < member.size:
                raise SourceUnreadable("unexpected end of data", file=path)
            return data
        except OSError as error:
            raise SourceUnreadable(f"cannot be read: {error.strerror}", file=path) from error
        finally:
            close_quietly(file)


def find_archives(paths: Sequence[str]) -> list[str] | None:
    """Find the archives that paths and globs name; None where they name something else.

    Raises
    ------
    SourceUnsupported
        A compressed tar: images in it cannot be read one by one.
    UsageError
        Archives and other paths together.
    """
    files = []
    for path in paths:
        check_readable(path)
        magic = not os.path.lexists(path) and glob.has_magic(path)
        files += sorted(find_matches(path)) if magic else [path]
    archives = [
        path for path in files if path.lower().endswith(ARCHIVES) and not os.path.isdir(path)
    ]
    for path in files:
        if path.lower().endswith(_COMPRESSED):
            raise SourceUnsupported(
                "images in a compressed tar cannot be read one by one",
                file=path,
                hint="Decompress it first, for example with `gunzip -k`.",
            )
    if archives and len(archives) < len(files):
        raise UsageError(
            "archives of images, or files and folders: not both",
            found=", ".join([archives[0], next(path for path in files if path not in archives)]),
        )
    return archives or None


def looks_like_image_tar(path: str) -> bool:
    """Return whether a tar holds folders of images, and not samples of WebDataset.

    Of its first members, some are images in folders, all others may be annotations, and no two
    have one name but for what follows a dot.
    """
    try:
        with open_headers(path) as (reader, size):
            files = (member for member in list_members(reader, size) if member.is_file)
            names = [member.name for member in islice(files, _LOOKED_AT)]
    except (BadTar, OSError, SourceUnreadable):
        return False  # whoever reads it says what is wrong
    names = [name for name in names if not os.path.basename(name).startswith(".")]
    keys = Counter(os.path.join(os.path.dirname(name), _get_key(name)) for name in names)
    return (
        any(is_image(name) and "/" in name.removeprefix("./") for name in names)
        and all(is_image(name) or name.lower().endswith(_BESIDE) for name in names)
        and max(keys.values()) == 1
    )


def _get_key(name: str) -> str:
    return os.path.basename(name).partition(".")[0]


class ArchiveImages:
    """Members of archives that are images by their names; an archive stands as a folder.

    Attributes
    ----------
    parts
        What each archive holds.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        """List all members. Raises SourceUnreadable, SourceUnsupported, NoFiles."""
        self.archives: list[LocalFile] = []
        self.parts: list[ImageNames] = []
        self._members: dict[str, tuple[int, ArchiveMember]] = {}
        for number, path in enumerate(paths):
            self.archives.append(LocalFile.from_path(path))
            zipped = path.lower().endswith(".zip")
            members = list_zip_members(path) if zipped else _list_tar_members(path)
            self.parts.append(self._list_images(number, path, members))

    def read_info(self, path: str) -> tuple[int, int, int]:
        """Return the size of a member, its CRC or the time of its archive, and 0."""
        number, member = self._members[os.path.abspath(path)]
        time = self.archives[number].modified if member.crc < 0 else member.crc
        return member.size, time, 0

    def make_columns(self, paths: Iterable[str], annotations: Iterable[str]) -> ArchiveMembers:
        """Make the columns of members at these paths."""
        members = [self._members[os.path.abspath(path)] for path in paths]
        rows = [(number, *member[1:]) for number, member in members]
        numbers, offsets, stored, sizes, methods, crcs = np.array(rows, np.int64).T
        tables = {path: self._members[os.path.abspath(path)] for path in annotations}
        return ArchiveMembers(
            tuple(self.archives), numbers, offsets, stored, sizes, methods, crcs, tables
        )

    def _list_images(self, number: int, path: str, members: list[ArchiveMember]) -> ImageNames:
        part = ImageNames(path)
        by_name: dict[str, ArchiveMember] = {}
        for member in members:
            name = _clean_name(path, member.name)
            if name in by_name:
                raise SourceUnreadable(
                    "two members have one name",
                    file=path,
                    found=escape_controls(name),
                    hint="Write the archive again: it is not clear which of them is meant.",
                )
            by_name[name] = member
        for name in sorted(by_name, key=lambda name: name.split("/")):
            if any(item.startswith((".", "__MACOSX")) for item in name.split("/")):
                part.others["hidden"] += 1
            elif is_image(name):
                if path.lower().endswith(".zip"):
                    check_zip_member(path, by_name[name])
                part.names.append(name)
            else:
                part.count_left_out(name)
        if not part.names:
            raise NoFiles("no images in this archive", file=path)
        inside = _find_root([*part.names, *part.annotations])
        part.root = os.path.join(path, inside).rstrip("/")
        part.names = [name[len(inside) :] for name in part.names]
        part.annotations = [name[len(inside) :] for name in part.annotations]
        for name in (*part.names, *part.annotations):
            path = os.path.abspath(os.path.join(part.root, name))
            self._members[path] = number, by_name[inside + name]
        return part


def _find_root(names: list[str]) -> str:
    """Find the folder that holds all others: it is no class."""
    root = ""
    while True:
        first = names[0][len(root) :].partition("/")[0] + "/"
        if not all(name.startswith(root + first) for name in names):
            return root
        if not all("/" in name[len(root + first) :] for name in names if is_image(name)):
            return root
        root += first


def _clean_name(path: str, name: str) -> str:
    """Return a name without `./` in front. Raises SourceUnreadable where it leads out."""
    cleaned = name.removeprefix("./")
    if cleaned.startswith("/") or ".." in cleaned.split("/"):
        raise SourceUnreadable(
            "the name of a member leads out of the archive",
            file=path,
            found=escape_controls(name),
            hint="Write the archive again with names below one folder.",
        )
    return cleaned


def _list_tar_members(path: str) -> list[ArchiveMember]:
    def convert(member: TarMember) -> ArchiveMember:
        return ArchiveMember(member.name, member.data, member.size, member.size, STORED)

    with name_tar_errors(path), open_headers(path) as (reader, size):
        return [convert(member) for member in list_members(reader, size) if member.is_file]
