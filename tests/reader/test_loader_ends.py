"""How iterations end: errors, early exits, interrupts, forks; no thread is left behind."""

import gc
import itertools
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.reader.loading import ROWS, make_numbers, rows_of, run, threads, threads_end
from tests.slabs import array_path, flip

from fieldslab.reader import (
    Batch,
    Loader,
    Sequential,
    Shuffled,
    Slab,
    open_slab,
)
from fieldslab.schemas.errors import DamagedArray, UsageError


@pytest.fixture
def numbers(tmp_path: Path) -> Slab:
    """A slab whose every value tells its row."""
    return make_numbers(tmp_path)


def test_damage_reaches_the_consumer(numbers: Slab) -> None:
    """The batches before a damaged row arrive; then its error does, with field, row and batch."""
    flip(array_path(numbers.path, "wide", shard=1), offset=20 * 72_000)
    fresh = open_slab(numbers.path)
    loader = Loader(fresh, 10, Sequential(), threads=3)
    arrived: list[Batch] = []
    with pytest.raises(DamagedArray) as caught:
        arrived.extend(loader)  # keeps what came before the error
    assert caught.value.context["field"] == "wide"
    assert "60" in str(caught.value.context["row"]) or "59" in str(caught.value.context["row"])
    assert "batch" in caught.value.__notes__[0]
    assert rows_of(arrived) == list(range(10 * len(arrived)))
    assert threads_end()


@pytest.mark.parametrize("prefetch", [0, 3])
def test_an_error_in_a_transform_keeps_its_type(numbers: Slab, prefetch: int) -> None:
    """What a user's function raises arrives as it is, with a note that names the batch."""

    def refuse(batch: Batch) -> dict[str, Any]:
        if 50 in batch.rows:
            raise ZeroDivisionError("row fifty")
        return {}

    loader = Loader(numbers, 10, Sequential(), transforms=[refuse], prefetch=prefetch)
    batches = iter(loader)
    assert rows_of(itertools.islice(batches, 5)) == list(range(50))
    with pytest.raises(ZeroDivisionError, match="row fifty") as caught:
        next(batches)
    assert "batch 5 of epoch 0: positions 50..59 of Sequential()" in caught.value.__notes__[0]
    assert loader.state_dict()["position"] == 50
    assert next(batches, None) is None
    assert threads_end()


def test_a_transform_must_return_fields(numbers: Slab) -> None:
    """A function that returns no mapping, or nothing callable at all, is named."""
    loader = Loader(numbers, 10, transforms=[lambda batch: None])  # type: ignore[list-item, return-value]
    with pytest.raises(UsageError, match="must return a mapping"):
        next(iter(loader))
    with pytest.raises(UsageError, match="function of a batch"):
        Loader(numbers, 10, transforms=["x"])  # type: ignore[list-item]


def broken_off(loader: Loader) -> None:
    """Leave the loop early."""
    for _ in loader:
        break


def collected(loader: Loader) -> None:
    """Drop an iteration that is part of a reference cycle."""
    cycle: dict[str, Any] = {"batches": iter(loader)}
    cycle["self"] = cycle
    next(cycle["batches"])
    del cycle
    gc.collect()


def closed(loader: Loader) -> None:
    """Close while an iteration is held."""
    with loader:
        batches = iter(loader)
        next(batches)
    assert not threads()
    assert next(batches, None) is None


def closed_after_a_break(loader: Loader) -> None:
    """Leave the loop early, then close."""
    with loader:
        broken_off(loader)
    assert not threads()


def failed(loader: Loader) -> None:
    """Fail in the loop's body."""
    with pytest.raises(ZeroDivisionError):
        [1 / 0 for _ in loader]


def finished(loader: Loader) -> None:
    """Run to the end."""
    assert rows_of(loader) == loader.order.rows(0, 0, ROWS, ROWS).tolist()


@pytest.mark.parametrize(
    "leave", [broken_off, collected, closed, closed_after_a_break, failed, finished]
)
def test_no_thread_is_left(numbers: Slab, leave: Callable[[Loader], None]) -> None:
    """However an iteration ends, its threads end; and the loader can start another."""
    loader = Loader(numbers, 3, threads=3)
    leave(loader)
    assert threads_end()
    assert len(rows_of(loader)) == ROWS


@pytest.mark.parametrize("slow", ["transform", "body"])
def test_ctrl_c_ends_the_program(numbers: Slab, slow: str) -> None:
    """An interrupt ends a program that waits for data, or works on it, and no thread keeps it."""
    script = f"""
import sys, time
from fieldslab.reader import Loader, open_slab
def slow(batch):
    time.sleep(0.3 if {slow == "transform"} else 0)
    return {{}}
loader = Loader(open_slab(sys.argv[1]), 3, transforms=[slow], threads=2)
for number, batch in enumerate(loader):
    if number == 1:
        print("running", flush=True)
    time.sleep(30 if number and {slow == "body"} else 0)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script, numbers.path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    psutil.Process(process.pid).send_signal(2)
    _, errors = process.communicate(timeout=20)
    assert process.returncode != 0
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_an_iteration_may_outlive_the_module(numbers: Slab) -> None:
    """What the interpreter drops last, when modules are empty already, ends without a word."""
    script = """
import atexit, sys
def last():
    global batches
    vars(workers).update(dict.fromkeys(vars(workers)))  # as the interpreter does
    del batches
atexit.register(last)
from fieldslab.reader import Loader, open_slab
from fieldslab.reader.loading import workers
batches = iter(Loader(open_slab(sys.argv[1]), 3))
next(batches)
"""
    next(iter(Loader(numbers, 3)))  # compiles, so that the child need not announce it
    command = [sys.executable, "-c", script, str(numbers.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""


def test_a_forked_child_starts_anew(numbers: Slab) -> None:
    """After a fork in mid-epoch the parent goes on, and the child can iterate, or is told so."""
    script = """
import os, sys, warnings
warnings.simplefilter("ignore")
from fieldslab.reader import Loader, open_slab
from fieldslab.schemas.errors import UsageError
loader = Loader(open_slab(sys.argv[1]), 5, threads=2)
batches = iter(loader)
rows = next(batches).rows.tolist()
child = os.fork()
if child == 0:
    try:
        for batch in batches:
            pass
        os._exit(2)
    except UsageError as error:
        good = "forked" in str(error)
    whole = [row for batch in loader for row in batch.rows.tolist()]
    os._exit(0 if good and sorted(whole) == list(range(len(loader.slab))) else 1)
status = os.waitpid(child, 0)[1]
rows += [row for batch in batches for row in batch.rows.tolist()]
print(os.waitstatus_to_exitcode(status), sorted(rows) == list(range(len(loader.slab))))
"""
    assert run(script, numbers.path) == "0 True"


def test_a_spawned_process_goes_on_where_the_loader_stood(numbers: Slab, tmp_path: Path) -> None:
    """A pickled loader has its order, options and epoch in another process."""
    loader = Loader(numbers, 5, Shuffled(3), fields=["row"])
    rows_of(loader)
    (tmp_path / "loader.pickle").write_bytes(pickle.dumps(loader))
    script = """
import pickle, sys
loader = pickle.load(open(sys.argv[1], "rb"))
print([row for batch in loader for row in batch["row"].tolist()])
"""
    assert json.loads(run(script, tmp_path / "loader.pickle")) == rows_of(loader)
