"""Kills parts of a plan, and finish, at steps of theirs. A program, run by test_parts.py.

    python killing_parts.py FOLDER STRIDE

A process packs two parts and finishes; it kills itself in front of its k-th step, a system call
that makes, names, syncs or removes something. Another one then does the same and is not killed.
One line of JSON for each k tells whether the slab was right, and what was left beside it.
"""

import json
import os
import shutil
import signal
import sys
from functools import partial
from pathlib import Path
from typing import cast

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.packer.killing import OPTIONS, at_step, content, is_killed, write_source

from fieldslab.packer import pack
from fieldslab.packer.pack_options import PackOptions
from fieldslab.packer.parts.packing import finish_parts, pack_part
from fieldslab.packer.parts.part_number import parse_part
from fieldslab.packer.parts.plan_file import write_plan_file


def main(folder: Path, stride: int) -> None:
    """Kill at every `stride`-th step until there are no more steps."""
    source = write_source(folder / "rows.parquet", 1)
    place, plan = folder / "place", folder / "x.plan"
    out = place / "x.slab"
    expected = content(pack(source, folder / "expected.slab", **OPTIONS).path)
    write_plan_file([source], out, plan, cast(PackOptions, OPTIONS))

    def pack_all() -> None:
        for part in ("1/2", "2/2"):
            pack_part(plan, parse_part(part))
        finish_parts(plan)

    def die(name: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def pack_until(step: int) -> None:
        at_step(step, die)
        pack_all()

    killed = True
    for step in range(1, 10_000, stride):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        killed = is_killed(partial(pack_until, step))
        pack_all()
        right, left = content(out) == expected, sorted(os.listdir(place))
        line = {"step": step, "killed": killed, "right": right, "left": left}
        sys.stdout.write(json.dumps(line) + "\n")
        if not killed:
            break


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
