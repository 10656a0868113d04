"""A long campaign of damage, repairs, and repairs that are killed: `make campaign-repair`.

Each round has a number, which is its seed. Counters are kept in a file, and another run goes on
behind the last round. What is found is printed with the number of its round; the exit status then
is 1.
"""

import argparse
import json
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.campaigns import publish_counters, say
from tests.repairs import make_subject, run_round


def main() -> int:
    """Run for some minutes; the exit status tells whether anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, help="the first round, and no counters of others")
    parser.add_argument("--rounds", type=int, default=sys.maxsize)
    parser.add_argument("--counters", type=Path, default=Path("build/campaign-repair.json"))
    parser.add_argument("--publish", action="store_true", help="into bench/results/campaigns.json")
    given = parser.parse_args()
    counts = Counter[str]()
    if given.seed is None and given.counters.exists():
        counts.update(json.loads(given.counters.read_text()))
    first = counts["rounds"] if given.seed is None else given.seed
    started, failed = time.monotonic(), 0
    until = started + 60 * given.minutes
    with tempfile.TemporaryDirectory() as temporary:
        subject = make_subject(Path(temporary))
        for number in range(first, first + given.rounds):
            if time.monotonic() > until:
                break
            try:
                counts += run_round(subject, Path(temporary) / "x.slab", random.Random(number))
            except Exception:  # noqa: BLE001 - all of it is printed
                failed += 1
                say(f"\nround {number}: {traceback.format_exc()}")
            counts["rounds"] += 1
            if given.seed is None:
                given.counters.parent.mkdir(exist_ok=True)
                given.counters.write_text(json.dumps(counts, indent=2) + "\n")
    say(f"{json.dumps(counts, indent=2)}\n{failed} problems")
    if given.publish and not failed:
        publish_counters("repair", counts, (time.monotonic() - started) / 60)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
