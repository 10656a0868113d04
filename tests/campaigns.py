"""What campaigns over decoders share: their options, and how they speak."""

import argparse
import random
import sys
from collections.abc import Iterable


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
