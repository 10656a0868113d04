"""What a program wrote, in order, and what a power cut may leave of it.

`record` reads a log of strace. `Crash` makes the files that a file system may have after the power
went, in one of two ways. A *journal*, as of ext4 and xfs, keeps names in their order: what came
before any `fsync` is there, of what came after it a first part. *Loose* is all that POSIX promises:
a name is certain once its directory was synced, and any other may be lost. In both, data that was
not synced is lost, torn or there, each write by itself.
"""

import os
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

CALLS = (
    "openat,write,pwrite64,pwritev,pwritev2,writev,fsync,fdatasync,rename,renameat,renameat2,mkdir,"
    "mkdirat,unlink,unlinkat,rmdir,link,linkat,ftruncate,fallocate,copy_file_range,sendfile,"
    "symlink,symlinkat"
)
OPTIONS = ("-xx", "-s", "10000000", "-e", f"trace={CALLS}")
SECTOR = 512

_LINE = re.compile(r"^(\d+) +(.*)$")
_RESUMED = re.compile(r"^<\.\.\. \w+ resumed>(.*)$")
_RETURNED = re.compile(r"^(\w+)\((.*)\) += (-?\d+)(?:<([^>]*)>)?")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_DESCRIPTOR = re.compile(r"(?:AT_FDCWD|\d+)<((?:\\x[0-9a-f]{2})*)>")


@dataclass(frozen=True)
class Step:
    """One step: its kind, the paths it names, the file it changes, and its data."""

    kind: str
    paths: tuple[str, ...] = ()
    file: int = -1
    offset: int = 0
    data: bytes = b""


@dataclass
class Tree:
    """Directories, names of files, and their contents by number."""

    folders: set[str] = field(default_factory=set)
    names: dict[str, int] = field(default_factory=dict)
    files: dict[int, bytearray] = field(default_factory=dict)

    @classmethod
    def read(cls, place: Path) -> "Tree":
        """Read what is below a folder; files of one inode are one file."""
        tree = cls({str(place)})
        for path in sorted(place.rglob("*")):
            if path.is_dir():
                tree.folders.add(str(path))
            else:
                number = path.stat().st_ino
                tree.names[str(path)] = number
                tree.files[number] = bytearray(path.read_bytes())
        return tree

    def copy(self) -> "Tree":
        """Make one that can be changed."""
        files = {number: bytearray(data) for number, data in self.files.items()}
        return Tree(set(self.folders), dict(self.names), files)

    def apply(self, step: Step) -> None:
        """Carry out a step on names; one that cannot be, since others were lost, is left out."""
        known = {*self.folders, *self.names}
        first, *others = step.paths
        if any(str(PurePosixPath(path).parent) not in self.folders for path in step.paths):
            return
        if step.kind == "create":
            if first not in known:
                self.names[first] = step.file
                self.files.setdefault(step.file, bytearray(step.data))
        elif step.kind == "mkdir":
            self.folders.add(first)
        elif step.kind == "unlink":
            self.names.pop(first, None)
        elif step.kind == "rmdir":  # it was empty: what lost steps left in it goes with it
            gone = {path for path in known if path == first or path.startswith(first + "/")}
            self.folders -= gone
            self.names = {path: file for path, file in self.names.items() if path not in gone}
        elif first in known and step.kind == "link":
            if others[0] not in known:
                self.names[others[0]] = self.names[first]
        elif first in known and step.kind == "rename":
            self._move(first, others[0])
        elif first in known and step.kind == "exchange" and others[0] in known:
            aside = others[0] + "\0"
            self._move(others[0], aside)
            self._move(first, others[0])
            self._move(aside, first)

    def _move(self, old: str, new: str) -> None:
        if old in self.names:
            self.names[new] = self.names.pop(old)
            return
        moved = {path for path in self.folders if path == old or path.startswith(old + "/")}
        self.folders = (self.folders - moved) | {new + path[len(old) :] for path in moved}
        for path in [path for path in self.names if path.startswith(old + "/")]:
            self.names[new + path[len(old) :]] = self.names.pop(path)

    def write(self, step: Step, cut: int | None = None) -> None:
        """Carry out a step on data, or the first `cut` bytes of it."""
        data = self.files.setdefault(step.file, bytearray())
        if step.kind == "truncate":
            del data[step.offset :]
            data.extend(bytes(step.offset - len(data)))
            return
        written = step.data[:cut]
        if written:
            data.extend(bytes(max(0, step.offset - len(data))))
            data[step.offset : step.offset + len(written)] = written

    def save(self, place: Path) -> None:
        """Write all of it to disk, where `place` is an empty folder."""
        for folder in sorted(self.folders, key=len):
            os.makedirs(folder, exist_ok=True)
        written: dict[int, str] = {}
        for path, number in self.names.items():
            if number in written:
                os.link(written[number], path)
                continue
            written[number] = path
            with open(path, "wb") as file:
                file.write(self.files[number])


