"""How fast batches are gathered, beside a memcpy of the same bytes in the same order.

Run as a program: `python -m fieldslab.bench.gather [--quick] [--json FILE]`. It makes its own
data, and every ratio compares calls that ran in turns within this one run.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from fieldslab.bench.timing import Ratio, interleave, ratio
from fieldslab.packer import pack
from fieldslab.reader import Slab, open_slab
from fieldslab.reader.array import address_of
from fieldslab.reader.buffers import Pool
from fieldslab.reader.jit import kernel, memcpy

KIB = 1024
BATCH_ROWS = 256
MOST_BATCH_BYTES = 32 * KIB * KIB

FIRST_GATHER = """
import sys, time, numba, numpy
from fieldslab.reader import open_slab
slab = open_slab(sys.argv[1])
started = time.perf_counter()
slab.gather([1, 0])
print(time.perf_counter() - started)
"""


@kernel("void(int64[::1], int64[::1], int64)")
def copy_spans(addresses: np.ndarray, lengths: np.ndarray, out: int) -> None:
    """Copy spans of memory one behind the other: the least that a gather has to do."""
    for i in range(len(addresses)):
        memcpy(out, addresses[i], lengths[i])
        out += lengths[i]


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


def measure(slab: Slab, case: Case, rounds: int) -> dict[str, Any]:
    """Gather every row once in random order, and copy the same bytes; compare."""
    size = min(BATCH_ROWS, MOST_BATCH_BYTES // case.row_bytes)
    order = np.random.default_rng(0).permutation(len(slab))
    batches = [order[start : start + size] for start in range(0, len(order), size)]
    spans = [_spans(slab, rows) for rows in batches]
    total = sum(int(lengths.sum()) for _, lengths in spans)
    room = max(int(lengths.sum()) for _, lengths in spans)

    def gather(part: int) -> None:
        batch = None  # the batch before is held while the next is made, as a training loop does
        for rows in batches[part :: case.threads]:
            batch = slab.gather(rows)
        del batch

    outs = [slab.buffers(size) for _ in range(case.threads)]

    def gather_out(part: int) -> None:
        for rows in batches[part :: case.threads]:
            slab.gather(rows, out=outs[part])

    memory = Pool()  # pages of the same kind as those of batches
    targets = [[_warm(memory, room) for _ in range(2)] for _ in range(case.threads)]

    def copy(part: int) -> None:
        for turn, span in enumerate(spans[part :: case.threads]):
            copy_spans(*span, address_of(targets[part][turn % 2]))

    with ThreadPoolExecutor(case.threads) as pool:
        calls = {"gather": gather, "out": gather_out, "memcpy": copy}
        seconds = interleave(
            {name: _on_threads(pool, call, case.threads) for name, call in calls.items()}, rounds
        )
    return {
        "case": str(case).strip(),
        "memcpy_gb_s": total / median(seconds["memcpy"]) / 1e9,
        "gather_gb_s": total / median(seconds["gather"]) / 1e9,
        "ratio": ratio(seconds["gather"], seconds["memcpy"]),
        "ratio_out": ratio(seconds["out"], seconds["memcpy"]),
    }


def _spans(slab: Slab, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    addresses, lengths = slab.addresses(rows, "data")
    return addresses.view(np.int64), lengths


def _warm(memory: Pool, size: int) -> np.ndarray:
    pages = memory.empty(None, (size,), np.dtype(np.uint8))
    pages[:] = 1
    return pages


def _on_threads(
    pool: ThreadPoolExecutor, call: Callable[[int], None], threads: int
) -> Callable[[], Any]:
    if threads == 1:
        return lambda: call(0)
    return lambda: list(pool.map(call, range(threads)))


def measure_take(slab: Slab, rounds: int) -> Ratio:
    """Rows of 1 KiB, beside `numpy.take` on the mapped array into a buffer."""
    mapped = np.asarray(slab["data"])
    order = np.random.default_rng(0).permutation(len(slab))
    batches = [order[start : start + 1024] for start in range(0, len(order) - 1023, 1024)]
    out = np.ones((1024, mapped.shape[1]), mapped.dtype)

    def gather() -> None:
        batch = None
        for rows in batches:
            batch = slab.gather(rows)
        del batch

    def take() -> None:
        for rows in batches:
            np.take(mapped, rows, axis=0, mode="clip", out=out)

    seconds = interleave({"gather": gather, "take": take}, rounds)
    return ratio(seconds["gather"], seconds["take"])


def measure_verify(path: Path, rounds: int) -> dict[str, Ratio]:
    """Gathers with digests on, beside gathers without: the first pass, and those after."""
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


def measure_growth(slab: Slab, gathers: int) -> float:
    """MB by which anonymous memory grows over many gathers; 0 where the system does not tell."""
    rng = np.random.default_rng(0)
    before = _anonymous_bytes()
    for _ in range(gathers):
        slab.gather(rng.integers(0, len(slab), 8))
    return (_anonymous_bytes() - before) / 1e6


def _anonymous_bytes() -> int:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * KIB for line in lines if line.startswith("RssAnon"))


def measure_latency(folder: Path) -> dict[str, float]:
    """Opening slabs of a thousand and a million rows, single rows, and the first gather."""
    results = {}
    for rows in (1_000, 1_000_000):
        path = folder / f"{rows}.slab"
        pack([pa.record_batch(_mixed(rows))], path)
        seconds = interleave({"open": partial(open_slab, path)}, 20)
        results[f"open {rows:,} rows, ms"] = median(seconds["open"]) * 1e3
    slab = open_slab(path)
    picks = iter(np.random.default_rng(0).integers(0, len(slab), 4000).tolist())
    seconds = interleave({"row": lambda: slab[next(picks)]}, 3000, warm=1000)
    results["one row of 6 fields, us"] = median(seconds["row"]) * 1e6
    cache = folder / "numba"
    for state in ("empty", "warm"):
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
        done = subprocess.run(
            [sys.executable, "-c", FIRST_GATHER, path],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        results[f"first gather, numba cache {state}, s"] = float(done.stdout)
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
    total = (128 if quick else 512) * KIB * KIB
    rounds = 7 if quick else 15
    results: dict[str, Any] = {"cases": []}
    print(f"{'rows':<34} {'memcpy':>9} {'gather':>9}   gather / memcpy     with out=")
    with tempfile.TemporaryDirectory(prefix="fieldslab-bench-") as name:
        path = Path(name) / "data.slab"
        for case in CASES:
            if case.threads == 1:
                slab = make_slab(path, case.row_bytes, case.variable, total)
            measured = measure(slab, case, rounds)
            results["cases"].append(measured)
            print(
                f"{case!s:<34} {measured['memcpy_gb_s']:4.1f} GB/s {measured['gather_gb_s']:4.1f}"
                f" GB/s   {measured['ratio']!s:<17}   {measured['ratio_out']!s}"
            )
        growth = measure_growth(slab, 1_000 if quick else 10_000)
        single: dict[str, Any] = {"RssAnon growth over gathers of 800 KiB rows, MB": growth}
        slab = make_slab(path, 64 * KIB, False, total)
        single |= measure_verify(path, rounds)
        slab = make_slab(path, KIB, False, total)
        single["fixed 1 KiB, gather / numpy.take"] = measure_take(slab, rounds)
        single |= measure_latency(Path(name))
    for label, value in single.items():
        print(f"{label:<50} {value if isinstance(value, Ratio) else format(value, '.3g')}")
    return results | single


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less data, fewer rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    options = parser.parse_args()
    results = run(options.quick)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
