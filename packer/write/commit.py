"""Commit: a slab is built beside its place and appears there whole, or not at all.

While `NAME` is packed there is `NAME.partial`, and in it

    journal.jsonl   which shards are finished
    slab/           what will be `NAME`
    old/            the slab that is being replaced, where two directories cannot be swapped at once

A shard is written under a staging name, fsynced, renamed, then entered in the journal. The
manifest comes last, then one rename puts `slab/` in its place. A kill at any moment leaves the
old slab, or the new one, or a partial that a rerun goes on with.
"""

import contextlib
import errno
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from fieldslab.packer.commands.words import counted
from fieldslab.packer.write.directories import (
    lock_directory,
    remove,
    swap_directories,
    sync_directory,
)
from fieldslab.packer.write.journal import Journal
from fieldslab.packer.write.replaced import is_held, retire, sweep
from fieldslab.packer.write.writers import ShardRecord
from fieldslab.schemas import layout
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.errors import (
    FieldslabError,
    NoSpace,
    OutputDenied,
    OutputError,
    OutputExists,
    UsageError,
)
from fieldslab.schemas.folder import (
    JOURNAL,
    REPLACED,
    check_slab_path,
    get_partial_path,
    is_url,
    load_manifest,
    restore_url,
)
from fieldslab.schemas.manifest import FORMAT, MANIFEST, Manifest, encode
from fieldslab.schemas.optiontext import option
from fieldslab.schemas.version import package_version

_FIRST_LINES = f'{{\n"format": "{FORMAT}",\n'.encode()
_WRITERS = ("fieldslab", "zstandard")
_OUR_NAMES = re.compile(rf"{re.escape(MANIFEST)}|{layout.TABLES}|shard-[0-9]{{5,}}")
_LITTER = (".DS_Store", "Thumbs.db", "desktop.ini")
"""What file managers leave everywhere, and nobody misses."""


