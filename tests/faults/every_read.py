"""Run in a process with `reads.c` preloaded: fail every read of a slab in turn, print outcomes."""

import contextlib
import errno
import io
import json
import mmap
import os
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fieldslab.packer import Report, verify
from fieldslab.packer.check.scrub import Scrub
from fieldslab.packer.check.throttle import Throttle
from fieldslab.packer.cli import run
from fieldslab.reader import open_slab
from fieldslab.schemas.errors import FieldslabError, Unreadable

SLAB = os.environ["FAULT_PREFIX"]
KINDS = {"EIO": errno.EIO, "ESTALE": errno.ESTALE, "short": 0}


def gather() -> Any:
    """Rows of all fields."""
    batch = open_slab(SLAB).gather([0, 5, 29])
    return [np.asarray(batch["x"]).tolist(), list(batch["t"])]


def head() -> str:
    """What the command prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()) as told:
        code = run(["head", SLAB])
    if code:
        raise Unreadable(told.getvalue()) if code == 3 else RuntimeError(told.getvalue())
    return output.getvalue()


CALLS: dict[str, Callable[[], Any]] = {
    "gather": gather,
    "row": lambda: repr(open_slab(SLAB)[7]),
    "categories": lambda: list(open_slab(SLAB).categories("c")),
    "head": head,
    "verify": lambda: verify(SLAB),
    "scrub": lambda: list(Scrub([SLAB], Throttle()).run())[-1],
}


def outcome(call: Callable[[], Any], truth: Any) -> str:
    """What a call came to: right, unreadable, a finding with rows, or what should never be."""
    try:
        result = call()
    except Unreadable as error:
        return "Unreadable" if "cannot be read" in str(error) else f"no words: {error}"
    except FieldslabError as error:
        return f"taken for another error: {error}"
    except Exception as error:  # noqa: BLE001  # it is told
        return f"untyped: {error!r}"
    if isinstance(result, Report):
        if result.ok:
            return "right"
        known = [
            problem
            for problem in result.problems
            if "cannot be read" in problem.problem and problem.file
        ]
        return "Unreadable" if known else f"blamed on something else: {result.problems[0]}"
    return "right" if result == truth else "WRONG"


def all_outcomes() -> Iterator[tuple[str, str, str]]:
    """Each call, kind of failure and outcome, for every read and every page read in."""
    with open(os.environ["FAULT_FILE"], "r+b") as file:
        control = mmap.mmap(file.fileno(), 4096)
    for name, call in CALLS.items():
        for maps in (0, 1):
            truth = call()
            control[:32] = struct.pack("<4q", 0, 0, 0, maps)
            call()
            (count,) = struct.unpack("<q", control[:8])
            for kind, number in KINDS.items():
                for index in range(1, count + 1):
                    if maps and number == 0:
                        continue
                    control[:32] = struct.pack("<4q", 0, index, number, maps)
                    yield name, kind, outcome(call, truth)
            control[:32] = bytes(32)


if __name__ == "__main__":
    json.dump(list(all_outcomes()), sys.stdout)
