"""Forges slabs, and reads them in C++ under sanitizers: `make campaign-cpp`.

The reader of `examples/read_slab.cpp` is compiled with ASan and UBSan. Rows that both languages
read must be the same.
"""

import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

from tests.campaigns import Campaign, make_parser
from tests.hostile.cpp import Reader, compile_reader, try_case
from tests.hostile.forks import FOLDER, run_in_children
from tests.hostile.small_slabs import make_slabs

GOAL = "The reader in C++ reads forged slabs as Python does, or refuses them, under ASan and UBSan"
_CASES_OF_A_CHILD = 500


def main() -> int:
    """Run for some minutes; the exit status tells whether anything was found."""
    campaign = Campaign("cpp", GOAL, make_parser(__doc__).parse_args())
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(dir=FOLDER) as temporary:
        folder = Path(temporary)
        wholes, program = make_slabs(folder), compile_reader(folder)
        readers: list[Reader] = []

        def try_number(number: int, place: Path) -> Counter[str]:
            reader = readers.pop() if readers else Reader(program)
            counts = try_case(campaign.make_rng(number), wholes, place, reader)
            readers.append(reader)  # one that has ended is not used again
            return counts

        return run_in_children(campaign, _CASES_OF_A_CHILD, folder, try_number)


if __name__ == "__main__":
    sys.exit(main())
