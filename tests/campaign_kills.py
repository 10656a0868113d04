"""Kills whatever writes slabs at every system call: `make campaign-kills`.

Each operation of `tests/faults/operations.py` runs under strace once, which tells its system calls.
Then it runs again and again, and is killed in front of one of them, in turns, in an order that the
seed decides. What is there then is the old state, the new one, or none; nothing half-written looks
whole; the same command run again makes the new state and leaves nothing beside it.

With two jobs, the packer or a worker is killed, and what is left must end by itself. Calls that
nothing outside the process can see, such as `futex`, are left out.
"""

import random
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.campaigns import Campaign, make_parser, say
from tests.faults.operations import OPERATIONS, PARALLEL, Scene, World
from tests.faults.straced import list_visible_calls, need_strace, run_straced

GOAL = (
    "Whatever writes slabs is killed in front of every system call: the old slab or the new one is "
    "there, nothing half-written looks whole, and the same command goes on and cleans up"
)
EVERY_PARALLEL = 40
"""One case in so many is of two jobs, which take seconds to start."""


@dataclass(frozen=True)
class Kill:
    """The system call in front of which an operation dies."""

    operation: str
    call: str
    number: int
    jobs: int = 1


class Kills:
    """All cases, and the scenes in which they take place."""

    def __init__(self, folder: Path, seed: int) -> None:
        """Carry each operation out once and list its calls."""
        self.folder = folder
        self.world = World(folder)
        self.scenes = {name: Scene(self.world, name) for name in OPERATIONS}
        self.kills: list[Kill] = []
        for name, scene in self.scenes.items():
            scene.reset()
            calls = list_visible_calls(run_straced(scene.run, folder))
            distinct = {(call.name, call.number) for call in calls}
            self.kills += [Kill(name, call, number) for call, number in sorted(distinct)]
        random.Random(seed).shuffle(self.kills)

    @cache  # noqa: B019 - lives as long as the program
    def _parallel(self, name: str) -> tuple[Scene, list[Kill]]:
        scene = Scene(self.world, name, jobs=2)
        scene.reset()
        calls = list_visible_calls(run_straced(scene.run, self.folder))
        kills = {Kill(name, call.name, call.number, 2) for call in calls}
        return scene, sorted(kills, key=lambda kill: (kill.call, kill.number))

    def try_case(self, number: int, rng: random.Random) -> Mapping[str, int]:
        """Kill once, and look."""
        if number % EVERY_PARALLEL == EVERY_PARALLEL - 1:
            scene, kills = self._parallel(rng.choice(PARALLEL))
            kill = rng.choice(kills)
        else:
            kill = self.kills[number % len(self.kills)]
            scene = self.scenes[kill.operation]
        return {f"{kill.operation}, {kill.jobs} jobs: {self.kill(scene, kill)}": 1}

    def kill(self, scene: Scene, kill: Kill) -> str:
        """Carry out a kill: how the operation ended. Raises AssertionError with what is wrong."""
        scene.reset()
        inject = f"inject={kill.call}:signal=KILL:when={kill.number}"
        ending = run_straced(scene.run, self.folder, ["-e", f"trace={kill.call}", "-e", inject])
        endings = {0: "done", -9: "killed", 3: "error"}
        # One job fails only if it is killed; of two, the other process says so.
        allowed = (0, -9) if kill.jobs == 1 else (0, -9, 3)
        assert ending.code in allowed, f"{kill}: ended with {ending.code}: {ending.error}"
        if problem := scene.look() or scene.run_again():
            raise AssertionError(f"{kill}: {problem}")
        return endings[ending.code]


def main(arguments: Any = None) -> int:
    """Run the campaign; the exit status tells whether anything was found."""
    need_strace()
    parsed = make_parser(__doc__).parse_args(arguments)
    campaign = Campaign("kills", GOAL, parsed)
    with tempfile.TemporaryDirectory(prefix="fieldslab-kills-") as folder:
        kills = Kills(Path(folder).resolve(), parsed.seed)
        say(f"{len(kills.kills)} system calls")
        return campaign.run(kills.try_case)


if __name__ == "__main__":
    sys.exit(main())
