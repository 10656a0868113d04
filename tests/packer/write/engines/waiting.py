"""Packs rows that can only be read once a file is there. A program, run by test_engines.py.

    python waiting.py FOLDER OUT ENGINE

The first two shards can be read at once. Each other one waits for FOLDER/go, after it has made
FOLDER/waiting to tell that it does.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fieldslab.packer.options import parse_options
from fieldslab.packer.pack_source import pack_plan
from fieldslab.packer.plan import make_plan
from fieldslab.packer.source import Source, Unit

SHARDS = 6


class Waiting(Source):
    """Units of ten rows."""

    name = "waiting"
    rereadable = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.schema = pa.schema([("x", pa.int64())])
        self.units = [Unit(f"unit {number}", 10, 80, number) for number in range(SHARDS)]

    def read(self, unit: Unit, columns: list[int], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Ten rows, as soon as they can be read."""
        if unit.key >= 2:
            (self.folder / "waiting").touch()
            while not (self.folder / "go").exists():
                time.sleep(0.01)
        yield pa.record_batch([pa.array(np.arange(10) + unit.key)], schema=self.schema)

    def fingerprint(self) -> list[dict[str, Any]]:
        """Always the same."""
        return [{"path": "waiting"}]


class Deadly(Waiting):
    """The unit 3 kills the process that reads it: once, or while a file is there."""

    name = "waiting"

    def read(self, unit: Unit, columns: list[int], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Ten rows, or death."""
        if unit.key == 3:
            deadly = (self.folder / "always").exists() or not (self.folder / "died").exists()
            with (self.folder / "died").open("a") as file:
                file.write("x")
            if deadly:
                os.kill(os.getpid(), signal.SIGKILL)
        yield from super().read(unit, columns, batch_bytes)


def pack_waiting(folder: Path, out: Path, engine: str) -> None:
    """Pack those rows, a shard for each unit, two at a time."""
    plan = make_plan(Waiting(folder), parse_options(shard_size=1))
    pack_plan(plan, out, jobs=2, engine=engine)


if __name__ == "__main__":
    pack_waiting(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
