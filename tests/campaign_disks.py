"""Cuts the power of ext4, xfs and btrfs while slabs are written there: `make campaign-disks`.

Each operation of `tests/faults/operations.py` runs on a file system in an image, a random part of
what it wrote is written to the disk meanwhile, and then the power goes: see
`tests/faults/disks.py`. That happens right in front of a system call, at some time, or once the
operation said that it is done; the operation is killed, or goes on while every call fails. Then the
file system is mounted again. There is the old state, the new one, or none, whole; the new one if
the operation was done; and the same command makes the new state and leaves nothing beside it.

It takes root and loop devices. What is mounted, only this program sees.
"""

import itertools
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.campaigns import Campaign, make_parser
from tests.faults.disks import KINDS, Disk, hide_mounts, list_missing
from tests.faults.intercept import KILL, SYSCALLS, Call, need_interception, run_intercepted
from tests.faults.operations import OPERATIONS, OUT, PARALLEL, Scene, World
from tests.faults.straced import run_untraced

from fieldslab.packer import verify

GOAL = (
    "The power goes while slabs are written to ext4, xfs and btrfs: the old slab or the new one is "
    "there and whole, the new one if the command was done, and the same command goes on"
)
MOMENTS = ("in front of a call", "at some time", "once done")
EVERY_PARALLEL = 20
"""One case in so many is of two jobs, which take seconds to start."""


class Ending(Protocol):
    """How an operation ended."""

    @property
    def code(self) -> int | None:
        """The exit code, a negative signal, or something else for one that hung."""

    @property
    def error(self) -> str:
        """What it wrote to stderr."""


@dataclass
class Machine:
    """A disk, sources and slabs that lie elsewhere, and the scenes on the disk."""

    disk: Disk
    world: World
    scenes: dict[tuple[str, int], Scene] = field(default_factory=dict)
    calls: dict[tuple[str, int], int] = field(default_factory=dict)
    seconds: dict[tuple[str, int], float] = field(default_factory=dict)


class Outage:
    """One power cut, and what is written to the disk before it."""

    def __init__(self, disk: Disk, place: Path, rng: random.Random) -> None:
        self.disk, self.place, self.rng = disk, place, rng
        self.way = rng.choice(disk.kind.cuts)
        self.goes_on = rng.random() < 0.4
        self.before = rng.choice((0, 0, 1, 1, 2, 3))
        """How often something is written to the disk before the cut."""
        self.done = False

    def act(self) -> bool:
        """Write a part of it to the disk, or cut the power: whether the operation goes on."""
        if self.before:
            self.before -= 1
            self.disk.write_back(self.place, self.rng)
            return True
        self.cut()
        return self.goes_on

    def cut(self) -> None:
        """Cut the power."""
        self.disk.cut(self.way, self.rng)
        self.done = True


