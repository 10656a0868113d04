"""Forges slabs with right digests, and does everything with them: `make campaign-hostile`.

Files and new arrays lie between guard pages. What is read must be right, or a named error: no other
exception, no crash, no case without end, no memory beyond a limit.
"""

import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

from tests.campaigns import Campaign, make_parser
from tests.hostile.cases import try_case, try_whole_slabs
from tests.hostile.forks import FOLDER, run_in_children
from tests.hostile.guards import compile_guards, guard_arrays, guard_maps
from tests.hostile.small_slabs import make_slabs

GOAL = (
    "A forged slab with right digests is read right, or refused by a named error, by every command"
)
_CASES_OF_A_CHILD = 250
_GUARDED = 4
"""Of so many children, one has its new arrays between guards, too: that takes as long again."""


def main() -> int:
    """Run for some minutes; the exit status tells whether anything was found."""
    arguments = make_parser(__doc__).parse_args()
    campaign = Campaign("hostile", GOAL, arguments)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(dir=FOLDER) as temporary:
        folder = Path(temporary)
        wholes = make_slabs(folder)
        guards = compile_guards(folder)
        guard_maps(guards)
        try_whole_slabs(wholes, folder / "scratch")

        def try_number(number: int, place: Path) -> Counter[str]:
            if number // _CASES_OF_A_CHILD % _GUARDED == 0:
                guard_arrays(guards)
            return try_case(campaign.make_rng(number), wholes, place)

        return run_in_children(campaign, _CASES_OF_A_CHILD, folder, try_number)


if __name__ == "__main__":
    sys.exit(main())
