"""Fails system calls of whatever writes slabs, one at a time: `make campaign-errnos`.

Each operation of `tests/faults/operations.py` runs once, which tells the system calls that touch
its files. Then it runs again and again, and one of them fails with one of the errnos that it can
have: first once for each kind of call and errno; some cases are of two jobs. The operation ends
with a named error, or is done all the same; there is then the old state, the new one, or none; and
the same command run again makes the new state and leaves nothing beside it.
"""

import re
import sys
from collections.abc import Collection
from typing import Any

from tests.faults.call_campaigns import run_campaign
from tests.faults.call_faults import ELSEWHERE, Calls

GOAL = (
    "Every system call of whatever writes slabs fails with every errno that it can have, with one "
    "job and with two: the error is a named one, nothing half-written looks whole, and the same "
    "command succeeds once the fault is gone"
)
READ = ("EIO", "ESTALE", "EINTR")
WRITE = ("ENOSPC", "EDQUOT", "EIO", "EFBIG", "EINTR")
NAME = ("EACCES", "EROFS", "ENOSPC", "EDQUOT", "EIO", "ESTALE")
ERRNOS = {
    "open(at|at2)?": ("EACCES", "EMFILE", "ENFILE", "EIO", "ESTALE", "ENOSPC", "EINTR", "ENOMEM"),
    "p?read(v|v2|64)?": READ,
    "p?write(v|v2|64)?": WRITE,
    "f(data)?sync": ("EIO", "ENOSPC", "EDQUOT", "EINTR"),
    "rename(at|at2)?|mkdir(at)?|(un)?link(at)?|rmdir|symlink(at)?": (*NAME, "EBUSY", "EMLINK"),
    "newfstatat|statx|stat|fstat|lstat|lseek|access|faccessat2?": ("EIO", "ESTALE", "EACCES"),
    "getdents64": ("EIO", "ESTALE"),
    "ftruncate|fallocate|fchmod|fchmodat|utimensat": ("EIO", "ENOSPC", "EPERM", "EDQUOT"),
    "flock|fcntl": ("ENOLCK", "EINTR"),
    "close": ("EIO", "EDQUOT"),
    "copy_file_range|sendfile|statfs|fstatfs": ("EIO", "ENOSYS"),
    "mmap": ("ENOMEM", "ENODEV"),
}
"""What system calls may fail with, by a pattern of their names."""


def list_errnos(calls: Calls) -> Collection[str]:
    """List what calls that touch files of an operation may fail with."""
    if calls.files == ELSEWHERE:
        return ()
    return [
        name
        for pattern, names in ERRNOS.items()
        if re.fullmatch(pattern, calls.name)
        for name in names
    ]


def main(arguments: Any = None) -> int:
    """Run the campaign; the exit status tells whether anything was found."""
    return run_campaign("errnos", GOAL, __doc__, list_errnos, arguments)


if __name__ == "__main__":
    sys.exit(main())
