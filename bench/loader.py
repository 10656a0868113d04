"""The loader beside its parts: threads, prefetch, data that is not in memory, and the adapters.

Run as a program: `python -m fieldslab.bench.loader [--quick] [--json FILE]`. It makes its own
data, and every ratio compares calls that ran in turns within this one run. `MARKS` says what is
expected; the adapters are measured where torch and Grain are installed.
"""

import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from fieldslab.bench import machine
from fieldslab.bench.gather import KIB, make_slab
from fieldslab.bench.timing import Ratio, interleave, program, ratio
from fieldslab.reader import Batch, Loader, Mixed, Shuffled, Slab, Subset, open_slab
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.mapping import allocate_aligned, get_address

MIB = KIB * KIB
ROW_BYTES = 110 * KIB
CONSUMER, PREPARATION = 6e-3, 4e-3
SOURCES = 40
HELD = 4
"""Batches that a loader has at a time; to gather into the memory of as many is its share."""
MARKS = {
    "6 ms step, 4 ms preparation: with prefetch / without": "at least 1.47",
    "  data wait with prefetch, %": "below 1",
    "cold: loader, 2 threads, bytes read / byte used": "at most 1.1",
    "cold: loader, 2 threads, verify / pread, 2 threads": "at least 0.95",
    "cold: loader, 2 threads / default map": "at least 3",
    "DataLoader, each of 4 workers, RssAnon, MB": "below 60",
    "Grain, slab, RssAnon, MB": "at most half of the lists",
    "Grain, batches of a slab / Grain, Python lists": "at least 4",
}


