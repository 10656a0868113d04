"""A long campaign of mutations, with other ones in every run: `make campaign`.

What is found is printed with its seed and the mutation; the exit status then is 1.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.campaigns import say
from tests.mutations.choices import FAMILIES
from tests.mutations.subject import make_subject
from tests.mutations.worker import Worker


def main() -> int:
    """Run for some minutes; the exit status tells whether anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--family", choices=FAMILIES)
    arguments = parser.parse_args()
    families = [arguments.family] if arguments.family else list(FAMILIES)
    until = time.monotonic() + 60 * arguments.minutes
    say(f"seed {arguments.seed}, {arguments.minutes:g} minutes, {arguments.jobs} processes")

    with tempfile.TemporaryDirectory() as name:
        whole = make_subject(Path(name)).slab

        def run(number: int) -> tuple[Counter[str], int]:
            worker = Worker(Path(name) / f"worker-{number}")
            tried, problems, seed = Counter[str](), 0, arguments.seed + number * 10**9
            while time.monotonic() < until:
                family = families[seed % len(families)]
                mutation = FAMILIES[family](random.Random(seed), whole)
                problem = worker.examine(mutation)
                tried[family] += 1
                if problem:
                    problems += 1
                    say(f"\nseed {seed}: {json.dumps(mutation)}\n{problem}")
                seed += 1
            worker.close()
            return tried, problems

        with ThreadPoolExecutor(arguments.jobs) as pool:
            results = list(pool.map(run, range(arguments.jobs)))
    tried = sum((counts for counts, _ in results), Counter[str]())
    problems = sum(count for _, count in results)
    say(f"{tried.total()} mutations ({dict(tried)}), {problems} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
