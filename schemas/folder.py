"""A slab on disk: its manifest, and its directory, held open."""

import errno
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fieldslab.schemas import layout
from fieldslab.schemas.errors import (
    Damaged,
    DamagedManifest,
    FieldslabError,
    IncompleteSlab,
    NotASlab,
    SlabChanged,
    SlabNotFound,
    SlabReplaced,
    Unreadable,
    UsageError,
)
from fieldslab.schemas.files import (
    OpenFolder,
    close_quietly,
    make_opening_error,
    read_bytes,
    read_status,
)
from fieldslab.schemas.manifest import FORMAT, MANIFEST, MAX_BYTES, Manifest, decode_manifest
from fieldslab.schemas.mapped_ranges import Watch
from fieldslab.schemas.mirror.mistaken import find_mirror_error
from fieldslab.schemas.mirror.names import SIDE
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.system import DIRECTORY, HAS_DIRECTORY_DESCRIPTORS, READ
from fieldslab.schemas.urls import is_url, restore_url

if TYPE_CHECKING:
    from fieldslab.schemas.mirror.mirror import Mirror

JOURNAL = "journal.jsonl"
REPLACED = "old"
"""What a packer calls a slab in `NAME.partial` while another one takes its place."""

_ATTEMPTS = 20
_OPEN_AGAIN = "Open it again."


def check_place(place: object) -> str:
    """Return the place of a slab, a directory or a URL, as text. Raises UsageError."""
    if not isinstance(place, str | os.PathLike) or not os.fspath(place):
        raise UsageError(
            "a slab is named by its path",
            expected='a path, such as "train.slab"',
            found=repr(place),
        )
    return restore_url(os.fspath(place))


def check_slab_path(path: object) -> Path:
    """Convert what a caller passes to the path of a slab.

    Raises UsageError where that is no path, NotASlab where it is a URL.
    """
    place = check_place(path)
    if is_url(place) and not os.path.exists(place):
        raise NotASlab(
            "this needs a directory: URLs are not supported yet here",
            file=place,
            hint="Copy the slab to a directory of this machine: `fieldslab copy`.",
        )
    return Path(place)


def get_partial_path(slab: Path) -> Path:
    """Return where a slab is built before it is complete: beside it, on the same file system."""
    return slab.with_name(slab.name + ".partial")


def is_slab(path: Path) -> bool:
    """Return True if there is a manifest that begins as ours do; the rest may be damaged."""
    manifest = path / MANIFEST
    if not manifest.is_file():
        return False
    first_lines = f'{{\n"format": "{FORMAT}",\n'.encode()
    with open(manifest, "rb") as file:
        return file.read(len(first_lines)) == first_lines


def find_enclosing_slab(path: Path) -> Path | None:
    """Find the slab that a path, which need not exist, lies within; None if in none."""
    for folder in Path(os.path.realpath(path)).parents:
        with suppress(OSError):  # what cannot be looked into is told by who writes there
            if is_slab(folder):
                return folder
    return None