class Cuts:
    """Cuts the power of disks, which are made when a case first needs them."""

    def __init__(
        self,
        folder: Path,
        stack: ExitStack,
        kinds: Iterable[str] = KINDS,
        names: Iterable[str] = OPERATIONS,
        moments: Sequence[str] = MOMENTS,
    ) -> None:
        """Make nothing yet."""
        self.folder, self.stack = folder, stack
        self.kinds, self.names, self.moments = list(kinds), list(names), moments
        self.machines: dict[str, Machine] = {}

    def try_case(self, number: int, rng: random.Random) -> Mapping[str, int]:
        """Cut the power once, and look."""
        kind, moment = rng.choice(self.kinds), rng.choice(self.moments)
        name, jobs = rng.choice(self.names), 1
        if number % EVERY_PARALLEL == EVERY_PARALLEL - 1:
            name, jobs, moment = rng.choice(PARALLEL), 2, rng.choice(MOMENTS[1:])
        machine = self.machines.get(kind) or self._make_machine(kind)
        try:
            scene = self._make_scene(machine, name, jobs)
            ending = self.cut(machine, scene, moment, rng)
        except BaseException:
            del self.machines[kind]  # the next case gets a disk that nothing happened to
            raise
        return {f"{kind}: {moment}, {ending}": 1}

    def _make_machine(self, kind: str) -> Machine:
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        (folder / "world").mkdir()
        world = World(folder / "world")  # its own: plans of parts name the place on the disk
        machine = Machine(self.stack.enter_context(Disk(folder, KINDS[kind])), world)
        self.machines[kind] = machine
        return machine

    def _make_scene(self, machine: Machine, name: str, jobs: int) -> Scene:
        if (name, jobs) not in machine.scenes:
            scene = Scene(machine.world, name, jobs, machine.disk.files)
            scene.reset()
            started = time.monotonic()
            ending = run_untraced(scene.run, self.folder)
            if ending.code != 0:
                raise RuntimeError(f"{name} ended with {ending.code}: {ending.error}")
            machine.seconds[name, jobs] = time.monotonic() - started
            machine.scenes[name, jobs] = scene
        return machine.scenes[name, jobs]

    def cut(self, machine: Machine, scene: Scene, moment: str, rng: random.Random) -> str:
        """Cut the power: how the operation ended. Raises AssertionError with what is wrong."""
        scene.reset()
        machine.disk.sync()
        outage = Outage(machine.disk, scene.place, rng)
        about = f"{scene.name}, {scene.jobs} jobs, {moment}, {outage.way}"
        runs: dict[str, Callable[[Machine, Scene, Outage], Ending]] = {
            "in front of a call": self._run_stopped,
            "at some time": self._run_timed,
            "once done": lambda _machine, scene, _outage: run_untraced(scene.run, self.folder),
        }
        ending = runs[moment](machine, scene, outage)
        if not outage.done:
            outage.cut()
        machine.disk.turn_on(outage.way)
        endings = {0: "done", -signal.SIGKILL: "killed", 3: "error"}
        assert ending.code in endings, f"{about}: ended with {ending.code}: {ending.error}"
        durable = check_durable(scene) if ending.code == 0 else ""
        if problem := durable or scene.look() or scene.run_again() or check_slab(scene):
            raise AssertionError(f"{about}, {endings[ending.code]}: {problem}\n{ending.error}")
        return endings[ending.code]

    def _run_stopped(self, machine: Machine, scene: Scene, outage: Outage) -> Ending:
        """Stop the operation in front of some system calls; the power goes at the last of them."""
        key = scene.name, scene.jobs
        if key not in machine.calls:
            machine.calls[key] = count_calls(scene)
            scene.reset()
            machine.disk.sync()
        count = machine.calls[key]
        stops = {outage.rng.randrange(count) for _ in range(outage.before + 1)}
        outage.before = len(stops) - 1
        numbers = itertools.count()

        def decide(_call: Call) -> int | None:
            return None if next(numbers) not in stops or outage.act() else KILL

        return run_intercepted(scene.run, SYSCALLS, decide)

    def _run_timed(self, machine: Machine, scene: Scene, outage: Outage) -> Ending:
        """Let the operation run on, and cut the power at some time."""
        seconds = machine.seconds[scene.name, scene.jobs]
        times = sorted(outage.rng.uniform(0, 1.1) for _ in range(outage.before + 1))

        def meanwhile(process: int) -> None:
            waited = 0.0
            for moment in times:
                time.sleep((moment - waited) * seconds)
                waited = moment
                if not outage.act():
                    os.kill(process, signal.SIGKILL)

        return run_untraced(scene.run, self.folder, meanwhile)


def count_calls(scene: Scene) -> int:
    """How many system calls an operation makes that others can notice."""
    numbers = itertools.count()
    scene.reset()
    ending = run_intercepted(scene.run, SYSCALLS, lambda _call: next(numbers) and None)
    if ending.code != 0:
        raise RuntimeError(f"{scene.name} ended with {ending.code}: {ending.error}")
    return next(numbers)


def check_durable(scene: Scene) -> str:
    """What is wrong with the new state, where the power went after an operation was done."""
    if scene.operation.then is None:
        return scene.check_done()
    scene.operation.then(scene.world, scene.place)
    return "" if scene.look() == "" and (scene.place / OUT).exists() else "it was not durable"


def check_slab(scene: Scene) -> str:
    """What `verify` finds in the slab."""
    out = scene.place / OUT
    return str(verify(out)) if out.exists() and not verify(out).ok else ""


def main(arguments: Any = None) -> int:
    """Run the campaign; the exit status tells whether anything was found."""
    need_interception()
    parsed = make_parser(__doc__).parse_args(arguments)
    if missing := list_missing(KINDS):
        sys.exit(f"This campaign needs {', '.join(missing)}")
    hide_mounts()
    campaign = Campaign("disks", GOAL, parsed)
    with tempfile.TemporaryDirectory(prefix="fieldslab-disks-") as folder, ExitStack() as stack:
        cuts = Cuts(Path(folder).resolve(), stack)
        return campaign.run(cuts.try_case)


if __name__ == "__main__":
    sys.exit(main())
