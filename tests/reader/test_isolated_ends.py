"""How programs end that have a loader with `isolate=True`: its process ends with them."""

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from tests.jpegs import encode
from tests.reader.loading import make_numbers, plain, run

from fieldslab.packer import pack
from fieldslab.reader import Loader, Normalize, RandomResizedCrop, Slab, open_slab
from fieldslab.schemas.errors import UsageError

PROGRAM = """
import os, sys, time
from fieldslab.reader import Loader, open_slab

def double(batch):
    return {"row": 2 * batch["row"]}

if __name__ == "__main__":
    loader = Loader(open_slab(sys.argv[1]), 3, fields=["row"], transforms=[double], isolate=True)
    batches = iter(loader)
    batch = next(batches)
    assert (batch["row"] == 2 * batch.rows).all()
    print("running", flush=True)
    time.sleep(60 if "sleep" in sys.argv else 0)
"""


@pytest.fixture
def numbers(tmp_path: Path) -> Slab:
    """A slab whose every value tells its row."""
    return make_numbers(tmp_path)


def write_program(folder: Path, text: str = PROGRAM) -> Path:
    """A program with a transform of its own."""
    (folder / "program.py").write_text(text)
    return folder / "program.py"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_process_ends_with_the_program(
    numbers: Slab, tmp_path: Path, number: signal.Signals
) -> None:
    """After Ctrl-C, or a program that was killed, its loader's process is gone within a second."""
    command = [sys.executable, str(write_program(tmp_path)), str(numbers.path), "sleep"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    (child,) = psutil.Process(process.pid).children()
    os.kill(process.pid, number)
    _, errors = process.communicate(timeout=20)
    child.wait(timeout=20)
    assert process.returncode == -number
    if number == signal.SIGINT:
        assert errors.rstrip().endswith("KeyboardInterrupt")
        assert errors.count("Traceback") == 1


def test_a_program_ends_in_mid_epoch(numbers: Slab, tmp_path: Path) -> None:
    """A program that just ends says nothing on standard error, and takes its process along."""
    command = [sys.executable, str(write_program(tmp_path)), str(numbers.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout == "running\n"
    assert done.stderr == ""


def test_a_program_without_a_guard_is_told(numbers: Slab, tmp_path: Path) -> None:
    """Where the process imports the program, one that does all at its top is told what to do."""
    text = PROGRAM.replace('__name__ == "__main__"', "True")
    command = [sys.executable, str(write_program(tmp_path, text)), str(numbers.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert 'if __name__ == "__main__"' in done.stderr.splitlines()[-1]
    assert done.stdout == ""


def test_a_forked_child_is_told_and_starts_anew(numbers: Slab) -> None:
    """After a fork in mid-epoch the parent goes on; the child is told so, and can iterate anew."""
    script = """
import os, sys, warnings
warnings.simplefilter("ignore")
from fieldslab.reader import Loader, open_slab
from fieldslab.schemas.errors import UsageError
loader = Loader(open_slab(sys.argv[1]), 5, threads=2, isolate=True)
batches = iter(loader)
batch = next(batches)
rows = batch.rows.tolist()
child = os.fork()
if child == 0:
    try:
        del batch
        next(batches)
        os._exit(2)
    except UsageError as error:
        good = "forked" in str(error)
    whole = [row for batch in loader for row in batch.rows.tolist()]
    loader.close()
    os._exit(0 if good and sorted(whole) == list(range(len(loader.slab))) else 1)
status = os.waitpid(child, 0)[1]
same = (batch["wide"][:, 0] // 9000 == batch.rows).all()
rows += [row for batch in batches for row in batch.rows.tolist()]
same &= (batch["wide"][:, 0] // 9000 == batch.rows).all()
print(os.waitstatus_to_exitcode(status), same, sorted(rows) == list(range(len(loader.slab))))
"""
    assert run(script, numbers.path) == "0 True True"


def test_a_forked_child_closes_nothing_of_others(numbers: Slab) -> None:
    """After a fork, a child closes no descriptors of a process that was killed before."""
    script = """
import os
from fieldslab.reader.loading.isolated import LoaderProcess
process = LoaderProcess()
process.kill()
files = [os.open(os.devnull, os.O_RDONLY) for _ in range(32)]
child = os.fork()
if child == 0:
    try:
        for file in files:
            os.fstat(file)
    except OSError:
        os._exit(1)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(files))
"""
    assert run(script, numbers.path) == "0 32"


def test_a_process_that_cannot_be_started_is_a_named_error(numbers: Slab) -> None:
    """The error says what to leave out, no descriptor stays open, and later it can be started."""
    script = """
import multiprocessing, os, sys
from fieldslab.reader import Loader, open_slab
from fieldslab.schemas.errors import WorkerDied
loader = Loader(open_slab(sys.argv[1]), 5, fields=["row"], isolate=True)
multiprocessing.set_executable("/nowhere/python")
for _ in range(2):
    files = os.listdir("/proc/self/fd")
    try:
        next(iter(loader))
    except WorkerDied as error:
        print(error)
    assert os.listdir("/proc/self/fd") == files
multiprocessing.set_executable(sys.executable)
print(sum(len(batch.rows) for batch in loader) == len(loader.slab))
"""
    first, second, third = run(script, numbers.path).splitlines()
    assert first == second
    assert "the loader's process cannot be started: No such file or directory" in first
    assert "Leave `isolate` out" in first
    assert third == "True"


def _iterate(path: Path) -> str:
    try:
        next(iter(Loader(open_slab(path), 5, isolate=True)))
    except UsageError as error:
        return str(error)
    return ""


def test_workers_of_others_refuse(numbers: Slab) -> None:
    """A worker, such as one of a DataLoader, is told to leave `isolate` out."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert "Leave `isolate` out" in pool.apply(_iterate, (numbers.path,))


def test_decoded_images_are_those_of_threads(tmp_path: Path) -> None:
    """Random crops of photographs are the same from another process, epoch after epoch."""
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (80 + 8 * k, 120, 3), np.uint8) for k in range(9)]
    pack([{"image": encode(each)} for each in pictures], tmp_path / "p.slab", image="image")
    slab = open_slab(tmp_path / "p.slab")
    options: Any = {"decode": {"image": [RandomResizedCrop(96), Normalize()]}}
    expected = Loader(slab, 4, **options)
    with Loader(slab, 4, isolate=True, **options) as loader:
        for _ in range(2):
            for batch, other in zip(loader, expected, strict=True):
                assert plain(batch) == plain(other)
        assert loader.stats().stages.keys() >= {"decode"}