def measure_threads(slab: Slab, batch_size: int, rounds: int) -> dict[str, Ratio]:
    """Measure loaders of one and two threads beside order and gathers alone."""
    order, total = Shuffled(0), len(slab)

    def bare() -> None:
        held: deque[Batch] = deque(maxlen=HELD)
        for start in range(0, total, batch_size):
            rows = order.rows(0, start, min(start + batch_size, total), total)
            held.append(slab.gather(rows))

    calls = {"bare": bare}
    for threads in (1, 2):
        calls[f"{threads}"] = _epoch(Loader(slab, batch_size, order, threads=threads))
    calls["none"] = _epoch(Loader(slab, batch_size, order, prefetch=0))
    sources = min(SOURCES, total)
    groups = {
        f"{n}": range(n * total // sources, (n + 1) * total // sources) for n in range(sources)
    }
    mixed = Mixed(dict.fromkeys(groups, 1.0), groups=groups, exhausted="drop")
    calls["mixed"] = _epoch(Loader(slab, batch_size, mixed, threads=1))
    seconds = interleave(calls, rounds)
    return {
        "loader without prefetch / bare gather": ratio(seconds["none"], seconds["bare"]),
        "loader of 1 thread / bare gather": ratio(seconds["1"], seconds["bare"]),
        "loader of 2 threads / bare gather": ratio(seconds["2"], seconds["bare"]),
        f"Mixed of {SOURCES} sources / Shuffled, 1 thread": ratio(seconds["mixed"], seconds["1"]),
    }


def _epoch(loader: Loader) -> Callable[[], None]:
    def run() -> None:
        loader.set_epoch(0)
        for _ in loader:
            pass

    return run


def measure_overlap(slab: Slab, batches: int) -> dict[str, float]:
    """Measure a consumer of 6 ms a batch and a preparation of 4 ms: throughput and data wait."""

    def slow(batch: Batch) -> dict[str, Any]:
        time.sleep(PREPARATION)
        return {}

    rows = slab[: batches * 8]
    seconds, stats = {}, {}
    for prefetch in (0, 3):
        loader = Loader(rows, 8, transforms=[slow], prefetch=prefetch, threads=2)
        next(iter(loader))
        loader.close()
        started = time.perf_counter()
        for _ in loader:
            time.sleep(CONSUMER)
        seconds[prefetch] = time.perf_counter() - started
        stats[prefetch] = loader.stats()
    return {
        "6 ms step, 4 ms preparation: with prefetch / without": seconds[0] / seconds[3],
        "  data wait with prefetch, %": stats[3].wait_percent,
        "  data wait without, %": stats[0].wait_percent,
    }


def drop(slab: Slab) -> float:
    """Have the system forget a slab's pages; the fraction that it still has."""
    for path in slab.path.rglob("*.npy"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return resident(slab)


def resident(slab: Slab) -> float:
    """Estimate by samples what share of a slab's first field is in memory."""
    from fieldslab.reader.loading import paging

    values = slab.storage.load_field(next(iter(slab.fields))).values
    pages = [
        get_address(values[shard]) + np.linspace(0, size - 1, 200).astype(np.int64)
        for shard, size in enumerate(values.sizes.tolist())
    ]
    in_memory = [
        paging.are_resident(page, page + 1, 4096) for page in np.concatenate(pages).reshape(-1, 1)
    ]
    return float(np.mean(in_memory))


def measure_cold(path: Path, batch_size: int, rounds: int) -> dict[str, Any]:
    """Measure reading a quarter of the rows, none in memory: default map, `pread`, loaders.

    What is measured is this machine's disk too; let nothing else use it.
    """
    order = Subset(fraction=0.25)

    def plain() -> None:
        slab = open_slab(path, verify=False)
        total = len(slab)
        for start in range(0, order.length(total), batch_size):
            stop = min(start + batch_size, order.length(total))
            slab.gather(order.rows(0, start, stop, total))

    def loader(read_ahead: int, threads: int, verify: bool = False) -> Callable[[], None]:
        def run() -> None:
            slab = open_slab(path, verify=verify)
            with Loader(slab, batch_size, order, threads=threads, read_ahead=read_ahead) as loader:
                for _ in loader:
                    pass

        return run

    def pread(threads: int) -> Callable[[], None]:
        def run() -> None:
            for _ in read_rows(path, batch_size, order, threads):
                pass

        return run

    calls = {
        "default map": plain,
        "pread, 1 thread": pread(1),
        "pread, 2 threads": pread(2),
        "loader, nothing read ahead": loader(0, 2),
        "loader, 1 thread": loader(4, 1),
        "loader, 2 threads": loader(4, 2),
        "loader, 2 threads, 16 ahead": loader(16, 2),
        "loader, 2 threads, verify": loader(4, 2, verify=True),
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    read_bytes: dict[str, list[int]] = {name: [] for name in calls}
    left = 0.0
    for _ in range(rounds):
        for name, call in calls.items():
            left = max(left, drop(open_slab(path)))
            before, started = machine.bytes_read(), time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - started)
            read_bytes[name].append(machine.bytes_read() - before)
    size = order.length(len(open_slab(path))) * ROW_BYTES / 1e9
    results: dict[str, Any] = {"cold: part still in memory before": left}
    verified = "loader, 2 threads, verify"
    for name in ("pread, 2 threads", "loader, 2 threads", verified):
        results[f"cold: {name}, bytes read / byte used"] = median(read_bytes[name]) / size / 1e9
    for name in ("loader, 2 threads", verified):
        results[f"cold: {name} / pread, 2 threads"] = ratio(
            seconds[name], seconds["pread, 2 threads"]
        )
    for name, taken in seconds.items():
        results[f"cold: {name}, GB/s"] = size / median(taken)
        if name != "default map":
            results[f"cold: {name} / default map"] = ratio(taken, seconds["default map"])
    return results


def read_rows(path: Path, batch_size: int, order: Subset, threads: int) -> Iterator[np.ndarray]:
    """Read batches (uint8[n, ROW_BYTES]) by `preadv`, a call a row, a batch a thread."""
    slab = open_slab(path)
    total, layout = len(slab), slab.manifest.shards
    files = [os.open(file, os.O_RDONLY) for file in sorted(path.glob("shard-*/*data.values.npy"))]
    first = np.cumsum([0, *(shard.rows for shard in layout)])

    def read(start: int) -> np.ndarray:
        rows = order.rows(0, start, min(start + batch_size, order.length(total)), total)
        batch = allocate_aligned(len(rows) * ROW_BYTES).reshape(-1, ROW_BYTES)
        shards = np.searchsorted(first, rows, side="right") - 1
        for out, shard, row in zip(batch, shards, rows - first[shards], strict=True):
            if os.preadv(files[shard], [out.data], HEADER + int(row) * ROW_BYTES) != ROW_BYTES:
                raise OSError("a row was not read whole")
        return batch

    try:
        with ThreadPoolExecutor(threads) as pool:
            yield from pool.map(read, range(0, order.length(total), batch_size))
    finally:
        for file in files:
            os.close(file)


def run(quick: bool = False) -> dict[str, Any]:
    """Measure everything and print it; the result is ready for JSON."""
    warm, cold = (128 * MIB, 256 * MIB) if quick else (512 * MIB, 512 * MIB)
    rounds = 3 if quick else 5
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="fieldslab-bench-") as name:
        path = Path(name) / "data.slab"
        for row_bytes, batch_size in ((KIB, 1024), (ROW_BYTES, 64)):
            slab = make_slab(path, row_bytes, False, warm)
            ratios = measure_threads(slab, batch_size, 2 * rounds)
            what = f"{row_bytes // KIB} KiB rows, {warm // MIB} MiB"
            results |= {f"{what}, {key}": ratios[key] for key in ratios}
        results |= measure_overlap(slab, 50 if quick else 200)
        make_slab(path, ROW_BYTES, False, cold)
        results |= measure_cold(path, 64, rounds)
    show(results)
    return results | measure_adapters(quick)


def measure_adapters(quick: bool) -> dict[str, Any]:
    """Measure PyTorch's DataLoader and Grain beside what people use there, if installed."""
    try:
        from fieldslab.bench import adapters
    except ModuleNotFoundError as error:
        print(f"adapters are not measured: {error.name} is not installed")
        return {}
    results = adapters.measure(quick)
    show(results)
    return results


def show(results: dict[str, Any], marks: dict[str, str] = MARKS) -> None:
    """Print results, each beside its mark."""
    for label, value in results.items():
        if isinstance(value, Ratio):
            text = str(value)
        else:
            text = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
        print(f"{label:<56} {text:<20} {marks.get(label, '')}".rstrip(), flush=True)


if __name__ == "__main__":
    program(run, __doc__)