class Staging:
    """The directory in which one slab is built; a context manager that holds its lock."""

    def __init__(
        self, out: Path, plan: str, *, force: bool = False, resumable: bool = True
    ) -> None:
        """Build `out` by the plan of this fingerprint.

        `finished` are the shards taken over from an earlier run, `dropped` counts those that were
        not, because source, options or version are others now.

        `completed` is the manifest of the slab where an earlier run of the same plan had put it in
        its place and was cut off before it had cleaned up: there is nothing left to pack.

        `set_aside` is where the old slab lies once it is replaced, if somebody reads it.

        `force` replaces a slab that is there. What is not `resumable`, such as a stream that can
        be read once only, never takes over shards of an earlier run.
        """
        self.out = out
        self.folder = get_partial_path(out)
        self.slab = self.folder / "slab"
        self.finished: dict[int, ShardRecord] = {}
        self.dropped = 0
        self.published = False
        self.completed: Manifest | None = None
        self.set_aside: Path | None = None
        self._force = force
        self._resumable = resumable
        # Other versions may write other bytes by the same plan: one slab, one set of versions.
        plan = " ".join([plan, *(f"{name} {package_version(name)}" for name in _WRITERS)])
        self._plan = plan
        self._journal = Journal(self.folder / JOURNAL, plan)
        self._old = self.folder / REPLACED
        self._lock = -1
        self._removed = False
        # A worker process may outlive a killed packer for a while: it must never meet the names
        # that this run writes to.
        self._suffix = f".{secrets.token_hex(4)}.staging"

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
        with writing(self.out):
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self._lock = lock_directory(self.folder)
            try:
                self._resume()
            except BaseException:
                with contextlib.suppress(OSError):
                    self.folder.rmdir()  # where there is nothing in it
                os.close(self._lock)
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Leave nothing behind but finished shards, which a rerun takes over."""
        with contextlib.suppress(OSError):
            if not self._removed:  # else another packer may be at work there by now
                self._leave()
                if isinstance(error, NoSpace) and not self._removed:
                    count = counted(len(self.finished), "finished shard")
                    error.advise(f"It goes on from {count} in {self.folder.name}.")
        os.close(self._lock)

    def begin(self, name: str) -> Path:
        """An empty folder to write a shard (or the tables) in."""
        folder = self.slab / (name + self._suffix)
        with writing(folder):
            remove(folder)
            folder.mkdir()
        return folder

    def finish(self, name: str, record: ShardRecord | None = None) -> None:
        """Make a folder durable under its name, then enter it in the journal."""
        staged, final = self.slab / (name + self._suffix), self.slab / name
        with writing(final):
            sync_directory(staged)
            remove(final)
            staged.rename(final)
            sync_directory(self.slab)
            if record is not None:
                self._journal.append(record)
                self.finished[record.index] = record

    def publish(self, manifest: Manifest) -> None:
        """Write the manifest and put the slab in its place, in the place of an old one if forced.

        Raises OutputExists where a slab has come to stand there meanwhile.
        """
        with writing(self.out):
            with open(self.slab / MANIFEST, "xb") as file:
                file.write(encode(manifest))
                file.flush()
                os.fsync(file.fileno())
            sync_directory(self.slab)
            check_output(self.out, force=self._force)
            self._put_in_place()
            self.published = True
        try:
            sync_directory(self.out.parent)
        except OSError as error:
            raise OutputError(
                "the new slab is in its place and whole, but the system cannot confirm that its "
                f"name is on the disk: {error.strerror}",
                file=self.out,
                hint="There is no need to pack again. A power cut may undo the last step until "
                "the file system is well; `fieldslab verify` reads the slab.",
            ) from error
        try:
            self._remove()
        except OSError as error:
            raise OutputError(
                f"the new slab is in its place, but this cannot be removed: {error.strerror}",
                file=error.filename or self.folder,
                hint="Remove it yourself.",
            ) from error

    def _put_in_place(self) -> None:
        if self.out.exists() and not is_empty(self.out):  # what is empty, a rename replaces
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
        self._check_ours()
        self._restore_old()
        if not self._force and was_cut_off(self.out):
            manifest = load_manifest(self.out)
            if self._resumable and manifest.made.plan == self._plan.partition(" ")[0]:
                self.completed = manifest
                return
            self._clean_up()
        check_output(self.out, force=self._force)
        sweep(self.out)
        if is_held(self.slab):  # a slab that was replaced just before a packer was killed
            retire(self.slab, self.out)
        if self._resumable:
            for record in self._journal.read():
                if is_whole(self.slab / layout.name_shard(record.index), record):
                    self.finished[record.index] = record
        self._journal.start(self.finished.values())  # first of all: it tells that the rest is ours
        self.slab.mkdir(exist_ok=True)
        sync_directory(self.folder)
        shards = len(list(self.slab.glob("shard-?????")))
        self.dropped = shards - len(self.finished)
        self._drop_unfinished()

    def _clean_up(self) -> None:
        """Remove what a run left that was killed when its slab was in its place."""
        sweep(self.out)
        if is_held(self.slab):
            retire(self.slab, self.out)
        self._remove()

    def _leave(self) -> None:
        if self.completed is not None:
            self._clean_up()
            return
        self._restore_old()
        reusable = self._resumable and self.finished and self.slab.is_dir()
        if self.published or not reusable:
            self._remove()
        else:
            self._drop_unfinished()

    def _check_ours(self) -> None:
        """Raise OutputExists for a directory that only happens to have this name."""
        names = {entry.name for entry in self.folder.iterdir()}
        ours = {self._journal.path.name, self._journal.fresh.name, self.slab.name, self._old.name}
        started = JOURNAL in names or names <= {self._journal.fresh.name}
        if names - ours or not started:
            raise OutputExists(
                "is in the way, and not what a packer left",
                file=self.folder,
                hint="Remove it yourself, or choose another output.",
            )

    def _drop_unfinished(self) -> None:
        keep = {layout.name_shard(index) for index in self.finished}
        for entry in self.slab.iterdir():
            if entry.name not in keep:
                remove(entry)
        retire(self._old, self.out)

    def _remove(self) -> None:
        """Remove everything; the journal last, since it tells that the rest is ours."""
        for folder in (self.slab, self._old):
            self.set_aside = retire(folder, self.out) or self.set_aside
        for path in (self._journal.fresh, self._journal.path):
            remove(path)
        self.folder.rmdir()
        self._removed = True


def is_whole(folder: Path, record: ShardRecord) -> bool:
    """Whether a finished shard still is what its record says, as far as a glance can tell.

    Every file was fsynced before the record was written, so only foreign hands or a failing disk
    can have changed it. Sizes find what was cut or removed, the digest table what belongs to
    another run; reading every byte again is what `fieldslab verify` is for.
    """
    if folder.is_symlink() or not folder.is_dir():
        return False
    size = sum(file.lstat().st_size for file in folder.iterdir())
    if size != record.bytes:
        return False
    try:
        digests = (folder / layout.DIGESTS).read_bytes()
    except OSError:
        return False
    return hashlib.sha256(digests[HEADER:]).hexdigest() == record.root


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError while writing into an OutputError that names the path."""
    try:
        yield
    except FieldslabError:
        raise
    except OSError as error:
        file = error.filename or path
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpace(
                "no space left on the device",
                file=file,
                hint="Free some space and run the same command again.",
            ) from error
        if error.errno == errno.EFBIG:
            raise NoSpace(
                "a file would be larger than the file system or `ulimit -f` allows",
                file=file,
                hint=f"A smaller {option('shard_size')} makes smaller files.",
            ) from error
        denied = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
        kind = OutputDenied if denied else OutputError
        raise kind(f"cannot be written: {error.strerror or error}", file=file) from error


