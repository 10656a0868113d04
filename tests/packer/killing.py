"""Kills a packer at every step, and looks what is left. A program, run by test_commit.py.

    python killing.py FOLDER VARIANT

Each packer is a process of its own that kills itself in front of its k-th step: a system call
that makes, names, syncs or removes something. The program then looks at what is there and runs
the same pack again. One line of JSON for each k tells what it saw. Packers are forked, so that
pyarrow is imported once only.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fieldslab.packer.outputs import commit
from fieldslab.packer.pack_source import pack
from fieldslab.schemas.errors import FieldslabError, OutputExists
from fieldslab.schemas.folder import load_manifest

STEPS = ("fsync", "rename", "replace", "link", "mkdir", "unlink", "rmdir")
OPTIONS: dict[str, Any] = {"shard_size": 1000, "nulls": ["weight=mask"]}
GROUP = 50
ROWS = 3 * GROUP


def write_source(path: Path, seed: int) -> Path:
    """A Parquet file that becomes three shards; nulls in one of them, categories in a table."""
    rng = np.random.default_rng(seed)
    weight = rng.random(ROWS).astype("f4").tolist()
    weight[GROUP + 3] = None
    columns = {
        "text": [f"row {i} of {seed}" for i in range(ROWS)],
        "weight": pa.array(weight, pa.float32()),
        "long": pa.array([f"{i % 70}" * 700 for i in range(ROWS)]).dictionary_encode(),
    }
    pq.write_table(pa.table(columns), path, row_group_size=GROUP)
    return path


def content(slab: Path) -> dict[str, Any]:
    """Everything in a slab that two packs of the same source share."""
    manifest = load_manifest(slab)
    files = {str(p.relative_to(slab)): p.read_bytes() for p in slab.rglob("*") if p.is_file()}
    return files | {"manifest.json": manifest.id}


def at_step(wanted: int | None, act: Callable[[str], None]) -> None:
    """From now on, call `act` with the name of the step in front of the `wanted`-th one, or all."""
    count = 0

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if wanted in (None, count):
                act(name)
            return real(*args, **kwargs)

        return step

    for name in STEPS:
        setattr(os, name, counted(name, getattr(os, name)))
    commit.swap_directories = counted("swap", commit.swap_directories)  # type: ignore[attr-defined]


def is_killed(work: Callable[[], Any]) -> bool:
    """Whether a forked process was killed before `work` was done."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), "see the traceback on stderr"
    return status != 0


class Scene:
    """A folder with a source, an output, and what the output may be."""

    def __init__(self, folder: Path, variant: str) -> None:
        self.folder = folder
        self.force = variant.startswith("replace")
        self.source = write_source(folder / "new.parquet", 1)
        self.place = folder / "place"
        self.out = self.place / "x.slab"
        self.old = folder / "old.slab"
        pack(write_source(folder / "old.parquet", 2), self.old, **OPTIONS)
        pack(self.source, folder / "new.slab", **OPTIONS)
        if "without swap" in variant:
            commit.swap_directories = lambda first, second: False  # type: ignore[attr-defined]
        self.known = {name: content(folder / f"{name}.slab") for name in ("old", "new")}

    def reset(self) -> None:
        """Nothing but the old slab, where one is to be replaced."""
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()
        if self.force:
            shutil.copytree(self.old, self.out)

    def pack(self, force: bool) -> dict[str, Any]:
        """Pack the source, and say how that went."""
        packed = pack(self.source, self.out, force=force, **OPTIONS)
        return {"id": packed.manifest.id, "reused": packed.reused_shards}

    def killed(self, step: int) -> str | None:
        """Pack and be killed in front of a step: its name, or None where there is no such step."""

        def die(name: str) -> None:
            (self.folder / "step").write_text(name)
            os.kill(os.getpid(), signal.SIGKILL)

        def work() -> None:
            at_step(step, die)
            with contextlib.suppress(OutputExists):
                self.pack(self.force)

        return (self.folder / "step").read_text() if is_killed(work) else None

    def state(self) -> str:
        """'old', 'new', 'other', or the class and message of the error that a reader gets."""
        try:
            actual = content(self.out)
        except FieldslabError as error:
            return f"{type(error).__name__}: {error}"
        return next((name for name, known in self.known.items() if known == actual), "other")

    def after(self) -> dict[str, Any]:
        """What is there after a kill, and what comes of packing again."""
        actual: dict[str, Any] = {
            "state": self.state(),
            "left": sorted(entry.name for entry in self.place.iterdir()),
        }
        try:
            actual |= self.pack(self.force)
        except OutputExists:
            actual["refused"] = True
            self.pack(force=True)
        actual["then"] = self.state()
        actual["finally"] = sorted(entry.name for entry in self.place.iterdir())
        return actual


def main(folder: Path, variant: str) -> None:
    """Kill at every step, or twice in a row at random ones, until there are no more steps."""
    scene = Scene(folder, variant)
    if "twice" in variant:
        rng = random.Random(5)
        steps = [(rng.randrange(1, 70), rng.randrange(1, 70)) for _ in range(15)]
    else:
        # Replacing a slab begins as packing afresh does, and ends with the old slab's removal.
        early, late = (10, 4) if scene.force else (1, 1)
        steps = [
            (step, 0) for step in [*range(1, 51, early), *range(51, 60), *range(60, 1000, late)]
        ]
    for first, second in steps:
        scene.reset()
        name = scene.killed(first)
        if name is None and not second:
            break
        if second:
            scene.killed(second)
        line = json.dumps({"step": first, "second": second, "name": name, **scene.after()})
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