class SlabFiles:
    """The files of a slab: its directory, held open since its manifest was read.

    A slab that is packed again stays readable as it was: the new one comes by another directory,
    and `pack --force` leaves the old one alone while somebody holds it. Where that cannot be, as
    on network file systems or after `rm -r`, what is missing is a SlabReplaced and no damage.

    Attributes
    ----------
    path
        Where the slab was when it was opened, for messages.
    manifest
        What its manifest said.
    follow_links
        Whether links in the slab are followed.
    mirror
        What the slab is read through, if it lies elsewhere.
    watch
        What is known of files that change while they are mapped; None where none is mapped.
    """

    mirror: "Mirror | None" = None
    watch: Watch | None = None

    def __init__(self, directory: OpenFolder, manifest: Manifest, stamp: tuple[int, ...]) -> None:
        """Not for callers: use `open_slab_files`."""
        self.path = directory.path
        self.manifest = manifest
        self.follow_links = directory.follow_links
        self.watch = Watch({})
        self._directory = directory
        self._place = os.path.abspath(directory.path)
        self._read_stamp = stamp
        self._inode = read_status(directory.fd, directory.path)

    @property
    def manifest_bytes(self) -> int:
        """Bytes of `manifest.json`."""
        return self._read_stamp[1]

    @contextmanager
    def open_folder(self, name: str = ".") -> Iterator[OpenFolder]:
        """Open a shard's folder, `tables`, or the slab's own, for a `with` block.

        Raises
        ------
        SlabReplaced
            What failed in the block, or might be of another slab, is due to a slab that was
            packed again, or removed.
        DamagedArray, NotASlab, Unreadable
            As `OpenFolder.open_file` raises them.
        """
        self._check_descriptor()
        try:
            with self._directory.open_folder(name) as folder:
                folder.path, folder.watch = self.path / name, self.watch
                yield folder
        except (Damaged, NotASlab, Unreadable) as error:
            if not self._directory.is_at(self._place):
                raise self._make_replaced_error() from error
            self._check_not_replaced()
            raise
        self._check_not_replaced()

    def compare_files(self, most: int | None = None) -> bool:
        """Compare mapped files with what they were: all, or `most` of them, in turns.

        Returns False where something changed that may have left the bytes alone, as a new name
        does: the files should be verified again. Raises SlabChanged where bytes were written.
        """
        if self.watch is None or self.watch.stamps is None:
            return True
        return self.watch.compare_files(self.path, self._directory.get_info, most)

    def close(self) -> None:
        """Close the directory; what is mapped stays mapped."""
        directory, self._directory = self._directory, OpenFolder(self.path, -1)
        with suppress(OSError):  # if it was closed, its number may belong to another file
            if os.path.samestat(os.fstat(directory.fd), self._inode):
                os.close(directory.fd)

    def __enter__(self) -> "SlabFiles":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Bound here because module globals may be gone when the interpreter ends, which closes all.
    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if hasattr(self, "_inode") and not is_finalizing():
            self.close()

    def _check_descriptor(self) -> None:
        """Raise SlabReplaced if the descriptor was closed, as daemons close all they inherit."""
        with suppress(OSError):
            if os.path.samestat(os.fstat(self._directory.fd), self._inode):
                return
        raise SlabReplaced(
            "the descriptor of its directory was closed", file=self.path, hint=_OPEN_AGAIN
        )

    def _check_not_replaced(self) -> None:
        """Raise SlabReplaced where another slab was written into the directory itself.

        `rsync` and the like do that. The manifest comes first or last there, so that what was
        opened while the old one still stood is of the old slab.
        """
        stamp = _read_stamp(self._directory)
        if stamp == self._read_stamp:
            return
        if stamp is None or _read_manifest(self._directory).id != self.manifest.id:
            raise self._make_replaced_error()
        self._read_stamp = stamp

    def _make_replaced_error(self) -> SlabReplaced:
        return SlabReplaced(
            "was packed again, or removed, since it was opened", file=self.path, hint=_OPEN_AGAIN
        )


def open_slab_files(slab: str | Path, *, follow_links: bool = False) -> SlabFiles:
    """Open a slab's directory, to be closed, and read and validate its manifest.

    `slab` may be a link to a slab; links in the slab are refused unless `follow_links`.

    Raises
    ------
    NotASlab, IncompleteSlab, UnsupportedVersion, DamagedManifest, Unreadable
        As their names say; the message says what to do.
    SlabReplaced
        Other slabs keep coming in its place.
    """
    slab = check_slab_path(slab)
    for attempt in range(_ATTEMPTS):
        files = _try_open(slab, follow_links, patient=attempt + 1 < _ATTEMPTS)
        if files is not None:
            return files
        time.sleep(0.001 * attempt)
    raise SlabReplaced("kept being replaced while it was opened", file=slab, hint="Try again.")


def load_manifest(slab: str | Path, *, follow_links: bool = False) -> Manifest:
    """Read and validate the manifest of a slab; the errors are those of `open_slab_files`."""
    with open_slab_files(slab, follow_links=follow_links) as files:
        return files.manifest


def check_content_id(content: object) -> None:
    """Raise UsageError for what cannot be the `id` of a slab, or the beginning of one."""
    if not isinstance(content, str) or not re.fullmatch("[0-9a-fA-F]{16,64}", content):
        raise UsageError(
            f"{mark_option('id')} is not the id of a slab",
            expected="64 hexadecimal digits, or the first 16 or more of them",
            found=repr(content),
            hint="`fieldslab info SLAB` shows it.",
        )


def check_pinned(content: str | None, found: str, place: object) -> None:
    """Compare the `id` of what was opened with the one that was asked for, or its beginning.

    Raises UsageError for what is no `id`, and SlabChanged for that of another slab.
    """
    if content is None:
        return
    check_content_id(content)
    if not found.startswith(content.lower()):
        raise SlabChanged(
            "this is another slab than the one that was asked for: its content has another `id`",
            file=place,
            expected=content,
            found=found,
            hint="Get the slab from its author again, or give the `id` of this one.",
        )