def output_path(given: object) -> Path:
    """The path of a slab to write. Raises UsageError where that is no path, or a URL."""
    if isinstance(given, str | os.PathLike) and is_url(os.fspath(given)):
        raise UsageError(
            "remote slabs are not supported yet: slabs are written to directories, not to URLs",
            file=restore_url(given),
            hint="Pack to a directory of this machine, and copy the slab from there.",
        )
    return check_slab_path(given)


def check_output(out: Path, *, force: bool) -> None:
    """Raise OutputExists where a pack to `out` would destroy something.

    `force` allows to replace a slab, and nothing else.
    """
    with writing(out):
        if not (out.exists() or out.is_symlink()) or is_empty(out):
            return
        if not force and was_cut_off(out):
            return
        if not force:
            raise OutputExists(
                "exists already", file=out, hint=f"{option('force', True)} replaces a slab."
            )
        if out.is_symlink() or not _is_slab(out):
            raise OutputExists(
                f"exists and is not a slab, so that {option('force', True)} leaves it alone",
                file=out,
                hint="Remove it yourself, or choose another output.",
            )
        names = sorted(entry.name for entry in out.iterdir())
        strangers = [n for n in names if not _OUR_NAMES.fullmatch(n) and n not in _LITTER]
        if strangers:
            raise OutputExists(
                f"holds more than a slab, so that {option('force', True)} leaves it alone",
                file=out,
                found=", ".join(strangers[:5]),
                hint="Move that elsewhere.",
            )


def is_empty(out: Path) -> bool:
    """Whether there is a directory with nothing in it: it is as good as none."""
    return out.is_dir() and not out.is_symlink() and not any(out.iterdir())


def was_cut_off(out: Path) -> bool:
    """Whether a packer put the slab in its place, and was killed before it had cleaned up.

    Then the plan of its journal is that of the slab, and running it again cleans up.
    """
    partial = get_partial_path(out)
    if out.is_symlink() or not partial.is_dir() or not _is_slab(out):
        return False
    try:
        plan = load_manifest(out).made.plan
    except FieldslabError:
        return False
    journal = Journal(partial / JOURNAL, "").plan()
    return is_empty(partial) or (journal is not None and journal.partition(" ")[0] == plan)


def _is_slab(out: Path) -> bool:
    """Whether there is a manifest that begins as ours do; it may be damaged further on."""
    path = out / MANIFEST
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(len(_FIRST_LINES)) == _FIRST_LINES
