"""Stops runs of all orders, and goes on with other sizes: `make campaign-resume`."""

import random
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path

from tests.campaigns import Campaign, make_parser
from tests.resuming import run_round

GOAL = "A run that goes on with other batch and world sizes visits what was left, and nothing twice"


def main() -> int:
    """Run for some minutes; the exit status tells whether anything was found."""

    warnings.simplefilter("ignore")  # slabs of a few rows are not shuffled for `Near`

    def try_case(_: int, rng: random.Random) -> Mapping[str, int]:
        with tempfile.TemporaryDirectory() as temporary:
            return run_round(Path(temporary), rng)

    return Campaign("resume", GOAL, make_parser(__doc__).parse_args()).run(try_case)


if __name__ == "__main__":
    sys.exit(main())