def check_content(manifest: Manifest, content: str, place: object) -> None:
    """Raise SlabReplaced where a slab is not the one with this `id`."""
    if manifest.id != content:
        raise SlabReplaced(
            "is not the slab that was pickled: its content has another `id`",
            file=place,
            expected=content,
            found=manifest.id,
            hint="It was packed again in between; open it again.",
        )


def _try_open(slab: Path, follow_links: bool, patient: bool) -> SlabFiles | None:
    """Open the slab; None if it was replaced meanwhile, or is just being replaced."""
    try:
        directory = _open_directory(slab, follow_links)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            if patient and os.path.isdir(get_partial_path(slab) / REPLACED):
                return None  # between the two renames of systems that cannot swap directories
            raise _make_absent_error(slab) from error
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            raise NotASlab(f"cannot be read: {error.strerror}", file=slab) from error
        raise make_opening_error(error, slab, DamagedManifest) from error
    files = None
    try:
        if slab.name.endswith(SIDE) and (mistake := find_mirror_error(slab)):
            raise mistake
        directory.lock_for_reading()
        try:
            stamp = _read_stamp(directory)
            if stamp is None:
                raise _make_absent_error(slab)
            manifest = _read_manifest(directory)
        except FieldslabError:
            if directory.is_at(os.fspath(slab)):
                raise
        else:
            if directory.is_at(os.fspath(slab)):
                files = SlabFiles(directory, manifest, stamp)
        return files
    finally:
        if files is None:
            close_quietly(directory.fd)


def _open_directory(slab: Path, follow_links: bool) -> OpenFolder:
    """Hold a slab's directory open. Raises OSError."""
    if not HAS_DIRECTORY_DESCRIPTORS:
        from fieldslab.schemas.path_folder import open_path_folder

        return open_path_folder(slab, follow_links)
    return OpenFolder(slab, os.open(slab, READ | DIRECTORY), follow_links)


def _read_manifest(directory: OpenFolder) -> Manifest:
    path = directory.path / MANIFEST
    with directory.open_file(MANIFEST, DamagedManifest) as (fd, size):
        return decode_manifest(bytes(read_bytes(fd, min(size, MAX_BYTES + 1), 0, path)), path)


def _read_stamp(directory: OpenFolder) -> tuple[int, ...] | None:
    """Read what changes when a manifest is replaced; None if there is no manifest."""
    try:
        info = directory.get_info(MANIFEST)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise make_opening_error(error, directory.path / MANIFEST, DamagedManifest) from error
    return info.st_ino, info.st_size, info.st_mtime_ns


def _make_absent_error(slab: Path) -> NotASlab:
    """Make the error for a path without a manifest."""
    # Methods of paths would raise an error where the system cannot tell.
    if os.path.isdir(slab):
        if error := find_mirror_error(slab):
            return error
        if os.path.exists(slab / JOURNAL) or os.path.isdir(slab / layout.name_shard(0)):
            return IncompleteSlab(
                "no manifest.json: the slab was not finished, or not copied whole",
                file=slab,
                hint="Run the `fieldslab pack` command again, or copy the directory again.",
            )
        return SlabNotFound(
            "is a directory without manifest.json",
            file=slab,
            hint="Give the directory that `fieldslab pack -o` wrote.",
        )
    if os.path.isfile(slab) and slab.suffix == ".slabs":
        return SlabNotFound(
            "is a union file, and this needs one slab",
            file=slab,
            hint="Make one slab of them: fieldslab concat or fieldslab repack. List them: "
            f"fieldslab union {slab} list.",
        )
    if os.path.isfile(slab) and slab.suffix == ".rows":
        return SlabNotFound(
            "is a file of rows, which does not say where their slab is",
            file=slab,
            hint=f"Give the slab, and its rows by {mark_option('rows_file', slab)}; in Python, "
            f"write open_slab(...).select({str(slab)!r}).",
        )
    if os.path.exists(slab):
        return SlabNotFound(
            "is a file, not a slab directory",
            file=slab,
            hint="Give the directory that `fieldslab pack -o` wrote.",
        )
    if os.path.isdir(get_partial_path(slab)):
        return IncompleteSlab(
            "packing was cut off",
            file=slab,
            hint=(
                f"Run the same `fieldslab pack` command again: it continues from "
                f"{get_partial_path(slab).name}."
            ),
        )
    return SlabNotFound("does not exist", file=slab, hint="Check the path, or pack the slab first.")
