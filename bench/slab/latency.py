"""Single random rows: how long one waits for each."""

import time
from collections.abc import Callable
from itertools import count
from typing import Any

from fieldslab.bench.slab.results import Latency, Speed, Spread
from fieldslab.bench.slab.strategies import batches
from fieldslab.bench.slab.subject import Subject
from fieldslab.bench.slab.turns import Turn, take_turns
from fieldslab.reader import Loader, Shuffled

AHEAD = (0, 1, 4, 16)
"""How many rows a loader prepares ahead."""
_TIMELINE = 2000
_LEAST = 50


def measure(subject: Subject, seconds: float) -> Latency:
    """Measure `slab[row]` of random rows, beside a memcpy of as many bytes; then loaders."""
    rows = batches("random", len(subject.slab), 1, subject.seed)
    name, read = _reading(subject)
    turns = {
        name: Turn((int(row[0]) for row in rows), read),
        "memcpy": subject.copies("random", 1),
    }
    times_by_name = take_turns(turns, seconds / 2, least=_LEAST)
    ahead = []
    for rows_ahead in AHEAD:
        waits = _waits(subject, rows_ahead, seconds / 2 / len(AHEAD))
        ahead.append(Speed(str(rows_ahead), 1, subject.row_bytes, Spread.of(waits)))
    return Latency(
        Speed(name, 1, subject.row_bytes, Spread.of(times_by_name[name])),
        ahead,
        Speed("memcpy", 1, subject.row_bytes, Spread.of(times_by_name["memcpy"])),
        [1e3 * row_seconds for row_seconds in times_by_name[name][:_TIMELINE]],
    )


def _reading(subject: Subject) -> tuple[str, Callable[[int], Any]]:
    """How a user reads one row: of all fields, or of those that were chosen."""
    slab, fields = subject.slab, subject.fields
    if len(fields) == len(slab.fields):
        return "slab[row]", slab.__getitem__
    columns = [slab[name] for name in fields]
    return "slab[field][row]", lambda row: [column[row] for column in columns]


def _waits(subject: Subject, ahead: int, seconds: float) -> list[float]:
    """Seconds that one waits for each row of a loader, but the first of each epoch."""
    order = Shuffled(subject.seed)
    waits: list[float] = []
    end = time.perf_counter() + seconds
    with Loader(subject.slab, 1, order, fields=subject.fields, prefetch=ahead, threads=1) as loader:
        for _ in count():
            batches = iter(loader)
            next(batches)
            while True:
                started = time.perf_counter()
                batch = next(batches, None)
                stopped = time.perf_counter()
                if batch is None:
                    break
                waits.append(stopped - started)
                if stopped > end and len(waits) >= _LEAST:
                    return waits
            if len(subject.slab) == 1:
                return [_first(loader) for _ in range(_LEAST)]
    raise AssertionError


def _first(loader: Loader) -> float:
    """Seconds to the first row of an epoch: all there is where a slab has one row."""
    started = time.perf_counter()
    for _ in loader:
        pass
    return time.perf_counter() - started
