"""Damages slabs, repairs them, and kills repairs: `make campaign-repair`."""

import sys
import tempfile
from pathlib import Path

from tests.campaigns import Campaign, make_parser
from tests.repairs import make_subject, run_round

GOAL = "A repair that is killed leaves nothing worse, and the next one gives the slab again"


def main() -> int:
    """Run for some minutes; the exit status tells whether anything was found."""
    campaign = Campaign("repair", GOAL, make_parser(__doc__).parse_args())
    with tempfile.TemporaryDirectory() as temporary:
        subject, slab = make_subject(Path(temporary)), Path(temporary) / "x.slab"
        return campaign.run(lambda _, rng: run_round(subject, slab, rng))


if __name__ == "__main__":
    sys.exit(main())
