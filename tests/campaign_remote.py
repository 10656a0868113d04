"""A long campaign of faults between a slab and its reader: `make campaign-remote`.

One round with a failing server, then three with killed programs; each has a number, which is
its seed. Counters are kept in a file, and another run goes on behind the last round. What is found
is printed with the number of its round; the exit status then is 1.
"""

import argparse
import json
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

from tests.campaigns import say
from tests.remote_faults import fill_disk, kill_readers, make_subject, read_through_faults
from tests.servers.web import run_web_server

_ROUNDS_OF_A_CACHE = 8


def main() -> int:
    """Run for some minutes; the exit status tells whether anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, help="the first round, and no counters of others")
    parser.add_argument("--rounds", type=int, default=sys.maxsize)
    parser.add_argument("--counters", type=Path, default=Path("build/campaign-remote.json"))
    given = parser.parse_args()
    counts = Counter[str]()
    if given.seed is None and given.counters.exists():
        counts.update(json.loads(given.counters.read_text()))
    first = counts["rounds"] if given.seed is None else given.seed
    until, found = time.monotonic() + 60 * given.minutes, 0
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        subject = make_subject(folder)
        if not fill_disk(folder):
            say("no disk can be mounted here, and so none becomes full")
        for number in range(first, first + given.rounds):
            if time.monotonic() > until:
                break
            rng = random.Random(number)
            kills = number % 4 > 0
            run = kill_readers if kills else read_through_faults
            # Those that are killed find a cache with some history.
            name = f"killed-{number // _ROUNDS_OF_A_CACHE}" if kills else f"{number}"
            cache = folder / name
            try:
                with run_web_server(subject.path) as server:
                    counts += run(subject, server, cache, rng)
            except Exception:  # noqa: BLE001 - all of it is printed
                found += 1
                say(f"\nround {number}: {traceback.format_exc()}")
            counts["rounds"] += 1
            if given.seed is None:
                given.counters.parent.mkdir(exist_ok=True)
                given.counters.write_text(json.dumps(counts, indent=2) + "\n")
    say(f"{json.dumps(counts, indent=2)}\n{found} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
