"""Fuzzes manifests, images, frames and sources, guided by coverage: `make campaign-fuzz`.

A case is some runs of atheris on one parser, in a process of its own. Inputs that reach new lines
are kept in build/fuzz, and the next cases begin with them.
"""

import random
import subprocess
import sys
from pathlib import Path

from tests.campaigns import Campaign, make_parser
from tests.hostile.parsers import PARSERS

GOAL = (
    "A manifest, image, index, frame or source of any bytes is taken, or refused by a named error"
)
_SECONDS = 25
"""Of a case."""
_ROOT = Path(__file__).parents[1]


def try_case(number: int, rng: random.Random) -> dict[str, int]:
    """Fuzz one parser after the other. Raises AssertionError with the input of the first bug."""
    name = list(PARSERS)[number % len(PARSERS)]
    folder = _ROOT / "build" / "fuzz" / name
    bugs = folder / "bugs"
    bugs.mkdir(parents=True, exist_ok=True)
    options = [
        f"-seed={number + 1}",
        f"-max_total_time={_SECONDS}",
        "-timeout=30",
        "-max_len=16384",
    ]
    options += [
        "-rss_limit_mb=4096",
        f"-artifact_prefix={bugs}/case-{number}-",
        "-print_final_stats=1",
    ]
    command = [sys.executable, "-m", "tests.hostile.fuzz", name, str(folder / "corpus"), *options]
    done = subprocess.run(
        command, cwd=_ROOT, capture_output=True, text=True, errors="replace", check=False
    )
    assert done.returncode == 0, f"{name}: {done.stderr[-2500:]}"
    [runs] = [
        int(line.split()[-1]) for line in done.stderr.splitlines() if "number_of_executed" in line
    ]
    return {f"inputs: {name}": runs}


def main() -> int:
    """Run for some minutes; the exit status tells whether anything was found."""
    return Campaign("fuzz", GOAL, make_parser(__doc__).parse_args()).run(try_case)


if __name__ == "__main__":
    sys.exit(main())
