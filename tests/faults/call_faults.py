"""What may happen to each system call of whatever writes slabs, and what is there afterwards.

Each operation runs once, and its calls are listed. A fault is about one of them, and finds it again
by its name, by the files it is about, and by how many such calls were before. What is random in the
names of files, and which thread or process makes a call, makes no difference.
"""

import errno
import gc
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from tests.faults.intercept import KILL, SYSCALLS, Call, Ending, run_intercepted
from tests.faults.operations import Scene, World

ELSEWHERE = "elsewhere"
"""In place of the names of files that belong to no operation."""
EVERY_PARALLEL = 100
"""One case in so many is of two jobs, which take seconds to start."""
_MOST_ELSEWHERE = 40
"""Worker processes import modules with thousands of calls: so many of each name are tried."""


class Calls(msgspec.Struct, frozen=True):
    """How often an operation makes a call about some files."""

    operation: str
    jobs: int
    name: str
    files: str
    count: int

    def list_numbers(self) -> range:
        """The calls that faults are about, from 1; of very many elsewhere, some."""
        many = self.jobs > 1 and self.files == ELSEWHERE
        step = -(-self.count // _MOST_ELSEWHERE) if many else 1
        return range(1, self.count + 1, step)


class Fault(NamedTuple):
    """The `number`-th call of its kind in an operation, and what happens instead of it."""

    calls: Calls
    number: int
    action: str
    """The name of an errno, or "KILL"."""

    @property
    def place(self) -> tuple[str, int, str, str]:
        """What it has in common with faults of other shards and fields, and with earlier calls."""
        files = re.sub(r"\d\d-[a-z.]+\.npy", "ARRAY.npy", re.sub(r"\d{5}", "N", self.calls.files))
        return self.calls.operation, self.calls.jobs, self.calls.name, files

    @property
    def kind(self) -> tuple[str, ...]:
        """Its place and what happens there."""
        return (*map(str, self.place), self.action)


def name_files(call: Call, folder: Path) -> str:
    """Name the files of a call below a folder, without what is random in their names."""
    start = f"{folder}/"
    if not any(path.startswith(start) for path in call.paths):
        return ELSEWHERE
    text = " ".join(path.removeprefix(start) for path in call.paths)
    return re.sub(r"\b([0-9a-f]{16}|[0-9a-f]{8})\b|(?<=\.)\d+(?=\.new\b)", "*", text)


def list_faults(
    calls: Iterable[Calls], list_actions: Callable[[Calls], Collection[str]], seed: int
) -> list[Fault]:
    """List all faults: first one of each kind, then a second one of each, and so on.

    Those of one kind take turns, too: each place comes once before it comes with another errno. One
    in `EVERY_PARALLEL` is of two jobs, as long as there are others.
    """
    faults = [
        Fault(each, number, action)
        for each in calls
        for action in list_actions(each)
        for number in each.list_numbers()
    ]
    random.Random(seed).shuffle(faults)
    before = Counter[tuple[Any, ...]]()
    turns = {}
    for fault in faults:
        turns[fault] = before[fault.kind], before[fault.place]
        before.update([fault.kind, fault.place])
    faults.sort(key=turns.__getitem__)
    single = [fault for fault in faults if fault.calls.jobs == 1]
    parallel = [fault for fault in faults if fault.calls.jobs > 1]
    mixed = []
    while single and parallel:
        mixed += [*single[: EVERY_PARALLEL - 1], parallel.pop(0)]
        del single[: EVERY_PARALLEL - 1]
    return mixed + single + parallel


class Stage:
    """A folder in which operations take place, each prepared once."""

    def __init__(self, folder: Path) -> None:
        """Prepare nothing yet; the folder is made."""
        folder.mkdir(parents=True)
        self.folder = folder.resolve()
        self._scenes: dict[tuple[str, int], Scene] = {}

    @cached_property
    def _world(self) -> World:
        return World(self.folder)

    def prepare(self, operation: str, jobs: int) -> Scene:
        """The scene of an operation, as it is before."""
        key = operation, jobs
        if key not in self._scenes:
            self._scenes[key] = Scene(self._world, operation, jobs)
            gc.freeze()  # children then copy less memory
        self._scenes[key].reset()
        return self._scenes[key]

    def list_calls(self, operation: str, jobs: int) -> list[Calls]:
        """Carry an operation out and list its calls. Raises RuntimeError if it failed."""
        counts = Counter[tuple[str, str]]()

        def note(call: Call) -> None:
            counts[call.name, name_files(call, self.folder)] += 1

        ending = run_intercepted(self.prepare(operation, jobs).run, SYSCALLS, note)
        if ending.code != 0:
            raise RuntimeError(f"{operation} ended with {ending.code}: {ending.error}")
        return [Calls(operation, jobs, *key, count) for key, count in sorted(counts.items())]

    def try_fault(self, fault: Fault) -> str:
        """Carry an operation out with a fault: how it ended.

        Raises
        ------
        AssertionError
            With what is wrong with the ending, with what is there, or after the next run.
        """
        action = KILL if fault.action == "KILL" else getattr(errno, fault.action)
        seen = 0

        def decide(call: Call) -> int | None:
            nonlocal seen
            if name_files(call, self.folder) != fault.calls.files:
                return None
            seen += 1
            return action if seen == fault.number else None

        scene = self.prepare(fault.calls.operation, fault.calls.jobs)
        ending = run_intercepted(scene.run, [fault.calls.name], decide)
        outcome = _judge(fault, ending)
        problem = scene.check_done() if ending.code == 0 else ""
        if problem := problem or scene.look() or scene.run_again():
            raise AssertionError(f"{fault}: {outcome}, {ending.error}: {problem}")
        return outcome if seen >= fault.number else "not reached"


def _judge(fault: Fault, ending: Ending) -> str:
    """Name how an operation ended. Raises AssertionError if it may not end like that."""
    outcomes = {0: "done"}
    if fault.action == "KILL":
        outcomes[-9] = "killed"
    else:
        reason = os.strerror(getattr(errno, fault.action))
        named = reason in ending.error
        outcomes[3] = "error" if named else "error that names another reason"
    if fault.calls.jobs > 1:  # of two processes, the other one says that one was killed
        outcomes.setdefault(3, "error")
    assert ending.code in outcomes, f"{fault}: ended with {ending.code}: {ending.error}"
    assert ending.all_ended, f"{fault}: a process goes on: {ending.error}"
    return outcomes[ending.code]
