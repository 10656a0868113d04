"""What bounds a loader, and how near it comes: memcpy into one buffer, and a step that never waits.

Run as a program: `python -m fieldslab.bench.limits [--quick] [--json FILE]`. It makes its own data,
larger than the last-level cache. Calls of a kind take turns.
"""

import hashlib
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from fieldslab.bench.gather import BATCH_ROWS, KIB, make_slab
from fieldslab.bench.loader import MIB, show
from fieldslab.bench.spans import Spans, written_pages
from fieldslab.bench.timing import Ratio, interleave, program, ratio
from fieldslab.reader import Loader, Shuffled, Slab

STEP = 6e-3
MARKS = {
    "62 KiB rows, loader of 1 thread / memcpy into one buffer": "at least 0.9",
    "62 KiB rows, loader of 2 threads / memcpy into one buffer": "at least 0.9",
    "1 KiB rows, loader of 1 thread / memcpy into one buffer": "at least 0.7",
    "tokens, loader of 1 thread / memcpy into one buffer": "at least 0.7",
    "tokens, loader of 1 thread and to_padded / memcpy into one buffer": "at least 0.5",
    "addresses, 1 KiB rows in batches of 256, million rows/s": "at least 50",
    "6 ms step beside a free core: data wait, %": "below 0.5",
}


def make_copies(slab: Slab, threads: int) -> Callable[[], None]:
    """Copy all rows in random batches with as many threads, each into one buffer of its own."""
    rows = Shuffled(1).rows(0, 0, len(slab), len(slab))
    starts = range(0, len(rows) - BATCH_ROWS + 1, BATCH_ROWS)
    spans = [Spans(slab, rows[start : start + BATCH_ROWS], ["data"]) for start in starts]
    room = max(each.nbytes for each in spans)
    shares = [(spans[part::threads], written_pages(room)) for part in range(threads)]
    pool = ThreadPoolExecutor(threads)

    def copy(share: tuple[list[Spans], np.ndarray]) -> None:
        for each in share[0]:
            each.copy(share[1])

    return lambda: list(pool.map(copy, shares)).clear()


def make_reads(
    slab: Slab, threads: int, use: Callable[[Any], Any] = lambda batch: None
) -> Callable[[], None]:
    """Take an epoch of a shuffled loader, and hold each batch until the next one comes."""
    loader = Loader(slab, BATCH_ROWS, Shuffled(0), threads=threads, drop_last=True)

    def read() -> None:
        for batch in loader:  # whose threads begin now: nothing was made in the turns of others
            use(batch)

    return read


def measure_copying(name: str, slab: Slab, rounds: int) -> dict[str, Ratio]:
    """Measure loaders of one and two threads beside as many threads that only copy."""
    slab.gather(range(len(slab)))  # touches every page, and verifies every block
    calls = {f"memcpy {threads}": make_copies(slab, threads) for threads in (1, 2)}
    calls |= {f"loader {threads}": make_reads(slab, threads) for threads in (1, 2)}
    if slab.fields["data"].variable:
        calls["padded"] = make_reads(slab, 1, lambda batch: batch["data"].to_padded())
    seconds = interleave(calls, rounds)
    results = {}
    for threads, words in ((1, "1 thread"), (2, "2 threads")):
        label = f"{name}, loader of {words} / memcpy into one buffer"
        results[label] = ratio(seconds[f"loader {threads}"], seconds[f"memcpy {threads}"])
    if "padded" in calls:
        label = f"{name}, loader of 1 thread and to_padded / memcpy into one buffer"
        results[label] = ratio(seconds["padded"], seconds["memcpy 1"])
    return results


def measure_addresses(slab: Slab, rounds: int) -> float:
    """Measure millions of rows a second whose addresses are found, 256 at a time."""
    rows = np.random.default_rng(0).integers(0, len(slab), (rounds, BATCH_ROWS))
    batches = cycle(rows)
    seconds = interleave({"find": lambda: slab.addresses(next(batches), "data")}, rounds, warm=100)
    return BATCH_ROWS / median(seconds["find"]) / 1e6


def measure_wait(slab: Slab, steps: int, rounds: int) -> dict[str, float]:
    """Wait of a step that uses one core and no Python, without the first batch of an epoch."""
    data = bytes(2**24)
    started = time.perf_counter()
    hashlib.sha256(data).digest()
    work = memoryview(data)[: int(len(data) * min(STEP / (time.perf_counter() - started), 1))]
    shares = []
    for _ in range(rounds):
        waited = 0.0
        with Loader(slab, 64, Shuffled(0), threads=1) as loader:
            batches = iter(loader)
            next(batches)
            began = time.perf_counter()
            for _ in range(steps):
                hashlib.sha256(work).digest()
                asked = time.perf_counter()
                next(batches)
                waited += time.perf_counter() - asked
            shares.append(100 * waited / (time.perf_counter() - began))
    low, middle, high = np.percentile(shares, [25, 50, 75]).tolist()
    label = "6 ms step beside a free core: data wait, %"
    return {label: middle, f"{label}: lower quartile": low, f"{label}: upper quartile": high}


def run(quick: bool = False) -> dict[str, Any]:
    """Measure everything and print it; the result is ready for JSON."""
    size, rounds = (256 * MIB, 5) if quick else (2048 * MIB, 11)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="fieldslab-bench-") as name:
        path = Path(name) / "data.slab"
        slab = make_slab(path, 62 * KIB, False, size)
        results |= measure_copying("62 KiB rows", slab, rounds)
        results |= measure_wait(slab, min(100, len(slab) // 64 - 2), rounds)
        results |= measure_copying("tokens", make_slab(path, 2 * KIB, True, size // 4), rounds)
        slab = make_slab(path, KIB, False, size // 4)
        results |= measure_copying("1 KiB rows", slab, rounds)
        label = "addresses, 1 KiB rows in batches of 256, million rows/s"
        results[label] = measure_addresses(slab, 5000)
    show(results, MARKS)
    return results


if __name__ == "__main__":
    program(run, __doc__)
