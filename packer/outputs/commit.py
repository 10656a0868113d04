"""Commit: a slab is built beside its place and appears there whole, or not at all.

While `NAME` is packed there is `NAME.partial`, and in it

    journal.jsonl   which shards are finished
    attempts/RUN/   a folder for each attempt at a shard of this run, such as shard-00003-1f0c92aa
    slab/           what will be `NAME`
    scattered/      of a shuffle, a slab of the rows sorted by shard; see `fieldslab.packer.rewrite`
    old/            the slab that is being replaced, where two directories cannot be swapped at once

A shard is written as an attempt, fsynced, moved into `slab/`, then entered in the journal. The
manifest comes last, then one rename puts `slab/` in its place. A kill at any moment leaves the
old slab, or the new one, or a partial that a rerun goes on with.
"""

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from fieldslab.packer.commands.text_format import format_count
from fieldslab.packer.outputs.directory_check import (
    check_output,
    is_empty_directory,
    was_cleanup_interrupted,
)
from fieldslab.packer.outputs.journal import Journal
from fieldslab.packer.outputs.replaced import (
    is_being_read,
    remove_or_set_aside,
    remove_unread_slabs,
)
from fieldslab.packer.outputs.slab_output import SlabBuilder
from fieldslab.packer.write.attempts import DirectoryAttempts, make_attempt_folder
from fieldslab.packer.write.directories import (
    lock_directory,
    remove_path,
    swap_directories,
)
from fieldslab.packer.write.writers import ShardRecord
from fieldslab.schemas import layout
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.errors import (
    NoSpace,
    OutputError,
    OutputExists,
)
from fieldslab.schemas.files import close_quietly, sync_directory
from fieldslab.schemas.folder import (
    JOURNAL,
    REPLACED,
    get_partial_path,
    load_manifest,
)
from fieldslab.schemas.manifest import MANIFEST, Manifest, encode_manifest
from fieldslab.schemas.write_errors import name_write_errors

_ATTEMPTS = "attempts"
_SCATTERED = "scattered"


def get_scattered_path(out: Path) -> Path:
    """Return where a slab may be built that is read for the one at `out`."""
    return get_partial_path(out) / _SCATTERED


