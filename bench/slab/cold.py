"""Rows that the system has to fetch from the disk, beside the same rows once they are in memory."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fieldslab.bench.slab.pages import can_drop, drop
from fieldslab.bench.slab.results import Cold, Speed, Spread
from fieldslab.bench.slab.strategies import ORDERS, subset
from fieldslab.bench.slab.subject import USUAL, files, opened, row_bytes
from fieldslab.reader import Loader, Slab, Subset

_ROUNDS = 3
_ROWS = 50_000
_BATCH_BYTES = 4 * 2**20
"""Batches are no larger than this, since a loader asks for several of them ahead."""
_SINGLE = 30
"""Single rows that are read from the disk."""


def measure(
    path: str | Path,
    fields: Sequence[str] | None,
    seconds: float,
    seed: int,
    **opening: Any,
) -> Cold | None:
    """Read rows by each strategy twice, in a slab that is opened after its pages were dropped.

    The first time they come from the disk, and are compared with their digests; the second time
    neither. None where the system cannot drop pages, or keeps them.
    """
    if not can_drop():
        return None
    slab, chosen = opened(path, fields, **opening)
    per_row, total, arrays = row_bytes(slab, chosen, seed), len(slab), files(slab)
    batch = int(min(max(_BATCH_BYTES / max(per_row, 1), 1), USUAL))
    del slab
    left = drop(arrays)
    if left > 0.5:
        return None
    slab = opened(path, chosen, **opening)[0]
    first = _single_rows(slab, chosen, seconds / 8, seed)
    del slab
    each = seconds / (len(ORDERS) * _ROUNDS * 2)
    times: dict[tuple[str, str], list[float]] = {}
    started = time.perf_counter()
    for turn in range(_ROUNDS):
        if time.perf_counter() - started > seconds:
            break
        for strategy in ORDERS:
            left = max(left, drop(arrays))
            rows = subset(strategy, total, min(_ROWS, max(total, batch)), batch, seed + turn)
            slab = opened(path, chosen, **opening)[0]
            read, cold = _read(slab, rows, batch, chosen, each)
            _, warm = _read(slab, rows[:read], batch, chosen, each)
            del slab
            times.setdefault(("cold", strategy), []).append(cold)
            times.setdefault(("warm", strategy), []).append(warm)
    speeds = {
        key: Speed(key[1], batch, batch * per_row, Spread.of(batch_seconds))
        for key, batch_seconds in times.items()
    }
    return Cold(
        batch,
        left,
        [speeds["cold", strategy] for strategy in ORDERS],
        [speeds["warm", strategy] for strategy in ORDERS],
        Spread.of(first),
    )


def _single_rows(slab: Slab, fields: Sequence[str], seconds: float, seed: int) -> list[float]:
    """Seconds of `slab[row]`, far apart, so that none brings the next along."""
    total = len(slab)
    columns = [slab[name] for name in fields]
    rows = subset("stratified", total, min(_SINGLE, total), 1, seed)
    row_seconds: list[float] = []
    for row in np.random.default_rng(seed).permutation(rows).tolist():
        started = time.perf_counter()
        for column in columns:
            column[row]
        row_seconds.append(time.perf_counter() - started)
        if sum(row_seconds) > seconds:
            break
    return row_seconds


def _read(
    slab: Slab, rows: np.ndarray, batch: int, fields: Sequence[str], seconds: float
) -> tuple[int, float]:
    """Rows that a loader handed over in so much time, in whole batches, and seconds a batch."""
    done = 0
    started = time.perf_counter()
    with Loader(slab, batch, Subset(rows, seed=None), fields=fields) as loader:
        for loaded in loader:
            done += len(loaded.rows)
            took = time.perf_counter() - started
            if took > seconds:
                break
    return done, took * batch / done
