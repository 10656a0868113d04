"""How fast batches are gathered, beside a memcpy of the same bytes in the same order.

Run as a program: `python -m fieldslab.bench.gather [--quick] [--json FILE]`. It makes its own
data, and every ratio compares calls that ran in turns within this one run.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from fieldslab.bench.spans import copy_spans, written_pages
from fieldslab.bench.timing import Ratio, interleave, program, ratio
from fieldslab.packer import pack
from fieldslab.reader import Batch, Slab, open_slab
from fieldslab.schemas.mapping import get_address

KIB = 1024
BATCH_ROWS = 256
MOST_BATCH_BYTES = 32 * KIB * KIB

GROWTH = """
import sys, numpy
from fieldslab.bench.machine import resident
from fieldslab.reader import open_slab
def anonymous():
    return resident()[0] / 1e6
slab = open_slab(sys.argv[1])
slab.gather([0])
before, rng = anonymous(), numpy.random.default_rng(0)
for _ in range(int(sys.argv[2])):
    batch = slab.gather(rng.integers(0, len(slab), 8))
print(anonymous() - before)
"""


@dataclass(frozen=True)
class Case:
    """Rows of one size: all the same, or between half and one and a half times `row_bytes`."""

    row_bytes: int
    variable: bool
    threads: int = 1

    def __str__(self) -> str:
        kind = "variable" if self.variable else "fixed"
        return f"{kind:<8} {self.row_bytes / KIB:6.0f} KiB, {self.threads} thread(s)"


CASES = [
    Case(row_bytes, variable, threads)
    for row_bytes in (16 * KIB, 64 * KIB, 110 * KIB, 800 * KIB)
    for variable in (False, True)
    for threads in (1, 2)
]


def make_slab(path: Path, row_bytes: int, variable: bool, total: int) -> Slab:
    """Pack random bytes into a slab with the one field `data`."""
    shutil.rmtree(path, ignore_errors=True)
    pack(_batches(row_bytes, variable, total), path)
    slab = open_slab(path)
    slab.gather(range(0, len(slab), max(len(slab) // 8, 1)))
    return slab


def _batches(row_bytes: int, variable: bool, total: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(row_bytes)
    for _ in range(max(total // MOST_BATCH_BYTES, 1)):
        rows = MOST_BATCH_BYTES // row_bytes
        lengths = np.full(rows, row_bytes)
        if variable:
            lengths = rng.integers(row_bytes // 2, row_bytes * 3 // 2, rows)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        values = pa.array(rng.integers(0, 256, offsets[-1], np.uint8))
        if variable:
            column = pa.LargeListArray.from_arrays(pa.array(offsets), values)
        else:
            column = pa.FixedSizeListArray.from_arrays(values, row_bytes)
        yield pa.record_batch({"data": column})


class Turns:
    """Batches of one thread: each call gathers or copies the next, a third of them apart.

    Bytes that one call left in the caches are therefore not those of the next.
    """

    def __init__(self, slab: Slab, batches: list[np.ndarray]) -> None:
        self._slab = slab
        spans = [_spans(slab, rows) for rows in batches]
        third = len(batches) // 3
        self._gathers = cycle(batches)
        self._outs = cycle(batches[third:] + batches[:third])
        self._spans = cycle(spans[-third:] + spans[:-third])
        self._batch: Batch | None = None
        self._out = slab.buffers(len(batches[0]))
        room = max(int(lengths.sum()) for _, lengths in spans)
        self._targets = cycle([written_pages(room), written_pages(room)])

    def gather(self) -> None:
        """Gather; the batch before is held meanwhile, as a training loop does."""
        self._batch = self._slab.gather(next(self._gathers))

    def gather_out(self) -> None:
        """Gather into the same buffers as before."""
        self._slab.gather(next(self._outs), out=self._out)

    def copy(self) -> None:
        """Copy the bytes of a batch to one of two places, as two batches in use have."""
        copy_spans(*next(self._spans), get_address(next(self._targets)))


def measure(slab: Slab, case: Case, passes: int) -> dict[str, Any]:
    """Gather random batches, and copy the bytes of random batches; compare."""
    size = min(BATCH_ROWS, MOST_BATCH_BYTES // case.row_bytes)
    order = np.random.default_rng(0).permutation(len(slab))
    batches = [order[start : start + size] for start in range(0, len(order) - size + 1, size)]
    slab.gather(order)  # touches every page, and verifies every block
    parts = [Turns(slab, batches[part :: case.threads]) for part in range(case.threads)]
    rounds = passes * len(batches) // case.threads

    def work(turns: Turns) -> dict[str, list[float]]:
        calls = {"gather": turns.gather, "out": turns.gather_out, "memcpy": turns.copy}
        return interleave(calls, rounds, warm=4)

    with ThreadPoolExecutor(case.threads) as pool:
        seconds_by_thread = list(pool.map(work, parts))
    seconds = {
        name: [second for part in seconds_by_thread for second in part[name]]
        for name in seconds_by_thread[0]
    }
    per_second = case.row_bytes * size * case.threads / 1e9
    return {
        "case": str(case),
        "memcpy_gb_s": per_second / median(seconds["memcpy"]),
        "gather_gb_s": per_second / median(seconds["gather"]),
        "ratio": ratio(seconds["gather"], seconds["memcpy"]),
        "ratio_out": ratio(seconds["out"], seconds["memcpy"]),
    }


def _spans(slab: Slab, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    addresses, lengths = slab.addresses(rows, "data")
    return addresses.view(np.int64), lengths


def measure_take(slab: Slab, passes: int) -> Ratio:
    """Measure rows of 1 KiB, beside `numpy.take` on the mapped array into a buffer."""
    mapped = np.asarray(slab["data"])
    order = np.random.default_rng(0).permutation(len(slab))
    batches = list(order[: len(order) // 1024 * 1024].reshape(-1, 1024))
    turns = Turns(slab, batches)
    taken = cycle(batches[len(batches) // 2 :] + batches[: len(batches) // 2])
    out = written_pages(1024 * KIB).reshape(1024, KIB)

    def take() -> None:
        np.take(mapped, next(taken), axis=0, mode="clip", out=out)

    seconds = interleave({"gather": turns.gather, "take": take}, passes * len(batches), warm=4)
    return ratio(seconds["gather"], seconds["take"])


def measure_verify(path: Path, rounds: int) -> dict[str, Ratio]:
    """Measure gathers with digests on, beside gathers without: the first pass, and those after."""
    plain, verified = open_slab(path, verify=False), open_slab(path)
    order = np.random.default_rng(0).permutation(len(plain))
    # Blocks of the other rows stay unverified, so that every batch has to look.
    batches = order[: BATCH_ROWS * 64].reshape(-1, BATCH_ROWS)

    def gather(slab: Slab) -> None:
        for rows in batches:
            slab.gather(rows)

    calls: dict[str, Callable[[], Any]] = {
        "off": partial(gather, plain),
        "on": partial(gather, verified),
        "first off": lambda: gather(open_slab(path, verify=False)),
        "first on": lambda: gather(open_slab(path)),
    }
    seconds = interleave(calls, rounds)
    return {
        "verify on / off": ratio(seconds["on"], seconds["off"]),
        "verify on / off, first touch": ratio(seconds["first on"], seconds["first off"]),
    }


def measure_growth(path: Path, gathers: int) -> float:
    """Measure the growth of anonymous memory over many gathers, in MB; Linux only."""
    return float(_python(GROWTH, path, gathers))


def _python(code: str, *arguments: object, **environment: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *map(str, arguments)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def measure_latency(folder: Path) -> dict[str, float]:
    """Measure opening slabs of a thousand and a million rows, and single rows."""
    results = {}
    for rows in (1_000, 1_000_000):
        path = folder / f"{rows}.slab"
        pack([pa.record_batch(_mixed(rows))], path)
        opened = interleave({"open": partial(open_slab, path)}, 20)
        results[f"open {rows:,} rows, ms"] = median(opened["open"]) * 1e3
    slab = open_slab(path)
    picks = iter(np.random.default_rng(0).integers(0, len(slab), 4000).tolist())
    single = interleave({"row": lambda: slab[next(picks)]}, 3000, warm=1000)
    results["one row of 6 fields, us"] = median(single["row"]) * 1e6
    return results


def _mixed(rows: int) -> dict[str, pa.Array]:
    numbers = np.arange(rows)
    text = pa.array([f"caption of row {number}" for number in range(1000)])
    tokens = pa.array([list(range(number % 20)) for number in range(1000)], pa.list_(pa.int32()))
    picks = pa.array(numbers % 1000)
    boxes = pa.array(np.arange(rows * 4, dtype=np.float32))
    return {
        "label": pa.array(numbers),
        "weight": pa.array(numbers.astype(np.float32)),
        "box": pa.FixedSizeListArray.from_arrays(boxes, 4),
        "caption": text.take(picks),
        "tokens": tokens.take(picks),
        "flag": pa.array(numbers % 2 == 0),
    }


def run(quick: bool = False) -> dict[str, Any]:
    """Measure everything and print it; the result is ready for JSON."""
    total = (128 if quick else 256) * KIB * KIB
    passes, rounds = (2, 7) if quick else (3, 15)
    results: dict[str, Any] = {"cases": []}
    print(f"{'rows':<34} {'memcpy':>9} {'gather':>9}   gather / memcpy     with out=")
    with tempfile.TemporaryDirectory(prefix="fieldslab-bench-") as name:
        path = Path(name) / "data.slab"
        for case in CASES:
            if case.threads == 1:
                slab = make_slab(path, case.row_bytes, case.variable, total)
            measured = measure(slab, case, passes)
            results["cases"].append(measured)
            print(
                f"{case!s:<34} {measured['memcpy_gb_s']:4.1f} GB/s {measured['gather_gb_s']:4.1f}"
                f" GB/s   {measured['ratio']!s:<17}   {measured['ratio_out']!s}"
            )
        growth = measure_growth(path, 1_000 if quick else 2_000)
        single: dict[str, Any] = {"RssAnon growth over gathers of 800 KiB rows, MB": growth}
        slab = make_slab(path, 64 * KIB, False, total)
        single |= measure_verify(path, rounds)
        slab = make_slab(path, KIB, False, total)
        single["fixed 1 KiB, gather / numpy.take"] = measure_take(slab, passes)
        single |= measure_latency(Path(name))
    for label, value in single.items():
        print(f"{label:<50} {value if isinstance(value, Ratio) else format(value, '.3g')}")
    return results | single


if __name__ == "__main__":
    program(run, __doc__)