class Staging(SlabBuilder):
    """The directory in which one slab is built; a context manager that holds its lock."""

    attempts: DirectoryAttempts

    def __init__(
        self,
        out: Path,
        plan: str,
        versions: Mapping[str, str],
        *,
        force: bool = False,
        resumable: bool = True,
    ) -> None:
        """Build `out` by the plan of this fingerprint, with these versions of libraries.

        `scattered` is where a slab may be built that is read for this one.

        `force` replaces a slab that is there. What is not `resumable`, such as a stream that can
        be read once only, never takes over shards of an earlier run.
        """
        self.out = out
        self.folder = get_partial_path(out)
        self.slab = self.folder / "slab"
        # A worker may outlive a killed packer for a while, and must not write to a later run.
        self.attempts = DirectoryAttempts(self.folder / _ATTEMPTS / secrets.token_hex(4))
        self.scattered = get_scattered_path(out)
        self.finished: dict[int, ShardRecord] = {}
        self.dropped = 0
        self.published = False
        self.completed: Manifest | None = None
        self.set_aside: Path | None = None
        self._force = force
        self._resumable = resumable
        self._plan = plan
        self._versions = versions
        self._journal = Journal(self.folder / JOURNAL, plan)
        self._old = self.folder / REPLACED
        self._lock = -1
        self._removed = False

    def __enter__(self) -> "Staging":
        """Lock the staging directory and take over what an earlier run finished in it.

        Raises
        ------
        OutputExists
            Something is there already, and `force` was not given.
        Busy
            Another packer is at work on the same output.
        """
        check_output(self.out, force=self._force)
        with name_write_errors(self.out):
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self._lock = lock_directory(self.folder)
            try:
                self._resume()
            except BaseException:
                with contextlib.suppress(OSError):
                    self.folder.rmdir()  # where there is nothing in it
                close_quietly(self._lock)
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Leave nothing behind but finished shards, which a rerun takes over."""
        with contextlib.suppress(OSError):
            if not self._removed:  # else another packer may be at work there by now
                self._remove_leftovers_or_keep()
                if isinstance(error, NoSpace) and not self._removed:
                    count = format_count(len(self.finished), "finished shard")
                    error.add_hint(f"It goes on from {count} in {self.folder.name}.")
        close_quietly(self._lock)

    def accept_shard(self, record: ShardRecord) -> None:
        """Make a finished attempt part of the slab, then enter it in the journal."""
        name = layout.name_shard(record.index)
        self.move_into_slab(self.attempts.folder / record.attempt, name)
        with name_write_errors(self._journal.path):
            self._journal.append(record)
        self.finished[record.index] = record

    def add_folder(self, name: str, write: Callable[[Path], None]) -> None:
        """Have a folder without rows written, and move it into the slab."""
        folder = make_attempt_folder(self.attempts.folder, name)
        write(folder)
        self.move_into_slab(folder, name)

    def move_into_slab(self, folder: Path, name: str) -> None:
        """Move a folder from `attempts` into the slab, durably."""
        final = self.slab / name
        with name_write_errors(final):
            sync_directory(folder)
            remove_path(final)
            folder.rename(final)
            sync_directory(self.slab)

    def publish(self, manifest: Manifest, encoded: bytes | None = None) -> None:
        """Write the manifest and put the slab in its place, in the place of an old one if forced.

        `encoded` are the bytes of the manifest, if they are known.

        Raises OutputExists where a slab has come to stand there meanwhile.
        """
        with name_write_errors(self.out):
            with open(self.slab / MANIFEST, "xb") as file:
                file.write(encode_manifest(manifest) if encoded is None else encoded)
                file.flush()
                os.fsync(file.fileno())
            sync_directory(self.slab)
            check_output(self.out, force=self._force)
            self._replace_output()
            self.published = True
        try:
            sync_directory(self.out.parent)
        except OSError as error:
            raise OutputError(
                "the new slab is in its place and whole, but the system cannot confirm that its "
                f"name is on the disk: {error.strerror}",
                file=self.out,
                hint="There is no need to pack again. A power cut may undo the last step until "
                "the file system works again; `fieldslab verify` reads the slab.",
            ) from error
        try:
            self._remove_all()
        except OSError as error:
            raise OutputError(
                f"the new slab is in its place, but this cannot be removed: {error.strerror}",
                file=error.filename or self.folder,
                hint="Remove it yourself.",
            ) from error

    def _replace_output(self) -> None:
        if self.out.exists() and not is_empty_directory(
            self.out
        ):  # what is empty, a rename replaces
            if swap_directories(self.slab, self.out):
                return
            self.out.rename(self._old)
        self.slab.rename(self.out)

    def _restore_old(self) -> None:
        """Undo half a replacement, cut off between its two renames."""
        if self._old.is_dir() and not self.out.exists():
            self._old.rename(self.out)
            sync_directory(self.out.parent)

    def _resume(self) -> None:
        """Take over the finished shards of an earlier run of the same plan; drop all else."""
        self._refuse_foreign_files()
        self._restore_old()
        if not self._force and was_cleanup_interrupted(self.out):
            manifest = load_manifest(self.out)
            if self._resumable and manifest.made.plan == self._plan:
                self.completed = manifest
                return
            self._remove_leftovers_of_killed_run()
        check_output(self.out, force=self._force)
        remove_unread_slabs(self.out)
        if is_being_read(self.slab):  # a slab that was replaced just before a packer was killed
            remove_or_set_aside(self.slab, self.out)
        if self._resumable:
            for record in self._journal.read():
                same_versions = record.versions == self._versions  # others may write other bytes
                if same_versions and is_whole(self.slab / layout.name_shard(record.index), record):
                    self.finished[record.index] = record
        self._journal.rewrite(
            self.finished.values()
        )  # first of all: it tells that the rest is ours
        sync_directory(self.folder)
        self.slab.mkdir(exist_ok=True)
        sync_directory(self.folder)
        shards = len(list(self.slab.glob("shard-?????")))
        self.dropped = shards - len(self.finished)
        self._drop_unfinished()
        self.attempts.folder.mkdir(parents=True)

    def _remove_leftovers_of_killed_run(self) -> None:
        """Remove what a run left that was killed after it had put its slab in its place.

        That is the slab that was replaced, unless it is being read, and this folder.
        """
        remove_unread_slabs(self.out)
        if is_being_read(self.slab):
            remove_or_set_aside(self.slab, self.out)
        self._remove_all()

    def _remove_leftovers_or_keep(self) -> None:
        if self.completed is not None:
            self._remove_leftovers_of_killed_run()
            return
        self._restore_old()
        begun = self.finished or any(self.folder.glob(f"{_SCATTERED}*"))
        reusable = self._resumable and begun and self.slab.is_dir()
        if self.published or not reusable:
            self._remove_all()
        else:
            self._drop_unfinished()

    def _refuse_foreign_files(self) -> None:
        """Raise OutputExists for a directory that only happens to have this name."""
        names = {entry.name for entry in self.folder.iterdir()}
        ours = {JOURNAL, self._journal.fresh.name, self.slab.name, self._old.name, _ATTEMPTS}
        ours |= {_SCATTERED, get_partial_path(self.scattered).name}
        started = JOURNAL in names or names <= {self._journal.fresh.name}
        if names - ours or not started:
            raise OutputExists(
                "is in the way, and was not left by a packer",
                file=self.folder,
                hint="Remove it yourself, or choose another output.",
            )

    def _drop_unfinished(self) -> None:
        keep = {layout.name_shard(index) for index in self.finished}
        for entry in self.slab.iterdir():
            if entry.name not in keep:
                remove_path(entry)
        self._remove_attempts()
        remove_or_set_aside(self._old, self.out)

    def _remove_all(self) -> None:
        """Remove everything; the journal last, since it tells that the rest is ours."""
        for folder in (self.slab, self._old):
            self.set_aside = remove_or_set_aside(folder, self.out) or self.set_aside
        self._remove_attempts()
        for path in (self.scattered, get_partial_path(self.scattered)):
            remove_path(path)
        sync_directory(self.folder)
        for path in (self._journal.fresh, self._journal.path):
            remove_path(path)
        self.folder.rmdir()
        self._removed = True

    def _remove_attempts(self) -> None:
        """Remove every attempt, also where a worker that outlived its packer still writes."""
        folder = self.attempts.folder.parent
        for run in folder.iterdir() if folder.is_dir() else ():
            run.rename(run.with_suffix(".gone"))  # now nothing new can come to be in it
        remove_path(folder)


def is_whole(folder: Path, record: ShardRecord) -> bool:
    """Return True if a finished shard has the size and the digest table of its record.

    Every file was fsynced before the record was written, so only foreign hands or a failing disk
    can have changed it. Sizes find what was cut or removed, the digest table what belongs to
    another run; reading every byte again is what `fieldslab verify` is for.
    """
    try:  # another process may move or remove the folder meanwhile
        if folder.is_symlink() or not folder.is_dir():
            return False
        if sum(file.lstat().st_size for file in folder.iterdir()) != record.bytes:
            return False
        digests = (folder / layout.DIGESTS).read_bytes()
    except OSError:
        return False
    return hashlib.sha256(digests[HEADER:]).hexdigest() == record.root
