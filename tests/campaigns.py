"""What campaigns share: their options, how they speak, and where their figures stand."""

import argparse
import json
import os
import platform
import random
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path


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


def publish_counters(campaign: str, counts: Mapping[str, int], minutes: float) -> None:
    """Put what a campaign counted in place of its last figures in bench/results/campaigns.json."""
    path = Path(__file__).parents[1] / "bench" / "results" / "campaigns.json"
    figures = json.loads(path.read_text()) if path.exists() else {}
    figures[campaign] = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "minutes": round(minutes, 1),
        "counts": dict(sorted(counts.items())),
    }
    path.write_text(json.dumps(dict(sorted(figures.items())), indent=2) + "\n")
