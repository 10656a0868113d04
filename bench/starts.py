"""How long a fresh process takes until it has its first batch: import, compile or load, read.

Run as a program: `python -m fieldslab.bench.starts [--quick] [--json FILE]`. It makes its own
slab and caches. Each figure is that of whole processes, with their interpreter and all imports, one
after the other. With numba's cache empty, kernels are compiled that did not come with the package:
see `fieldslab warm` and FIELDSLAB_MACHINE_CODE.
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fieldslab.bench.loader import MIB, show
from fieldslab.bench.photographs import repeated_photographs
from fieldslab.bench.timing import Ratio, program
from fieldslab.packer import pack

GATHER = """
import sys
from fieldslab.reader import open_slab
open_slab(sys.argv[1]).gather([1, 0], ["label"])
"""
LOADER = """
import sys
from fieldslab.reader import Loader, RandomResizedCrop, open_slab
steps = {} if sys.argv[2] == "raw" else {"image": RandomResizedCrop(224)}
next(iter(Loader(open_slab(sys.argv[1]), 64, decode=steps)))
"""
FIRSTS = {
    "gather": (GATHER, ""),
    "batch of a Loader": (LOADER, "raw"),
    "RandomResizedCrop batch": (LOADER, "crop"),
}
"""What is timed: its program, and how it is to read."""
MARKS = {
    "fresh process, import to first batch of a Loader, numba cache empty, s": "at most 1.5",
    "fresh process, import to first batch of a Loader, numba cache warm, s": "at most 0.5",
    "fresh process, import to first RandomResizedCrop batch, numba cache empty, s": "at most 6",
    "fresh process, import to first RandomResizedCrop batch, numba cache warm, s": "at most 1.0",
}


def time_process(code: str, *arguments: str, **environment: str) -> tuple[float, float]:
    """Run a fresh interpreter; return its seconds, and those of processors."""
    command = [sys.executable, "-P", "-c", code, *arguments]
    started = time.perf_counter()
    process = os.posix_spawn(sys.executable, command, os.environ | environment)
    _, status, usage = os.wait4(process, 0)
    if status:
        raise RuntimeError(f"a first batch failed with status {status}")
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime


def measure_starts(slab: Path, folder: Path, empty: int, warm: int) -> dict[str, Ratio]:
    """Measure seconds to the first batch, in fresh processes with empty and warm caches."""
    results = {}
    for name, (code, way) in FIRSTS.items():
        times: dict[str, list[tuple[float, float]]] = {"empty": [], "warm": []}
        for turn in range(max(empty, warm)):
            cache = str(folder / f"numba-{way}-{min(turn, empty - 1)}")
            if turn < empty:
                times["empty"].append(time_process(code, str(slab), way, NUMBA_CACHE_DIR=cache))
            if turn < warm:
                times["warm"].append(time_process(code, str(slab), way, NUMBA_CACHE_DIR=cache))
        for state, measured in times.items():
            label = f"fresh process, import to first {name}, numba cache {state}"
            for unit, values in zip(("s", "processor s"), zip(*measured, strict=True), strict=True):
                low, middle, high = np.percentile(values, [25, 50, 75]).tolist()
                results[f"{label}, {unit}"] = Ratio(middle, low, high)
    times_of_numpy = [time_process("import numpy")[0] for _ in range(warm)]
    low, middle, high = np.percentile(times_of_numpy, [25, 50, 75]).tolist()
    return results | {"fresh process, import numpy, s": Ratio(middle, low, high)}


def run(quick: bool = False) -> dict[str, Any]:
    """Measure everything and print it; the result is ready for JSON."""
    with tempfile.TemporaryDirectory(prefix="fieldslab-bench-") as name:
        slab = Path(name) / "photographs.slab"
        files = list(repeated_photographs(8 * MIB, 64))
        image = pa.array(files, pa.large_binary())
        pack([pa.record_batch({"image": image, "label": np.arange(len(files))})], slab)
        results = measure_starts(slab, Path(name), 1 if quick else 3, 3 if quick else 9)
    show(results, MARKS)
    return results


if __name__ == "__main__":
    program(run, __doc__)
