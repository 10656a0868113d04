"""Memory of the process while it gathers batches: its own pages apart from mapped ones."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fieldslab.bench import machine
from fieldslab.bench.slab.results import Memory
from fieldslab.bench.slab.strategies import batches
from fieldslab.bench.slab.subject import USUAL, batch_sizes, opened, row_bytes

_SAMPLES = 120
_FIRST = 5
"""Batches whose memory is not growth: buffers are made for them, and used again afterwards."""


def measure(
    path: str | Path,
    fields: Sequence[str] | None,
    seconds: float,
    seed: int,
    **opening: Any,
) -> Memory | None:
    """Measure memory of random batches of a newly opened slab; None if the system does not tell."""
    if machine.resident() == (0, 0):
        return None
    slab, chosen = opened(path, fields, **opening)
    size = min(USUAL, batch_sizes(row_bytes(slab, chosen, seed))[-1])
    rows = batches("random", len(slab), size, seed)
    batch = None
    for _ in range(_FIRST):
        batch = slab.gather(next(rows), chosen)
    first = machine.resident()
    samples = [(0, *first)]
    started = time.perf_counter()
    done = 0
    while (spent := time.perf_counter() - started) < seconds or done < _FIRST:
        batch = slab.gather(next(rows), chosen)
        done += 1
        if spent > len(samples) * seconds / _SAMPLES:
            samples.append((done, *machine.resident()))
    samples.append((done, *machine.resident()))
    del batch
    counts, anonymous, mapped = (list(column) for column in zip(*samples, strict=True))
    return Memory(size, counts, anonymous, mapped, max(anonymous) - anonymous[0])
