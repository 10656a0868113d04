"""What campaigns share: cases by number, figures that are kept between runs, and where they stand.

A campaign is a program, `tests/campaign_NAME.py`, which `make campaign-NAME` runs:

    def main() -> int:
        campaign = Campaign("NAME", "What holds in every case", make_parser(__doc__).parse_args())
        return campaign.run(try_case)

`try_case` takes the number of a case and its random numbers, and returns what it counted. A case
depends on the seed and its number alone: `--case 17` tries case 17 again.
"""

import argparse
import json
import os
import platform
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

RESULTS = Path(__file__).parents[1] / "bench" / "results" / "campaigns.json"
TryCase = Callable[[int, random.Random], Mapping[str, int]]
_SECONDS_BETWEEN_SAVES = 1.0


class Record(msgspec.Struct):
    """What a campaign did so far, in all of its runs with one seed."""

    seed: int
    next: int = 0
    """Number of the first case that was not tried."""
    minutes: float = 0
    failed: dict[int, str] = {}
    """Cases that fail, and what they say."""
    mended: list[int] = []
    """Cases that failed once, and pass now."""
    counts: dict[str, int] = {}


def make_parser(about: str | None) -> argparse.ArgumentParser:
    """Make a parser with the options that all campaigns have."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=about, formatter_class=formatter)
    parser.add_argument("--minutes", type=float, default=10, help="of this run (10)")
    parser.add_argument("--cases", type=int, default=sys.maxsize, help="of this run, at most")
    parser.add_argument("--seed", type=int, default=0, help="of all cases (0)")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time, where it can (1)")
    parser.add_argument("--state", type=Path, help="goes on there (build/campaign-NAME.json)")
    parser.add_argument("--case", type=int, action="append", help="try this one, no others")
    parser.add_argument("--retry", action="store_true", help="try again what failed, nothing else")
    parser.add_argument("--publish", action="store_true", help="into bench/results/campaigns.json")
    return parser


def options(about: str | None, which: str, choices: Iterable[str]) -> argparse.Namespace:
    """Minutes or cases, the first seed, and `--WHICH` of some choices, perhaps several times."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--cases", type=int, default=sys.maxsize)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument(f"--{which}", choices=list(choices), action="append")
    return parser.parse_args()


def say(text: str) -> None:
    """Write a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Campaign:
    """Counts cases until time or cases run out, and keeps the figures in a file.

    Parameters
    ----------
    name
        That of `make campaign-NAME`.
    goal
        What holds in every case: a sentence of the table in the documentation.
    arguments
        The options of `make_parser`, parsed.
    """

    def __init__(self, name: str, goal: str, arguments: argparse.Namespace) -> None:
        self._name, self._goal, self._arguments = name, goal, arguments
        self.path: Path = arguments.state or Path("build", f"campaign-{name}.json")
        self.totals: dict[str, int] = {}
        """How many `cases` there are, where that is known, and how many of what it counts."""
        self._record = Record(arguments.seed)
        if self.path.exists():
            self._record = msgspec.json.decode(self.path.read_bytes(), type=Record)
        if self._record.seed != arguments.seed:
            raise SystemExit(f"{self.path} is of seed {self._record.seed}: name another --state")
        self._minutes_before = self._record.minutes
        self._started = self._saved = time.monotonic()
        self._failures = set[int]()
        self._again: list[int] | None = arguments.case
        if arguments.retry:
            self._again = sorted(self._record.failed)

    @property
    def jobs(self) -> int:
        """How many cases may run at a time."""
        return int(self._arguments.jobs)

    @property
    def seed(self) -> int:
        """What all cases depend on."""
        return self._record.seed

    def make_rng(self, number: int) -> random.Random:
        """Make the random numbers of a case."""
        return random.Random((self._record.seed << 64) + number)

    def take_numbers(self, size: int = 1, total: int = sys.maxsize) -> Iterator[range]:
        """Yield the numbers of the next cases, at most `size` at a time, until the run is over.

        There are no more than `total` cases.
        """
        if self._again is not None:
            yield from (range(number, number + 1) for number in self._again)
            return
        stop = min(self._record.next + self._arguments.cases, total)
        while self._record.next < stop and self.seconds_left > 0:
            yield range(self._record.next, min(self._record.next + size, stop))

    @property
    def seconds_left(self) -> float:
        """How long this run still goes on."""
        return self._started + 60 * float(self._arguments.minutes) - time.monotonic()

    def fail(self, number: int, problem: str) -> None:
        """Report a case that went wrong."""
        self._failures.add(number)
        self._record.failed[number] = problem[-2000:]
        say(f"\ncase {number}: {problem}")

    def complete(self, numbers: range, counts: Mapping[str, int]) -> None:
        """Count cases that were tried, after `fail` was called for those that went wrong."""
        if self._again is None:
            total = Counter(self._record.counts)
            total.update(counts)
            self._record.counts = dict(sorted(total.items()))
            self._record.next = numbers.stop
        for number in self._record.failed.keys() & set(numbers) - self._failures:
            del self._record.failed[number]
            self._record.mended.append(number)
        if time.monotonic() - self._saved > _SECONDS_BETWEEN_SAVES:
            self.save()

    def run(self, try_case: TryCase) -> int:
        """Try one case after the other; the exit status is 1 if any raised an exception."""
        try:
            for numbers in self.take_numbers():
                counts: Mapping[str, int] = {}
                try:
                    counts = try_case(numbers.start, self.make_rng(numbers.start))
                except Exception:  # noqa: BLE001 - all of it is printed
                    self.fail(numbers.start, traceback.format_exc())
                self.complete(numbers, counts)
        finally:
            self.save()
        return self.finish()

    def save(self) -> None:
        """Write the state, at one go: whoever is killed goes on from the last one."""
        self._saved = time.monotonic()
        self._record.minutes = self._minutes_before + (self._saved - self._started) / 60
        _replace(self.path, msgspec.json.format(msgspec.json.encode(self._record)))

    def finish(self) -> int:
        """Say what was counted, publish it if asked to, and return the exit status."""
        self.save()
        record = self._record
        say(json.dumps(record.counts, indent=2))
        say(f"{record.next} cases in {record.minutes:.1f} minutes, {len(record.failed)} fail")
        if self._arguments.publish:
            _publish(self._name, self._goal, record, self.totals)
        return 1 if self._failures else 0


def _publish(name: str, goal: str, record: Record, totals: Mapping[str, int]) -> None:
    figures = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    figures[name] = {
        "goal": goal,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "minutes": round(record.minutes, 1),
        "seed": record.seed,
        "tried": record.next,
        "failed": len(record.failed),
        "mended": len(record.mended),
        "counts": record.counts,
        **({"totals": totals} if totals else {}),
    }
    _replace(RESULTS, json.dumps(dict(sorted(figures.items())), indent=2).encode() + b"\n")


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_bytes(data)
    aside.replace(path)