def decode(text: str) -> str:
    """Decode a string that strace wrote in hexadecimal."""
    return os.fsdecode(bytes.fromhex(text.replace("\\x", "")))


def list_lines(log: str) -> Iterator[str]:
    """Yield calls as whole lines, in the order in which they returned."""
    unfinished: dict[str, str] = {}
    for line in log.splitlines():
        match = _LINE.match(line)
        if not match:
            continue
        process, text = match.groups()
        if text.endswith("<unfinished ...>"):
            unfinished[process] = text.removesuffix("<unfinished ...>").rstrip()
        elif resumed := _RESUMED.match(text):
            yield unfinished.pop(process, "") + resumed[1].lstrip()
        else:
            yield text


class Recorder:
    """Turns lines of strace into steps below one folder."""

    def __init__(self, before: Tree, place: Path) -> None:
        self.place = str(place)
        self.tree = before.copy()
        self.steps: list[Step] = []
        self.offsets: dict[str, int] = {}
        self.next = max(self.tree.files, default=0) + 1

    def read(self, log: str) -> list[Step]:
        """Return the steps of a log. Raises ValueError for a call that it does not know."""
        for line in list_lines(log):
            match = _RETURNED.match(line)
            if match and int(match[3]) >= 0 and match[1] in CALLS.split(","):
                self._read_call(match[1], match[2], int(match[3]), match[4])
        return self.steps

    def _is_inside(self, path: str) -> bool:
        return path == self.place or path.startswith(self.place + "/")

    def _add(self, kind: str, *paths: str, **more: int | bytes) -> None:
        step = Step(kind, paths, **more)  # type: ignore[arg-type]
        self.steps.append(step)
        if kind in ("write", "truncate"):
            self.tree.write(step)
        elif kind not in ("sync file", "sync folder"):
            self.tree.apply(step)

    def _read_call(self, name: str, text: str, result: int, opened: str | None) -> None:
        paths = _find_paths(text)
        descriptor = _DESCRIPTOR.match(text)
        held = decode(descriptor[1]) if descriptor else ""
        if name == "openat":
            self._open(text, decode(opened or ""), result)
        elif name in ("fsync", "fdatasync"):
            if held in self.tree.folders:
                self._add("sync folder", held)
            elif held in self.tree.names:
                self._add("sync file", held, file=self.tree.names[held])
        elif name.startswith(("write", "pwrite")) or name == "ftruncate":
            if self._is_inside(held):
                self._write(name, text, held, result)
        elif name in ("fallocate", "copy_file_range", "sendfile", "symlink", "symlinkat"):
            if any(map(self._is_inside, (held, *paths))):
                raise ValueError(f"a call that this does not know: {name}({text[:200]}")
        elif any(map(self._is_inside, paths)):
            kind = re.sub("at2?$", "", name)
            if kind == "rename" and "RENAME_EXCHANGE" in text:
                kind = "exchange"
            if kind == "unlink" and "AT_REMOVEDIR" in text:
                kind = "rmdir"
            if kind == "link" and not self._is_inside(paths[0]):  # it was on the disk before
                data = Path(paths[0]).read_bytes()
                self._add("create", paths[1], file=self.next, data=data)
                self.next += 1
            else:
                self._add(kind, *paths)

    def _open(self, text: str, path: str, descriptor: int) -> None:
        if not self._is_inside(path):
            return
        self.offsets[str(descriptor)] = 0
        if "O_CREAT" in text and path not in self.tree.names:
            self._add("create", path, file=self.next)
            self.next += 1
        if "O_TRUNC" in text:
            self._add("truncate", path, file=self.tree.names[path], offset=0)
        if "O_APPEND" in text:
            self.offsets[str(descriptor)] = len(self.tree.files[self.tree.names[path]])

    def _write(self, name: str, text: str, path: str, result: int) -> None:
        if path not in self.tree.names:  # removed already
            return
        number = self.tree.names[path]
        if name == "ftruncate":
            self._add("truncate", path, file=number, offset=int(text.rpartition(",")[2]))
            return
        data = b"".join(bytes.fromhex(part.replace("\\x", "")) for part in _STRING.findall(text))[
            :result
        ]
        descriptor = text.partition("<")[0]
        if name.startswith("pwrite"):
            offset = int(re.findall(r", (\d+)", text)[-1])
        else:
            offset = self.offsets[descriptor]
            self.offsets[descriptor] += result
        self._add("write", path, file=number, offset=offset, data=data)


