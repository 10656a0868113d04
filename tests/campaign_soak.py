"""Runs many short trainings of random shape, and compares every batch: `make campaign-soak`.

A round packs random rows of a random schema, opens the slab, and goes through epochs of a random
order by a random loader: threads, prefetch or none, a process of its own. Some epochs are left in
their middle. Every row of every batch is compared with the source. Over all rounds, memory, open
files, threads and maps must not grow.
"""

import gc
import os
import random
import shutil
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tests.campaigns import Campaign, make_parser

from fieldslab.packer import pack
from fieldslab.reader import Loader, Sequential, Shuffled, Slab, open_slab

GOAL = (
    "Every batch of short trainings of random shape equals the source, also after epochs that "
    "were abandoned, and memory, files, threads and maps do not grow"
)
WARM = 30
"""Rounds after which nothing may grow any longer."""
MOST = {"files": 8, "threads": 4, "maps": 300, "MiB": 200}
"""What may be there more than after the first rounds."""


def make_rows(rng: random.Random) -> dict[str, list[Any]]:
    """Make columns of random kinds, with as many rows each."""
    count = rng.choice((1, 7, 64, 300, 1000))
    numbers = np.random.default_rng(rng.randrange(2**32))
    makers: dict[str, Callable[[], list[Any]]] = {
        "int": lambda: numbers.integers(-(2**40), 2**40, count).tolist(),
        "float": lambda: numbers.random(count).tolist(),
        "text": lambda: ["é" * rng.randrange(40) + str(row) for row in range(count)],
        "bytes": lambda: [rng.randbytes(rng.randrange(2000)) for _ in range(count)],
        "tokens": lambda: [[rng.randrange(999)] * rng.randrange(90) for _ in range(count)],
    }
    kinds = rng.sample(sorted(makers), rng.randint(1, len(makers)))
    return {kind: makers[kind]() for kind in kinds} | {"row": list(range(count))}


def compare(batch: Any, rows: dict[str, list[Any]]) -> list[int]:
    """Compare a batch with the source by the rows that it says it has; return these."""
    numbers = [int(row) for row in batch["row"]]
    for name, column in rows.items():
        for place, row in enumerate(numbers):
            value = batch[name][place]
            seen = value.tolist() if hasattr(value, "tolist") else value
            assert seen == column[row], f"{name}, row {row}: {seen!r}, expected {column[row]!r}"
    return numbers


def make_loader(slab: Slab, rng: random.Random) -> Loader:
    """Make a loader of random shape."""
    order = rng.choice((Sequential(), Shuffled(rng.randrange(99))))
    options: dict[str, Any] = rng.choice(
        ({"prefetch": 0}, {"threads": 1}, {"threads": 2}, {"threads": 3, "prefetch": 7})
    )
    if rng.randrange(40) == 0:
        options = {"isolate": True}
    return Loader(slab, rng.choice((1, 3, 16, 128)), order, **options)


def run_round(folder: Path, rng: random.Random) -> Counter[str]:
    """Pack, open, and go through some epochs; count them."""
    rows = make_rows(rng)
    out = folder / "x.slab"
    shutil.rmtree(out, ignore_errors=True)
    compress = ["text"] if "text" in rows and rng.randrange(2) else []
    pack(pa.table(rows), out, shard_size=rng.choice(("4K", "64K", "1M")), compress=compress)
    counts = Counter({"rounds": 1})
    loader = make_loader(open_slab(out), rng)
    with loader:
        for epoch in range(rng.randint(1, 4)):
            abandoned = rng.randrange(3) == 0
            seen: list[int] = []
            for number, batch in enumerate(loader):
                seen += compare(batch, rows)
                counts["batches"] += 1
                if abandoned and number == rng.randrange(4):
                    break
            else:
                assert sorted(seen) == rows["row"], f"epoch {epoch}: other rows"
            counts["epochs abandoned" if abandoned else "epochs"] += 1
    return counts


def measure() -> dict[str, int]:
    """Count what this process holds."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    [resident] = [line.split()[1] for line in status.splitlines() if line.startswith("RssAnon")]
    return {
        "files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "maps": Path("/proc/self/maps").read_text().count("\n"),
        "MiB": int(resident) // 1024,
    }


class Soak:
    """Rounds in one process, which must not grow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rounds = 0
        self.first: dict[str, int] = {}

    def try_case(self, _number: int, rng: random.Random) -> Mapping[str, int]:
        """Run a round, and look what the process holds. Raises AssertionError."""
        counts = run_round(self.folder, rng)
        self.rounds += 1
        if self.rounds == WARM:
            self.first = measure()
        elif self.rounds > WARM and self.rounds % 10 == 0:
            now = measure()
            grown = {k: (self.first[k], now[k]) for k in now if now[k] > self.first[k] + MOST[k]}
            assert not grown, f"after {self.rounds} rounds: {grown}"
        return counts


def main(arguments: Any = None) -> int:
    """Run the campaign; the exit status tells whether anything was found."""
    parsed = make_parser(__doc__).parse_args(arguments)
    campaign = Campaign("soak", GOAL, parsed)
    with tempfile.TemporaryDirectory(prefix="fieldslab-soak-") as folder:
        return campaign.run(Soak(Path(folder)).try_case)


if __name__ == "__main__":
    sys.exit(main())
