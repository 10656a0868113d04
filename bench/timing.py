"""Timing of several calls side by side, so that a busy machine slows all of them alike."""

import argparse
import json
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple


class Ratio(NamedTuple):
    """How many times as fast as something else: the median over all rounds, and quartiles."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


def interleave(
    calls: Mapping[str, Callable[[], Any]], rounds: int, warm: int = 1
) -> dict[str, list[float]]:
    """Time the calls in turns: seconds of each in each round.

    A round makes every call once, in an order of its own. `warm` rounds go first, unmeasured.
    """
    order = list(calls)
    shuffle = random.Random(0).shuffle
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(-warm, rounds):
        shuffle(order)
        for name in order:
            started = time.perf_counter()
            calls[name]()
            if turn >= 0:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def ratio(seconds: list[float], against: list[float]) -> Ratio:
    """Compare two calls round by round: the speed of one relative to the other."""
    ratios = sorted(other / own for own, other in zip(seconds, against, strict=True))
    quarter = len(ratios) // 4
    return Ratio(median(ratios), ratios[quarter], ratios[-1 - quarter])


def program(run: Callable[[bool], dict[str, Any]], about: str | None) -> None:
    """Run a benchmark as a program: `run(quick)` prints; its result goes to `--json FILE` too."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true", help="less data, fewer rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    options = parser.parse_args()
    results = run(options.quick)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
