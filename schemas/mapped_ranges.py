"""Mapped files that change while they are mapped: pages that went, and files that were written.

To touch a page that the file has no longer, or that the disk cannot read, ends a process with
SIGBUS. A handler (see `sigbus`) puts a page of zeros there instead and counts, and whoever reads
compares the count with the one before: a load, where it did not change. What is overwritten or
punched raises no signal: that size, inode, and times of a file have changed is all that tells.
"""

import mmap
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from fieldslab.schemas.errors import SlabChanged
from fieldslab.schemas.system import call_after_fork, map_anonymous

FAULTS, USED, RUNNING, LEVEL, HANDLERS, LAST, REPEATS = range(7)
"""Words of the table: how often pages were replaced; slots that are used; of handlers that were
there before, what runs just now and how many there are; the last fault of others, and how often it
came in succession."""
FIRST_HANDLER, MOST_HANDLERS = 8, 8
"""Where the handlers stand that were there before, the oldest first."""
FIRST_SLOT, SLOT_WORDS = 16, 4
START, END, COUNT, WHERE = range(SLOT_WORDS)
"""Words of a slot: a mapped range, how many of its pages were replaced, and the first address."""
_SLOTS = 65_536

_SIZE = 8 * (FIRST_SLOT + _SLOTS * SLOT_WORDS)
memory = map_anonymous(_SIZE)
table = memoryview(memory).cast("q")
"""Numbers that the handler shares, int64. `table[FAULTS]` rises with each page that is replaced."""


class Stamp(NamedTuple):
    """What the system says of a file; times in nanoseconds."""

    size: int
    mtime: int
    inode: int
    ctime: int


class Watch:
    """What is known of the files of an open slab: it stays when these are closed.

    Attributes
    ----------
    stamps
        Of files when they were mapped, by name. None where files change as they are read, as
        those of mirrors do.
    lost
        The first file and byte that could not be read any more; None as long as all is well.
    written
        The first file that was written or replaced.
    hint
        What to do then.
    """

    hint = "Open the slab again; if it is damaged, restore it from a copy."

    def __init__(self, stamps: dict[str, Stamp] | None) -> None:
        self.stamps = stamps
        self.lost: tuple[Path, int] | None = None
        self.written: Path | None = None
        self._turn = 0

    def note_mapped(self, path: Path, fd: int) -> None:
        """Remember what a file was when it was mapped. Raises SlabChanged if it was another."""
        if self.stamps is not None:
            stamp = read_stamp(os.fstat(fd))
            if is_changed(self.stamps.setdefault(f"{path.parent.name}/{path.name}", stamp), stamp):
                self.written = path
                self.check()

    def check(self) -> None:
        """Raise SlabChanged where a page of a file went, or one was written."""
        if self.written is not None:
            raise SlabChanged(
                "the file was written or replaced since it was opened: rows that were read "
                "meanwhile may be wrong",
                file=self.written,
                hint=self.hint,
            )
        if self.lost is not None:
            file, offset = self.lost
            raise SlabChanged(
                "the file was cut while it was read, or the disk fails: a page that was in memory "
                "cannot be read any more",
                file=file,
                offset=offset,
                hint=self.hint,
            )

    def compare_files(
        self, folder: Path, get_info: Callable[[str], os.stat_result], most: int | None = None
    ) -> bool:
        """Compare files below a folder with what they were: all, or `most` of them, in turns.

        `get_info` tells of a file by its name. Returns False where something changed that may have
        left the bytes alone, as a new name does. Raises SlabChanged where bytes were written.
        """
        same = True
        for name in self._choose_names(most):
            assert self.stamps is not None
            try:
                info = get_info(name)
            except OSError:
                continue  # removed, and there as long as it is mapped; or the next read tells
            before, current = self.stamps[name], read_stamp(info)
            if before.inode != current.inode:
                continue  # the file that is mapped was renamed or removed: it is what it was
            if is_changed(before, current):
                self.written = folder / name
                self.check()
            if before != current:
                self.stamps[name], same = current, False
        return same

    def _choose_names(self, most: int | None) -> list[str]:
        names = list(self.stamps or ())
        if most is None or len(names) <= most:
            return names
        first = self._turn = self._turn % len(names)
        self._turn += most
        return (names + names)[first : first + most]


class FileWatch(Watch):
    """What is known of a file beside slabs, such as one of rows, as long as it is mapped."""

    hint = "Write such files under a new name, then rename them. Select the rows again."

    def __init__(self, path: Path) -> None:
        super().__init__({})
        self.path = Path(os.path.abspath(path))

    def compare(self) -> None:
        """Raise SlabChanged where the file was written since it was mapped."""
        self.compare_files(self.path.parent.parent, lambda name: os.stat(self.path))


def read_stamp(info: os.stat_result) -> Stamp:
    """Return what tells whether a file was written or replaced."""
    return Stamp(info.st_size, info.st_mtime_ns, info.st_ino, info.st_ctime_ns)


def is_changed(before: Stamp, now: Stamp) -> bool:
    """Return True if another file is there, or its bytes were written.

    That the ctime alone differs may be due to a new name or new rights; that the inode alone does,
    to a file system that makes up such numbers.
    """
    replaced = before.inode != now.inode and before.ctime != now.ctime
    return replaced or before[:2] != now[:2]


class _Ranges:
    """The slots of mapped ranges. `release` takes no lock, since the collector may call it."""

    def __init__(self) -> None:
        self.after_fork()
        self._free: deque[int] = deque()
        self._owners: dict[int, tuple[Path, Watch]] = {}

    def after_fork(self) -> None:
        """Start with a new lock in a forked child."""
        self._lock = Lock()
        table[RUNNING] = 0

    def add(self, start: int, size: int, path: Path, watch: Watch) -> int | None:
        """Have a mapped range guarded: return its slot, or None where there are too many."""
        try:
            slot = self._free.pop()
        except IndexError:
            with self._lock:
                slot = table[USED]
                if slot == _SLOTS:
                    return None
                table[USED] = slot + 1
        self._owners[slot] = path, watch
        place = _find_slot(slot)
        table[place + START] = start
        table[place + END] = start + -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        return slot

    def release(self, slot: int) -> None:
        """Guard a range no longer: before it is unmapped."""
        place = _find_slot(slot)
        table[place + END] = 0
        self._note(slot, *self._owners.pop(slot))
        table[place + COUNT] = table[place + START] = 0
        self._free.append(slot)

    def list_file_watches(self) -> list[FileWatch]:
        """List the watches of files beside slabs."""
        owners = self._owners.copy().values()
        return [watch for _, watch in owners if isinstance(watch, FileWatch)]

    def collect(self) -> None:
        """Tell the watches of files that lost pages."""
        for slot, owner in self._owners.copy().items():  # the collector may change it meanwhile
            self._note(slot, *owner)

    def _note(self, slot: int, path: Path, watch: Watch) -> None:
        place = _find_slot(slot)
        if table[place + COUNT] and watch.lost is None:
            watch.lost = path, table[place + WHERE] - table[place + START]


def _find_slot(slot: int) -> int:
    return FIRST_SLOT + SLOT_WORDS * slot


ranges = _Ranges()
"""The mapped ranges of this process."""
call_after_fork(ranges.after_fork)
