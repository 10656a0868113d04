"""How long a fresh process takes until it has its first batch: import, compile or load, read.

Run as a program: `python -m fieldslab.bench.starts [--quick] [--json FILE]`. It makes its own
slab and caches. Each figure is that of whole processes, with their interpreter and all imports, one
after the other. With numba's cache empty, a checkout compiles its kernels. A wheel brings their
machine code: one is built here, and measured with an empty cache, too.
"""

import os
import subprocess
import sys
import tempfile
import time
import zipfile
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
steps = {} if sys.argv[2] == "raw" else {"image": [RandomResizedCrop(224)]}
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
    "fresh process, import to first batch of a Loader, from a wheel, s": "at most 1.5",
    "fresh process, import to first RandomResizedCrop batch, from a wheel, s": "at most 6",
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


def install_wheel(folder: Path) -> Path:
    """Build a wheel with machine code for this machine, and unpack it; return where."""
    root = Path(__file__).resolve().parents[1]
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    environment = os.environ | {"FIELDSLAB_MACHINE_CODE": "1"}
    subprocess.run([*build, str(root)], env=environment, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def measure_starts(
    slab: Path, folder: Path, empty: int, warm: int, installed: Path | None = None
) -> dict[str, Ratio]:
    """Measure seconds to the first batch, in fresh processes with empty and warm caches.

    An `installed` package with machine code is measured as well, with an empty cache each time.
    """
    results = {}
    for name, (code, way) in FIRSTS.items():
        times: dict[str, list[tuple[float, float]]] = {"numba cache empty": []}
        times |= {"numba cache warm": []} | ({"from a wheel": []} if installed else {})
        for turn in range(max(empty, warm)):
            cache = str(folder / f"numba-{way}-{min(turn, empty - 1)}")
            if turn < empty:
                times["numba cache empty"].append(
                    time_process(code, str(slab), way, NUMBA_CACHE_DIR=cache)
                )
            if turn < warm:
                times["numba cache warm"].append(
                    time_process(code, str(slab), way, NUMBA_CACHE_DIR=cache)
                )
            if turn < warm and installed is not None:
                shipped = {"PYTHONPATH": str(installed), "NUMBA_CACHE_DIR": f"{cache}-{turn}"}
                times["from a wheel"].append(time_process(code, str(slab), way, **shipped))
        for state, measured in times.items():
            label = f"fresh process, import to first {name}, {state}"
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
        installed = None if quick else install_wheel(Path(name))
        results = measure_starts(slab, Path(name), 1 if quick else 3, 3 if quick else 9, installed)
    show(results, MARKS)
    return results


if __name__ == "__main__":
    program(run, __doc__)
