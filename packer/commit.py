"""Commit: a slab is built beside its place and appears there whole, or not at all.

Everything goes into `NAME.partial`: shards under a staging name, fsynced, renamed, then one
checksummed line in the journal; the manifest last. One rename puts the directory in its place.
A kill at any moment leaves the old slab, or the new one, or a partial that a rerun goes on with.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import msgspec
import xxhash

from fieldslab.packer.writers import ShardRecord
from fieldslab.schemas import layout
from fieldslab.schemas.errors import Busy, NoSpace, OutputError, OutputExists
from fieldslab.schemas.folder import JOURNAL, load_manifest, partial_path
from fieldslab.schemas.manifest import MANIFEST, Manifest, encode

_STAGING = ".staging"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


class Staging:
    """The directory in which one slab is built; a context manager that holds its lock."""

    def __init__(self, out: Path, plan: str, *, force: bool = False) -> None:
        """Build `out` by the plan of this fingerprint; `force` replaces a slab that is there."""
        self.out = out
        self.folder = partial_path(out)
        self.finished: dict[int, ShardRecord] = {}
        self.published = False
        self._plan = plan
        self._force = force
        self._lock = -1

    def __enter__(self) -> "Staging":
        """Lock the staging directory and look what an earlier run left in it.

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
            self._lock = _lock(self.folder)
            self._resume()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Leave nothing behind but finished shards, which a rerun takes over."""
        if not self.published:
            with contextlib.suppress(OSError):
                self._drop_unfinished()
                if not self.finished:
                    shutil.rmtree(self.folder)
        os.close(self._lock)

    def begin(self, name: str) -> Path:
        """An empty folder to write a shard (or the tables) in."""
        folder = self.folder / (name + _STAGING)
        with writing(folder):
            if folder.exists():
                shutil.rmtree(folder)
            folder.mkdir()
        return folder

    def finish(self, name: str, record: ShardRecord | None = None) -> None:
        """Make a folder durable under its name, then enter it in the journal."""
        staged, final = self.folder / (name + _STAGING), self.folder / name
        with writing(final):
            fsync_folder(staged)
            if final.exists():
                shutil.rmtree(final)
            staged.rename(final)
            fsync_folder(self.folder)
            if record is not None:
                self._journal(msgspec.to_builtins(record))
                self.finished[record.index] = record

    def publish(self, manifest: Manifest) -> None:
        """Write the manifest and put the slab in its place, in the place of an old one if forced.

        Raises OutputExists where a slab has come to stand there meanwhile.
        """
        with writing(self.out):
            temporary = self.folder / (MANIFEST + _STAGING)
            with open(temporary, "wb") as file:
                file.write(encode(manifest))
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(self.folder / MANIFEST)
            (self.folder / JOURNAL).unlink(missing_ok=True)
            fsync_folder(self.folder)
            check_output(self.out, force=self._force)
            if self.out.exists():
                _exchange(self.folder, self.out)
                fsync_folder(self.out.parent)
                shutil.rmtree(self.folder)
            else:
                self.folder.rename(self.out)
                fsync_folder(self.out.parent)
            self.published = True

    def ready(self) -> Manifest | None:
        """The manifest, where an earlier run wrote it and was cut off before the last rename."""
        path = self.folder / MANIFEST
        if not path.exists():
            return None
        manifest = load_manifest(self.folder)
        return manifest if manifest.made.plan == self._plan else None

    def _resume(self) -> None:
        """Take over the finished shards of an earlier run of the same plan; drop all else."""
        records = list(self._read_journal())
        if self.ready() is not None:
            return
        if not records or records[0] != {"plan": self._plan}:
            for entry in self.folder.iterdir():
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            self._journal({"plan": self._plan})
            return
        for record in records[1:]:
            shard = msgspec.convert(record, ShardRecord)
            if (self.folder / layout.shard_name(shard.index)).is_dir():
                self.finished[shard.index] = shard
        self._drop_unfinished()

    def _drop_unfinished(self) -> None:
        keep = {layout.shard_name(index) for index in self.finished} | {JOURNAL}
        for entry in self.folder.iterdir():
            if entry.name not in keep:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def _journal(self, record: object) -> None:
        """Append one line: its digest, then JSON. A torn line has a wrong digest."""
        text = json.dumps(record)
        with open(self.folder / JOURNAL, "a") as file:
            file.write(f"{xxhash.xxh3_64_hexdigest(text.encode())} {text}\n")
            file.flush()
            os.fsync(file.fileno())

    def _read_journal(self) -> Iterator[object]:
        with contextlib.suppress(FileNotFoundError):
            for line in (self.folder / JOURNAL).read_text(errors="replace").splitlines():
                digest, _, text = line.partition(" ")
                if digest != xxhash.xxh3_64_hexdigest(text.encode()):
                    return
                yield json.loads(text)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError while writing into an OutputError that names the path."""
    try:
        yield
    except OSError as error:
        file = error.filename or path
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpace(
                "no space left on the device", file=file,
                hint="Free some space and run the same command again: finished shards are kept.",
            ) from error  # fmt: skip
        raise OutputError(f"cannot be written: {error.strerror or error}", file=file) from error


def check_output(out: Path, *, force: bool) -> None:
    """Raise OutputExists where a pack to `out` would destroy something.

    `force` allows to replace a slab, and nothing else.
    """
    if not (out.exists() or out.is_symlink()):
        return
    if not force:
        raise OutputExists("exists already", file=out, hint="--force replaces a slab.")
    if out.is_symlink() or not (out / MANIFEST).is_file():
        raise OutputExists(
            "exists and is not a slab, so that --force leaves it alone", file=out,
            hint="Remove it yourself, or choose another output.",
        )  # fmt: skip


def fsync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _lock(folder: Path) -> int:
    """Create `folder` and hold its lock; the lock follows the directory when it is renamed."""
    while True:
        folder.mkdir(exist_ok=True)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if folder.exists() and os.path.samestat(os.fstat(fd), os.stat(folder)):
                return fd
        except BlockingIOError:
            os.close(fd)
            raise Busy(
                "another packer is at work here", file=folder, hint="Wait until it is done."
            ) from None
        os.close(fd)


def _exchange(new: Path, old: Path) -> None:
    """Swap two directories: atomically where the system can, else by two renames."""
    libc = ctypes.CDLL(None, use_errno=True)
    renameat2 = getattr(libc, "renameat2", None)
    if renameat2 is not None:
        paths = os.fsencode(new), os.fsencode(old)
        if renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0:
            return
        if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(old))
    aside = old.with_name(old.name + ".old")
    old.rename(aside)
    new.rename(old)
    aside.rename(new)
