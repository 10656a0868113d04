"""Flips every bit of small slabs, without new digests: `make campaign-bits`.

Two slabs have arrays of every role, and digests of both kinds. `verify` must name the file, and the
place in an array. Reading must give an error of ours, or the right rows: a gather does not touch
index points, for example. Cases are in no order, so that each part of them is a sample; after the
last one, no bit was left out.
"""

import sys
import tempfile
import warnings
from pathlib import Path

from tests.campaigns import Campaign, make_parser, say
from tests.hostile.flips import Flips, make_subjects
from tests.hostile.forks import FOLDER, run_in_children

GOAL = "Of a flipped bit of any file, `verify` names the file, and reading refuses what it touches"
_CASES_OF_A_CHILD = 1000


def main() -> int:
    """Run for some minutes; the exit status tells whether anything was found."""
    campaign = Campaign("bits", GOAL, make_parser(__doc__).parse_args())
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="fieldslab-bits-", dir=FOLDER) as temporary:
        folder = Path(temporary)
        flips = Flips(make_subjects(folder))
        say(f"{flips.total} cases in all")
        return run_in_children(campaign, _CASES_OF_A_CHILD, folder, flips.try_case, flips.total)


if __name__ == "__main__":
    sys.exit(main())
