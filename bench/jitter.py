"""Does loading disturb training? A step of pure Python beside loaders, in threads and isolated.

Run as a program: `python -m fieldslab.bench.jitter [--quick] [--json FILE]`. It makes its own data.
The step is Python in slices, as launching kernels is; each loader makes batches beside it as fast
as they are taken. Figures are medians over rounds in which the step without a loader and the step
beside each loader take turns.
"""

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fieldslab.bench.gather import KIB, make_slab
from fieldslab.bench.loader import MIB, show
from fieldslab.bench.photographs import photographs
from fieldslab.bench.timing import interleave, program, ratio
from fieldslab.packer import pack
from fieldslab.reader import Loader, Normalize, RandomResizedCrop, Shuffled, open_slab

SLICES, LOOPS = 60, 2500
"""A step is so many slices, each of so many turns of a loop: about 125 us."""
PHOTOGRAPHS = 64
LOADERS = {
    "1 thread": {"threads": 1},
    "2 threads": {"threads": 2},
    "4 threads": {"threads": 4},
    "isolate, 1 thread": {"threads": 1, "isolate": True},
    "isolate, 2 threads": {"threads": 2, "isolate": True},
}
STEP = "step, without waits for a core"
SUMMARIES: dict[str, Callable[[np.ndarray], float]] = {
    "step": lambda slices: float(np.median(slices[..., 0].sum(axis=1))),
    STEP: lambda slices: float(np.median(slices[..., 1].sum(axis=1))),
    "slice, p99, without waits for a core": lambda slices: float(np.percentile(slices[..., 1], 99)),
}
"""What is said of slices: float64[steps, slices, 2], see `run_step`."""
MARKS = {
    f"{rows}, beside {loader} / alone: {STEP}": "below 1.02"
    for rows in ("1 KiB rows", "62 KiB rows", "photographs")
    for loader in LOADERS
    if "isolate" in loader
}


def make_loaders(folder: Path, size: int) -> dict[str, Callable[..., Loader]]:
    """Return functions that make a loader of each kind of rows: raw small, large, decoded."""
    slabs = {
        f"{kib} KiB rows": make_slab(folder / f"{kib}.slab", kib * KIB, False, size)
        for kib in (1, 62)
    }
    files = pa.table({"image": pa.array(photographs(PHOTOGRAPHS), pa.binary())})
    pack(files, folder / "photographs.slab", image="image")
    slabs["photographs"] = open_slab(folder / "photographs.slab")
    crop = {"image": [RandomResizedCrop(224), Normalize()]}

    def make(rows: str, **options: Any) -> Loader:
        if rows == "photographs":
            return Loader(slabs[rows], 16, Shuffled(0), decode=crop, **options)
        return Loader(slabs[rows], 256 if rows == "1 KiB rows" else 64, Shuffled(0), **options)

    return {rows: partial(make, rows) for rows in slabs}


class Clock:
    """Times of the thread that made it."""

    def __init__(self) -> None:
        try:
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        except OSError:  # not on Linux
            self._file = -1

    def read(self) -> tuple[float, float]:
        """Read the time: seconds, and seconds without those spent waiting for a core."""
        now, waited = time.perf_counter(), 0.0
        if self._file >= 0:
            waited = 1e-9 * int(os.pread(self._file, 64, 0).split()[1])
        return now, now - waited


def run_step(clock: Clock) -> list[tuple[float, float]]:
    """Run a step; seconds of each slice, and the same without those spent waiting for a core."""
    slices = []
    for _ in range(SLICES):
        started, ran = clock.read()
        total = 0
        for number in range(LOOPS):
            total += number & 7
        ended, ran_until = clock.read()
        slices.append((ended - started, ran_until - ran))
    return slices


def measure_disturbance(make: Callable[..., Loader], rounds: int, steps: int) -> dict[str, Any]:
    """Measure how many times as long a step takes beside each loader as without one.

    A step that does nothing but Python gives up its core by itself only where it waits for the
    interpreter's lock; how often it does so is steady on a busy machine, too, where times are not.
    """
    clock = Clock()
    loaders = {name: make(**options) for name, options in LOADERS.items()}
    sources: dict[str, Iterator[Any]] = {"alone": repeat(None)}
    sources |= {name: chain.from_iterable(repeat(loader)) for name, loader in loaders.items()}
    taken: dict[str, list[np.ndarray]] = {name: [] for name in sources}

    waits: dict[str, list[int]] = {name: [] for name in sources}

    def run(name: str) -> None:
        time.sleep(0.05)  # loaders of earlier rounds fill their queues and stop
        slices, waited = [], 0
        for _, _batch in zip(range(steps), sources[name], strict=False):
            before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
            slices.append(run_step(clock))
            waited += resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before
        taken[name].append(np.array(slices))
        waits[name].append(waited)

    interleave({name: partial(run, name) for name in sources}, rounds, warm=1)
    for loader in loaders.values():
        loader.close()
    results: dict[str, Any] = {
        f"beside {name}: waits for the lock in a step": float(np.mean(waits[name][1:])) / steps
        for name in loaders
    }
    for label, summarize in SUMMARIES.items():
        measured = {name: [summarize(each) for each in taken[name][1:]] for name in taken}
        results[f"alone, ms: {label}"] = 1e3 * float(np.median(measured["alone"]))
        for name in loaders:
            results[f"beside {name} / alone: {label}"] = ratio(measured["alone"], measured[name])
    return results


def measure_throughput(make: Callable[..., Loader], rounds: int, epochs: int) -> dict[str, Any]:
    """Measure isolated loaders beside those of as many threads, when nothing else runs."""

    def read(loader: Loader) -> Callable[[], None]:
        def run() -> None:
            for _ in range(epochs):
                for _ in loader:
                    pass

        return run

    loaders = {name: make(**LOADERS[name]) for name in LOADERS if not name.startswith("4")}
    seconds = interleave({name: read(loader) for name, loader in loaders.items()}, rounds)
    for loader in loaders.values():
        loader.close()
    return {
        f"throughput: isolate / threads, {name}": ratio(seconds[f"isolate, {name}"], seconds[name])
        for name in ("1 thread", "2 threads")
    }


def run(quick: bool = False) -> dict[str, Any]:
    """Measure everything and print it; the result is ready for JSON."""
    if sys.platform != "linux":
        print("not measured: isolated loaders need Linux")
        return {}
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="fieldslab-bench-") as name:
        makers = make_loaders(Path(name), (32 if quick else 128) * MIB)
        for rows, make in makers.items():
            measured = measure_disturbance(make, 3 if quick else 9, 10 if quick else 20)
            measured |= measure_throughput(make, 3 if quick else 7, 4 if "photo" in rows else 1)
            results |= {f"{rows}, {label}": value for label, value in measured.items()}
    show(results, MARKS)
    return results


if __name__ == "__main__":
    program(run, __doc__)
