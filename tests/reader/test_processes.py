"""Slabs in several processes and threads."""

import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.slabs import array_path, flip, write_slab

from fieldslab.reader import Slab, open_slab
from fieldslab.schemas.errors import DamagedArray

# From Python 3.12 on, forking warns where threads run: that is what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

ROWS, WIDTH = 500, 30_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A slab of 15 MB in three shards, with fixed and variable rows."""
    values = np.random.default_rng(0).integers(0, 256, (ROWS, WIDTH), np.uint8)
    blobs = [row.tobytes()[: 100 * number] for number, row in enumerate(values % 7)]
    return write_slab(tmp_path / "x.slab", {"x": values, "b": blobs}, [200, 1, 299])


def total(slab: Slab, seed: int) -> list[int]:
    """Sums of ten random batches."""
    rng, sums = np.random.default_rng(seed), []
    for _ in range(10):
        batch = slab.gather(rng.integers(0, len(slab), 40))
        sums.append(int(batch["x"].sum()) + int(batch["b"].values.sum()))
    return sums


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_slab_goes_to_other_processes(path: Path, method: str) -> None:
    """A slab, used before or not, gives the same batches in forked and spawned processes."""
    slab = open_slab(path)
    wanted = [total(slab, seed) for seed in range(2)]
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.starmap(total, [(slab, seed) for seed in range(2)]) == wanted


def in_child(work: Any) -> int:
    """Run `work` in a forked child; return its exit status."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if work() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_writes_into_memory_of_its_own(path: Path) -> None:
    """Batches of parent and child never share memory, whichever was made before the fork."""
    slab = open_slab(path)
    batch = slab.gather(range(40), ["x"])
    values: Any = batch["x"]
    wanted = values.copy()

    def work() -> bool:
        same = np.array_equal(values, wanted)
        values[:] = 1
        batches = [slab.gather(range(200, 240), ["x"]) for _ in range(3)]
        return same and not any(np.shares_memory(batch["x"], values) for batch in batches)

    slab.gather(range(40, 80))  # dropped at once: idle memory is inherited too
    assert in_child(work) == 0
    assert np.array_equal(values, wanted)
    assert slab.storage.pool.idle_bytes > 0


def test_a_child_forked_while_locks_are_held_goes_on(path: Path) -> None:
    """Locks that another thread held during the fork do not stop the child."""
    slab = open_slab(path)
    storage = slab.storage
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with storage._lock, storage.pool._lock:
            held.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert in_child(lambda: slab.gather(range(60)).rows.sum() == 1770) == 0
    finally:
        release.set()
        thread.join()


def test_threads_gather_at_once(path: Path) -> None:
    """Eight threads that share a slab, from its first use on, get what one thread gets."""
    wanted = [total(open_slab(path, verify=False), seed) for seed in range(24)]
    slab = open_slab(path)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            actual = list(pool.map(lambda seed: total(slab, seed), range(24)))
    finally:
        sys.setswitchinterval(interval)
    assert actual == wanted
    marks = slab.storage.load_field("x").values.marks
    assert marks is not None
    assert marks.complete


def test_threads_all_see_damage(path: Path) -> None:
    """A damaged block raises in every thread, and in none of them twice is it let through."""
    flip(array_path(path, "x", "values", 2), 290 * WIDTH)
    slab = open_slab(path)

    def hurt(seed: int) -> int:
        rng, errors = np.random.default_rng(seed), 0
        for _ in range(20):
            try:
                slab.gather([*rng.integers(0, 480, 8), 201 + 290])
            except DamagedArray:
                errors += 1
        return errors

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(hurt, range(16))) == [20] * 16


def test_subinterpreters_are_refused(path: Path) -> None:
    """A subinterpreter gets an error that says what to do, and the process ends."""
    script = '''
import importlib, sys
for name in ("_interpreters", "_xxsubinterpreters"):
    try:
        interpreters = importlib.import_module(name)
    except ImportError:
        continue
    break
code = f"""
import warnings
warnings.simplefilter("ignore")
from fieldslab.reader import open_slab
from fieldslab.schemas.errors import UsageError
try:
    slab = open_slab({sys.argv[1]!r})
except UsageError as error:
    print(error, flush=True)
"""
run = getattr(interpreters, "exec", None) or interpreters.run_string
run(interpreters.create(), code)
'''
    command = [sys.executable, "-c", script, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "in a subinterpreter" in done.stdout
    assert "threads, or in processes" in done.stdout
