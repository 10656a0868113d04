"""Fails system calls of whatever writes slabs, one at a time: `make campaign-errnos`.

Each operation of `tests/faults/operations.py` runs under strace once, which tells the system calls
that touch its files. Then it runs again and again, and one of them fails with one of the errnos
that it can have, in an order that the seed decides; some cases are of two jobs. The operation ends
with a named error, or is done all the same; there is then the old state, the new one, or none; and
the same command run again makes the new state and leaves nothing beside it.
"""

import errno
import os
import random
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.campaigns import Campaign, make_parser, say
from tests.faults.operations import OPERATIONS, PARALLEL, Scene, World
from tests.faults.straced import Call, list_visible_calls, need_strace, run_straced

GOAL = (
    "Every system call of whatever writes slabs fails with every errno that it can have, with one "
    "job and with two: the error is a named one, nothing half-written looks whole, and the same "
    "command succeeds once the fault is gone"
)
READ = ("EIO", "ESTALE", "EINTR")
WRITE = ("ENOSPC", "EDQUOT", "EIO", "EFBIG", "EINTR")
NAME = ("EACCES", "EROFS", "ENOSPC", "EDQUOT", "EIO", "ESTALE")
ERRNOS = {
    "openat": ("EACCES", "EMFILE", "ENFILE", "EIO", "ESTALE", "ENOSPC", "EINTR", "ENOMEM"),
    "p?read(v|v2|64)?": READ,
    "p?write(v|v2|64)?": WRITE,
    "f(data)?sync": ("EIO", "ENOSPC", "EDQUOT", "EINTR"),
    "rename(at|at2)?|mkdir(at)?|(un)?link(at)?|rmdir|symlink(at)?": (*NAME, "EBUSY", "EMLINK"),
    "newfstatat|statx|stat|fstat|lstat|lseek": ("EIO", "ESTALE", "EACCES"),
    "getdents64": ("EIO", "ESTALE"),
    "ftruncate|fallocate|fchmod|fchmodat|utimensat": ("EIO", "ENOSPC", "EPERM", "EDQUOT"),
    "flock|fcntl": ("ENOLCK", "EINTR"),
    "close": ("EIO", "EDQUOT"),
    "copy_file_range|sendfile|statfs|fstatfs": ("EIO", "ENOSYS"),
}
"""What system calls may fail with, by a pattern of their names."""
EVERY_PARALLEL = 40


@dataclass(frozen=True)
class Fault:
    """A system call of an operation, and the errno that it gets instead of being carried out."""

    operation: str
    call: str
    number: int
    errno: str
    jobs: int = 1


def list_faults(name: str, jobs: int, calls: list[Call], folder: Path) -> list[Fault]:
    """List what may happen to the calls that touch a folder."""
    touching = {(call.name, call.number) for call in calls if str(folder) in call.text}
    return [
        Fault(name, call, number, error, jobs)
        for call, number in sorted(touching)
        for pattern, errnos in ERRNOS.items()
        if re.fullmatch(pattern, call)
        for error in errnos
    ]


class Faults:
    """All cases, and the scenes in which they take place."""

    def __init__(self, folder: Path, seed: int) -> None:
        """Carry each operation out once and list its calls."""
        self.folder = folder
        self.world = World(folder)
        self.scenes = {name: Scene(self.world, name) for name in OPERATIONS}
        self.faults: list[Fault] = []
        for scene in self.scenes.values():
            self.faults += self._list(scene, 1)
        random.Random(seed).shuffle(self.faults)

    def _list(self, scene: Scene, jobs: int) -> list[Fault]:
        scene.reset()
        calls = list_visible_calls(run_straced(scene.run, self.folder))
        return list_faults(scene.name, jobs, calls, self.folder)

    @cache  # noqa: B019 - lives as long as the program
    def _parallel(self, name: str) -> tuple[Scene, list[Fault]]:
        scene = Scene(self.world, name, jobs=2)
        return scene, self._list(scene, 2)

    def try_case(self, number: int, rng: random.Random) -> Mapping[str, int]:
        """Fail one call, and look."""
        if number % EVERY_PARALLEL == EVERY_PARALLEL - 1:
            scene, faults = self._parallel(rng.choice(PARALLEL))
            fault = rng.choice(faults)
        else:
            fault = self.faults[number % len(self.faults)]
            scene = self.scenes[fault.operation]
        return {f"{fault.operation}, {fault.jobs} jobs: {self.fail(scene, fault)}": 1}

    def fail(self, scene: Scene, fault: Fault) -> str:
        """Carry out a fault: how the operation ended. Raises AssertionError with what is wrong."""
        scene.reset()
        inject = f"inject={fault.call}:error={fault.errno}:when={fault.number}"
        ending = run_straced(scene.run, self.folder, ["-e", f"trace={fault.call}", "-e", inject])
        assert ending.code in (0, 3), f"{fault}: ended with {ending.code}: {ending.error}"
        if ending.code == 0 and (problem := scene.check_done()):
            raise AssertionError(f"{fault}: no error, but {problem}")
        if problem := scene.look() or scene.run_again():
            raise AssertionError(f"{fault}: {ending.error}: {problem}")
        if ending.code == 0:
            return "done"
        reason = os.strerror(getattr(errno, fault.errno))
        return "error" if reason in ending.error else "error that names another reason"


def main(arguments: Any = None) -> int:
    """Run the campaign; the exit status tells whether anything was found."""
    need_strace()
    parsed = make_parser(__doc__).parse_args(arguments)
    campaign = Campaign("errnos", GOAL, parsed)
    with tempfile.TemporaryDirectory(prefix="fieldslab-errnos-") as folder:
        faults = Faults(Path(folder).resolve(), parsed.seed)
        say(f"{len(faults.faults)} faults")
        return campaign.run(faults.try_case)


if __name__ == "__main__":
    sys.exit(main())
