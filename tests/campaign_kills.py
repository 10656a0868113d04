"""Kills whatever writes slabs at every system call: `make campaign-kills`.

Each operation of `tests/faults/operations.py` runs once, which tells its system calls. Then it runs
again and again, and is killed in front of one of them: first once in front of each kind of call.
What is there then is the old state, the new one, or none; nothing half-written looks whole; the
same command run again makes the new state and leaves nothing beside it.

With two jobs, the packer or a worker is killed, and what is left must end by itself. Calls that
nothing outside the process can see, such as `futex`, are left out.
"""

import sys
from typing import Any

from tests.faults.call_campaigns import run_campaign

GOAL = (
    "Whatever writes slabs is killed in front of every system call: the old slab or the new one is "
    "there, nothing half-written looks whole, and the same command goes on and cleans up"
)


def main(arguments: Any = None) -> int:
    """Run the campaign; the exit status tells whether anything was found."""
    return run_campaign("kills", GOAL, __doc__, lambda _calls: ["KILL"], arguments)


if __name__ == "__main__":
    sys.exit(main())
