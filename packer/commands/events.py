"""What a command is doing, as JSON lines on stderr: `--progress json`.

Each line is an object with the key `event`:

    start      task ("packing" or "verifying"), total (of `unit`; null where it is not known),
               unit ("rows" or "bytes"), path
    progress   task, path, rows, bytes, seconds: so far; twice a second at most
    finish     task, path, rows, bytes, seconds: all of it
    warning    text
    error      error, problem, hint, and what else `--json` says of an error; ends the command
    end        code: the exit code; always the last line

Members may be added. A line that is no JSON object comes from a library.
"""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from fieldslab.packer.check.findings import VerifyProgress

MODES = ("auto", "json", "none")
SECONDS = 0.5
"""Between two lines of progress."""

_on = False


def has_events_option(arguments: Sequence[str]) -> bool:
    """Return True if a command line asks for events."""
    pairs = pairwise(arguments)
    return "--progress=json" in arguments or ("--progress", "json") in pairs


def enable_events(on: bool) -> None:
    """Write events from now on, or stop doing so."""
    global _on
    _on = on


def are_events_on() -> bool:
    """Return True if events are written instead of text for people."""
    return _on


def write_event(event: str, **members: Any) -> None:
    """Write one event, if they are wanted."""
    if _on:
        line = json.dumps({"event": event} | members, ensure_ascii=False, allow_nan=False)
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


@contextmanager
def track_progress(task: str, path: str, total: int | None, unit: str) -> Iterator[VerifyProgress]:
    """Write events about a task: its start, its progress now and then, and its end."""
    done = {"rows": 0, "bytes": 0}
    started = last = time.monotonic()

    def write_counts(event: str) -> None:
        seconds = round(time.monotonic() - started, 3)
        write_event(event, task=task, path=path, **done, seconds=seconds)

    def add_done(rows: int, bytes: int) -> None:
        nonlocal last
        done["rows"] += rows
        done["bytes"] += bytes
        if time.monotonic() - last >= SECONDS:
            last = time.monotonic()
            write_counts("progress")

    write_event("start", task=task, path=path, total=total, unit=unit)
    yield add_done
    write_counts("finish")