def _find_paths(text: str) -> tuple[str, ...]:
    """Find the paths that a call names, absolute."""
    paths = []
    folder = ""
    for match in re.finditer(f"{_DESCRIPTOR.pattern}|{_STRING.pattern}", text):
        if match[1] is not None:
            folder = decode(match[1])
        else:
            path = decode(match[2])
            paths.append(path if path.startswith("/") else f"{folder}/{path}")
    return tuple(paths)


def make_crash(before: Tree, steps: list[Step], rng: random.Random, way: str) -> Tree:
    """Make what is there after a power cut behind the given steps: `way` is journal or loose."""
    tree = before.copy()
    synced = _find_synced_names(steps, rng, way)
    last_sync = {step.file: i for i, step in enumerate(steps) if step.kind == "sync file"}
    for index, step in enumerate(steps):
        if step.kind in ("write", "truncate"):
            if index < last_sync.get(step.file, -1) or rng.randrange(2):
                tree.write(step)
            elif step.data and rng.randrange(2):
                tree.write(step, rng.randrange(len(step.data)) // SECTOR * SECTOR)
        elif step.kind == "create":
            tree.files.setdefault(step.file, bytearray(step.data))
            if synced(index):
                tree.apply(step)
        elif not step.kind.startswith("sync") and synced(index):
            tree.apply(step)
    return tree


def _find_synced_names(steps: list[Step], rng: random.Random, way: str) -> Callable[[int], bool]:
    """Choose which steps on names are on the disk."""
    names = [i for i, step in enumerate(steps) if step.kind in _NAMES]
    if way == "journal":
        committed = max((i for i, step in enumerate(steps) if "sync" in step.kind), default=-1)
        later = [i for i in names if i > committed]
        stop = rng.choice([*later, len(steps)])
        return lambda index: index <= committed or index < stop
    certain: set[int] = set()
    needed: set[str] = set()
    synced: set[str] = set()
    for index in range(len(steps) - 1, -1, -1):
        step = steps[index]
        if step.kind == "sync folder":
            synced.add(step.paths[0])
        if step.kind not in _NAMES:
            continue
        places = step.paths if step.kind == "exchange" else step.paths[-1:]
        made = places if step.kind in ("create", "mkdir", "link", "rename", "exchange") else ()
        if (
            any(str(PurePosixPath(path).parent) in synced for path in places)
            or not needed.isdisjoint(made)  # what is certain later is there under its first name
            or rng.randrange(2)
        ):
            certain.add(index)
            needed.update(step.paths)
            needed.update(str(up) for path in step.paths for up in PurePosixPath(path).parents)
    return certain.__contains__


_NAMES = ("create", "mkdir", "unlink", "rmdir", "link", "rename", "exchange")
