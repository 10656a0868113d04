"""Cuts the power while slabs are written: loses, tears and reorders writes: `make campaign-power`.

Each operation of `tests/faults/operations.py` runs under strace once, which logs every write, sync
and name. A case takes the log up to some step and makes the files that a file system may have
after the power went there: see `tests/faults/write_log.py`. There is then the old state, the new
one, or none, whole; and the same command makes the new state and leaves nothing beside it.

No disk loses its power here: `tests/campaign_disks.py` cuts off ext4, xfs and btrfs.
"""

import random
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.campaigns import Campaign, make_parser, say
from tests.faults.operations import OPERATIONS, Scene, World
from tests.faults.straced import need_strace, run_straced
from tests.faults.write_log import OPTIONS, Recorder, Step, Tree, make_crash

GOAL = (
    "The power goes while slabs are written, and writes that were not synced are lost, torn or "
    "reordered: the old slab or the new one is there and whole, and the same command goes on"
)


class Outages:
    """Scenes with the steps that each took."""

    def __init__(self, folder: Path, names: Any = OPERATIONS) -> None:
        """Carry each operation out once and read its log."""
        world = World(folder)
        self.scenes: dict[str, tuple[Scene, Tree, list[Step]]] = {}
        for name in names:
            scene = Scene(world, name)
            scene.reset()
            before = Tree.read(scene.place)
            ending = run_straced(scene.run, folder, OPTIONS)
            if ending.code != 0:
                raise RuntimeError(f"{name} ended with {ending.code}: {ending.error}")
            recorder = Recorder(before, scene.place)
            steps = recorder.read(ending.log.read_text(errors="replace"))
            _compare(recorder.tree, Tree.read(scene.place), name)
            self.scenes[name] = scene, before, steps

    def try_case(self, _number: int, rng: random.Random) -> Mapping[str, int]:
        """Cut the power once, and look."""
        name = rng.choice(list(self.scenes))
        scene, before, steps = self.scenes[name]
        way = rng.choice(("journal", "loose"))
        stop = rng.randrange(len(steps) + 1)
        crash = make_crash(before, steps[:stop], rng, way)
        shutil.rmtree(scene.place)
        crash.save(scene.place)
        if problem := scene.look() or scene.run_again():
            raise AssertionError(f"{name}, {way}, behind step {stop}: {problem}")
        return {f"{name}, {way}": 1}


def _compare(recorded: Tree, seen: Tree, name: str) -> None:
    """Raise RuntimeError unless the log tells all that is on the disk."""
    missing = recorded.names.keys() ^ seen.names.keys()
    other = [
        path
        for path, number in seen.names.items()
        if path in recorded.names and recorded.files[recorded.names[path]] != seen.files[number]
    ]
    if missing or other or recorded.folders != seen.folders:
        raise RuntimeError(f"{name}: the log does not tell all: {missing} {other}")


def main(arguments: Any = None) -> int:
    """Run the campaign; the exit status tells whether anything was found."""
    need_strace()
    parsed = make_parser(__doc__).parse_args(arguments)
    campaign = Campaign("power", GOAL, parsed)
    with tempfile.TemporaryDirectory(prefix="fieldslab-power-") as folder:
        outages = Outages(Path(folder).resolve())
        say(
            ", ".join(
                f"{name}: {len(steps)} steps" for name, (_, _, steps) in outages.scenes.items()
            )
        )
        return campaign.run(outages.try_case)


if __name__ == "__main__":
    sys.exit(main())
