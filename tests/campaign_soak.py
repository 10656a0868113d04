"""Runs many short trainings of random shape, and compares every batch: `make campaign-soak`.

A round packs random rows of a random schema and opens them as a slab, as a union, or through a
mirror. It goes through short epochs of a random order by a random loader: threads, prefetch or
none, a process of its own, tensors, or PyTorch's DataLoader. Most epochs are abandoned, in one of
the ways of `tests/soaking.py`. Every row of every batch is compared with the source. Over all
rounds, memory, open files, threads, processes and maps must not grow.
"""

import gc
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from tests.campaigns import Campaign, make_parser
from tests.soaking import run_round

GOAL = (
    "Every batch of short trainings of random shape equals the source, also after epochs that "
    "were abandoned, and memory, files, threads, processes and maps do not grow"
)
WARM = 60
"""Rounds after which nothing may grow any longer."""
MOST = {"files": 8, "threads": 4, "processes": 1, "maps": 100, "MiB": 100}
"""What may be there more than there was at most during the first rounds."""
_PATIENCE = 20.0
"""Seconds that helpers may take to end."""


def measure() -> dict[str, int]:
    """Count what this process holds."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    [resident] = [line.split()[1] for line in status.splitlines() if line.startswith("RssAnon")]
    return {
        "files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "processes": len(psutil.Process().children(recursive=True)),
        "maps": Path("/proc/self/maps").read_text().count("\n"),
        "MiB": int(resident) // 1024,
    }


class Soak:
    """Rounds in one process, which must not grow.

    Attributes
    ----------
    most
        What there was at most during the first rounds.
    """

    def __init__(self, folder: Path) -> None:
        self.most = dict.fromkeys(MOST, 0)
        self._folder = folder
        self._rounds = 0

    def try_case(self, _number: int, rng: random.Random) -> Mapping[str, int]:
        """Run a round, and look what the process holds. Raises AssertionError."""
        with tempfile.TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as folder:
            counts = run_round(Path(folder), rng)
        self._rounds += 1
        if self._rounds <= WARM:
            now = measure()
            self.most = {name: max(most, now[name]) for name, most in self.most.items()}
        elif self._rounds % 10 == 0:
            self.check_growth()
        return counts

    def check_growth(self) -> None:
        """Raise AssertionError where the process holds more than it should, and goes on to."""
        deadline = time.monotonic() + _PATIENCE
        while grown := {
            name: f"{count}, at first {self.most[name]}"
            for name, count in measure().items()
            if count > self.most[name] + MOST[name]
        }:
            assert time.monotonic() < deadline, f"after {self._rounds} rounds: {grown}"
            time.sleep(0.2)


def main(arguments: Any = None) -> int:
    """Run the campaign; the exit status tells whether anything was found."""
    parsed = make_parser(__doc__).parse_args(arguments)
    campaign = Campaign("soak", GOAL, parsed)
    with tempfile.TemporaryDirectory(prefix="fieldslab-soak-") as folder:
        return campaign.run(Soak(Path(folder)).try_case)


if __name__ == "__main__":
    sys.exit(main())
