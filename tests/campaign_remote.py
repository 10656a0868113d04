"""Fails between slabs and their readers, and kills these: `make campaign-remote`.

One case with a failing server, then three with killed programs.
"""

import random
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

from tests.campaigns import Campaign, make_parser
from tests.remote_faults import fill_disk, kill_readers, make_subject, read_through_faults
from tests.servers.web import run_web_server

GOAL = "Batches from a failing server, or of a killed reader's cache, are right or an error"
_CASES_OF_A_CACHE = 8


def main() -> int:
    """Run for some minutes; the exit status tells whether anything was found."""
    campaign = Campaign("remote", GOAL, make_parser(__doc__).parse_args())
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        subject = make_subject(folder)
        if not fill_disk(folder):
            sys.stdout.write("no disk can be mounted here, and so none becomes full\n")

        def try_case(number: int, rng: random.Random) -> Counter[str]:
            kills = number % 4 > 0
            run = kill_readers if kills else read_through_faults
            # Those that are killed find a cache with some history.
            name = f"killed-{number // _CASES_OF_A_CACHE}" if kills else f"{number}"
            with run_web_server(subject.path) as server:
                return run(subject, server, folder / name, rng)

        return campaign.run(try_case)


if __name__ == "__main__":
    sys.exit(main())
