"""Disks whose power can be cut: file systems in images, which no other process sees mounted.

A file system lies in an image, and the image on another file system, which stands for the disk
with its cache. Power is cut by the call that the tests of Linux file systems use: a file system
stops at once, and what it had not written is lost. Where the upper one stops, its journal and its
pages are cut off. Where the lower one stops, whatever the upper one had written but not flushed is
lost, in any order: any file system can be on such a disk, also one that does not know the call.
"""

import ctypes
import fcntl
import gc
import os
import random
import shutil
import struct
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_MOUNTS = 0x20000  # CLONE_NEWNS
_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN
_WRITE_AND_WAIT = 7  # SYNC_FILE_RANGE_WAIT_BEFORE | _WRITE | _WAIT_AFTER
_PATIENCE = 20.0
"""Seconds until a file system that stays busy is an error."""
_MEBIBYTE = 1 << 20

CUTS = {"all written": 0, "journal written": 1, "nothing written": 2, "disk": -1}
"""How the power is cut: what the file system still writes, or the disk below it stops."""


@dataclass(frozen=True)
class Kind:
    """A file system: how it is made and mounted, and the ways in which its power can be cut."""

    make: tuple[str, ...]
    options: str = "defaults"
    mebibytes: int = 64
    cuts: tuple[str, ...] = tuple(CUTS)


_EXT4 = ("mkfs.ext4", "-q", "-F")
KINDS = {
    "ext4": Kind(_EXT4),
    "ext4, writeback": Kind(_EXT4, "data=writeback,noauto_da_alloc,commit=1"),
    "ext4, asynchronous commits": Kind(_EXT4, "data=writeback,journal_async_commit"),
    "ext4, journal of data": Kind(_EXT4, "data=journal"),
    "ext4, fast commits": Kind((*_EXT4, "-O", "fast_commit", "-b", "1024"), "nodelalloc"),
    "xfs": Kind(("mkfs.xfs", "-q", "-f"), mebibytes=300),
    "btrfs": Kind(("mkfs.btrfs", "-q", "-f"), mebibytes=160, cuts=("disk",)),
}
_PACKAGES = {"mkfs.ext4": "e2fsprogs", "mkfs.xfs": "xfsprogs", "mkfs.btrfs": "btrfs-progs"}


def list_missing(kinds: dict[str, Kind]) -> list[str]:
    """Say what it takes to make disks of these kinds and is not there."""
    missing = [] if os.geteuid() == 0 else ["to be root"]
    if not Path("/dev/loop-control").exists():
        missing.append("loop devices (/dev/loop-control)")
    for program in dict.fromkeys(["mkfs.ext4", *(kind.make[0] for kind in kinds.values())]):
        if shutil.which(program) is None:
            missing.append(f"{program} (apt install {_PACKAGES[program]})")
    return missing


def hide_mounts() -> None:
    """From now on, only this process and its children see what it mounts, and it ends with them.

    Raises OSError where the system does not allow it.
    """
    if _LIBC.unshare(_NEW_MOUNTS):
        raise OSError(ctypes.get_errno(), "this process may not have mounts of its own")
    _run("mount", "--make-rprivate", "/")


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")


class Disk:
    """A file system in an image, on a file system in an image; a context manager."""

    def __init__(self, folder: Path, kind: Kind) -> None:
        """Make and mount both below an empty folder; what is written goes below `files`."""
        self.kind = kind
        self.files, self._lower = folder / "files", folder / "disk"
        self._platter, self._image = folder / "platter", self._lower / "image"
        for path in (self.files, self._lower):
            path.mkdir()
        with open(self._platter, "wb") as file:
            file.truncate((kind.mebibytes + 48) * _MEBIBYTE)
        _run(*_EXT4, self._platter)
        self._mount_lower()
        with open(self._image, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, kind.mebibytes * _MEBIBYTE)
            _run(*kind.make, self._image)
            os.fsync(file.fileno())
        self._mount()

    def __enter__(self) -> "Disk":
        return self

    def __exit__(self, *_: object) -> None:
        for path in (self.files, self._lower):
            if path.is_mount():
                _unmount(path)

    def _mount_lower(self) -> None:
        _run("mount", "-o", "loop,data=writeback", self._platter, self._lower)

    def _mount(self) -> None:
        _run("mount", "-o", f"loop,{self.kind.options}", self._image, self.files)

    def sync(self) -> None:
        """Have all that was written on the disk."""
        _sync_file_system(self.files)

    def write_back(self, place: Path, rng: random.Random) -> None:
        """Have a part of what was written below `place` on the disk, or in its cache."""
        if rng.random() < 0.3:
            self.sync()
        for folder, _, names in os.walk(place):  # leaves out what is gone by now
            for name in sorted(names):
                if rng.random() < 0.5:
                    with suppress(OSError):
                        _write_range(Path(folder, name), 0, 0)
        self._drain(rng)

    def _drain(self, rng: random.Random) -> None:
        """Have some blocks on the disk that are in its cache."""
        size = self._image.stat().st_size
        offset = 0
        while offset < size:
            length = rng.choice((4096, 65536, _MEBIBYTE, 16 * _MEBIBYTE))
            if rng.random() < 0.5:
                _write_range(self._image, offset, length)
            offset += length

    def cut(self, way: str, rng: random.Random) -> None:
        """Cut the power now; perhaps while all is being written."""
        writer = threading.Thread(target=_sync_file_system, args=(self.files,))
        writing = rng.random() < 0.4
        if writing:
            writer.start()
            time.sleep(rng.choice((0, 0.0002, 0.001, 0.004)))
        if way == "disk":
            if not writing:
                self._drain(rng)
            _shut_down(self._lower, CUTS["nothing written"])
        else:
            _shut_down(self.files, CUTS[way])
        if writing:
            writer.join()

    def turn_on(self, way: str) -> None:
        """Mount again what the power was cut of; no process may have files open there."""
        _unmount(self.files)
        if way == "disk":
            _unmount(self._lower)
            self._mount_lower()
        self._mount()


def _unmount(path: Path) -> None:
    """Unmount; other programs that look for a free loop device hold those in use for a moment."""
    gc.collect()  # maps of slabs that were looked at
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return _run("umount", path)
        except OSError as error:
            if "busy" not in str(error) or time.monotonic() > end:
                raise
        time.sleep(0.05)


def _shut_down(path: Path, what: int) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", what))
    finally:
        os.close(descriptor)


def _sync_file_system(path: Path) -> None:
    """Sync a file system; one whose power was cut fails, which is as it should be."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        _LIBC.syncfs(descriptor)
        os.close(descriptor)


def _write_range(path: Path, offset: int, size: int) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    start, length = ctypes.c_int64(offset), ctypes.c_int64(size)
    _LIBC.sync_file_range(descriptor, start, length, _WRITE_AND_WAIT)
    os.close(descriptor)
