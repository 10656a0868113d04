"""Run in a process with `reads.c` preloaded: fail each read of sources in turn, print outcomes."""

import errno
import json
import mmap
import os
import struct
import sys
from collections.abc import Iterator
from typing import Any

from fieldslab.packer.source import find_source
from fieldslab.schemas.errors import FieldslabError, SourceUnreadable

KINDS = {"EIO": errno.EIO, "ESTALE": errno.ESTALE, "short": 0}


def read_source(path: str) -> list[Any]:
    """Open a source as `pack` does, and read all of its rows."""
    source = find_source([path])
    columns = list(range(len(source.schema)))
    source.check(columns)
    source.sample(columns)
    return [
        batch.to_pylist() for unit in source.units for batch in source.read(unit, columns, 2**20)
    ]


def outcome(path: str, truth: Any) -> str:
    """What reading came to: right, unreadable for the reason that the system gave, or a defect."""
    try:
        rows = read_source(path)
    except SourceUnreadable as error:
        reasons = (os.strerror(errno.EIO), os.strerror(errno.ESTALE))
        told = any(reason in str(error) for reason in reasons)
        return "SourceUnreadable" if told else f"without the reason: {error}"
    except FieldslabError as error:
        return f"taken for another error: {error!r}"
    except Exception as error:  # noqa: BLE001  # it is told
        return f"untyped: {error!r}"
    return "right" if rows == truth else "WRONG"


def all_outcomes(path: str) -> Iterator[tuple[str, str]]:
    """The kind of failure and the outcome, for every read."""
    with open(os.environ["FAULT_FILE"], "r+b") as file:
        control = mmap.mmap(file.fileno(), 4096)
    truth = read_source(path)
    control[:32] = struct.pack("<4q", 0, 0, 0, 0)
    read_source(path)
    (count,) = struct.unpack("<q", control[:8])
    for kind, number in KINDS.items():
        for failing in range(1, count + 1):
            control[:32] = struct.pack("<4q", 0, failing, number, 0)
            yield kind, outcome(path, truth)
    control[:32] = bytes(32)


if __name__ == "__main__":
    json.dump([list(all_outcomes(path)) for path in sys.argv[1:]], sys.stdout)
