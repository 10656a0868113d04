"""Loaders with `isolate=True`: the same batches from another process, which never stays behind."""

import gc
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from tests.reader import isolated_transforms as transforms
from tests.reader.loading import ROWS, make_numbers, plain, rows_of
from tests.slabs import array_path, flip

from fieldslab.reader import (
    Batch,
    Loader,
    Order,
    Sequential,
    Shuffled,
    Slab,
    Subset,
    Weighted,
    open_slab,
)
from fieldslab.reader.loading.isolated import ChildTraceback
from fieldslab.schemas.errors import DamagedArray, UsageError, WorkerDied


@pytest.fixture
def numbers(tmp_path: Path) -> Slab:
    """A slab whose every value tells its row."""
    return make_numbers(tmp_path)


def children() -> set[int]:
    """Processes that this one started and that were not waited for."""
    return {child.pid for child in psutil.Process().children()}


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """When a test is over, no process of it lives, nor waits to be reaped."""
    before = children()
    yield
    gc.collect()
    assert children() <= before


@pytest.mark.parametrize(
    ("order", "threads"), [(Subset(fraction=0.5), 1), (Weighted(np.arange(300.0)), 3)], ids=str
)
def test_batches_are_those_of_threads(slab: Slab, order: Order, threads: int) -> None:
    """Every field of every batch is as without `isolate`, epoch after epoch, in one process."""
    with Loader(slab, 7, order, threads=threads, isolate=True) as loader:
        expected = Loader(slab, 7, order)
        pids = []
        for _ in range(3):
            assert list(map(plain, loader)) == list(map(plain, expected))
            pids.append(children())
        assert pids[0] == pids[1] == pids[2]
        assert loader.stats().rows == expected.stats().rows
        assert loader.stats().bytes == expected.stats().bytes
        assert "gather" in loader.stats().stages


def test_layouts_of_arrays_arrive(numbers: Slab) -> None:
    """What transforms draw and make arrives with its values, dtype and shape, in any layout."""
    options: Any = {"transforms": [transforms.jitter, transforms.add_views], "seed": 3}
    with Loader(numbers, 10, isolate=True, **options) as loader:
        for batch, expected in zip(loader, Loader(numbers, 10, **options), strict=True):
            assert list(batch) == list(expected)
            for name in batch:
                assert batch[name].dtype == expected[name].dtype
                np.testing.assert_array_equal(batch[name], expected[name])
            assert batch["permuted"].strides == expected["permuted"].strides
            assert not batch["constant"].flags.writeable
            assert batch["wide"].flags.writeable
            assert batch["row"].flags.writeable


@pytest.mark.parametrize("functions", [[], [transforms.double]], ids=["none", "tensors"])
def test_tensors_arrive(numbers: Slab, functions: list[Any]) -> None:
    """With output="torch" tensors are those of threads, bfloat16 and permuted ones, too."""
    options: Any = {"transforms": functions, "output": "torch"}
    with Loader(numbers, 10, isolate=True, **options) as loader:
        for batch, expected in zip(loader, Loader(numbers, 10, **options), strict=True):
            assert list(batch) == list(expected)
            for name in batch:
                assert batch[name].dtype == expected[name].dtype
                assert batch[name].stride() == expected[name].stride()
                assert torch.equal(batch[name], expected[name])
            assert torch.equal(batch.rows, expected.rows)


def test_large_arrays_are_not_copied_and_never_change(numbers: Slab) -> None:
    """Arrays that are held keep their values while the epoch goes on and memory is used again."""
    with Loader(numbers, 3, Sequential(), threads=2, isolate=True) as loader:
        held, kept = [], []
        for index, batch in enumerate(itertools.chain(loader, loader, loader)):
            if index % 5 == 0:
                held.append(batch["wide"][1:])
                kept.append(held[-1].copy())
        for array, values in zip(held, kept, strict=True):
            np.testing.assert_array_equal(array, values)
    for array, values in zip(held, kept, strict=True):  # the process is gone by now
        np.testing.assert_array_equal(array, values)
        array += 1


def test_a_run_goes_on_where_it_was_saved(numbers: Slab) -> None:
    """States go between loaders with and without `isolate`, in mid-epoch."""
    whole = rows_of(Loader(numbers, 10, Shuffled(7)))
    loader = Loader(numbers, 10, Shuffled(7), isolate=True)
    first = rows_of(itertools.islice(loader, 4))
    state = loader.state_dict()
    for isolate in (False, True):
        with Loader(numbers, 10, Shuffled(7), isolate=isolate) as other:
            other.load_state_dict(state)
            assert first + rows_of(other) == whole
            assert other.epoch == 1


def test_damage_arrives_by_name(numbers: Slab) -> None:
    """An error of the slab arrives as its class with file, field and row, a note and a cause."""
    flip(array_path(numbers.path, "wide", shard=1), offset=20 * 72_000)
    loader = Loader(open_slab(numbers.path), 3, Sequential(), isolate=True)  # in groups
    arrived: list[Batch] = []
    with pytest.raises(DamagedArray) as caught:
        arrived.extend(loader)
    assert caught.value.context["field"] == "wide"
    assert "batch" in caught.value.__notes__[0]
    assert isinstance(caught.value.__cause__, ChildTraceback)
    assert "preparation.py" in str(caught.value.__cause__)
    assert rows_of(arrived) == list(range(3 * len(arrived)))


def test_an_error_in_a_transform_keeps_its_type(numbers: Slab) -> None:
    """What a function raises arrives in its turn, as it is, with a note that names the batch."""
    functions = [transforms.fail_at_fifty]
    loader = Loader(numbers, 10, Sequential(), transforms=functions, isolate=True)
    batches = iter(loader)
    assert rows_of(itertools.islice(batches, 5)) == list(range(50))
    with pytest.raises(ZeroDivisionError, match="row fifty") as caught:
        next(batches)
    assert "batch 5 of epoch 0: positions 50..59 of Sequential()" in caught.value.__notes__[0]
    assert loader.state_dict()["position"] == 50
    assert next(batches, None) is None


def test_an_error_that_cannot_be_pickled_arrives_in_words(numbers: Slab) -> None:
    """It is a RuntimeError that names the class and says what it said."""
    loader = Loader(numbers, 10, transforms=[transforms.fail_unpicklably], isolate=True)
    with pytest.raises(RuntimeError, match="CustomError: 1 and 2") as caught:
        next(iter(loader))
    assert "batch 0" in caught.value.__notes__[0]


def test_what_cannot_be_pickled_is_named(numbers: Slab) -> None:
    """Functions are refused at once, what they return when it is made; so is prefetch=0."""
    with pytest.raises(UsageError, match=r"transforms\[1\]. cannot be pickled") as caught:
        Loader(numbers, 10, transforms=[transforms.jitter, lambda batch: {}], isolate=True)
    assert "top of a module" in str(caught.value)
    loader = Loader(numbers, 10, transforms=[transforms.return_function], isolate=True)
    with pytest.raises(UsageError, match="cannot be pickled"):
        next(iter(loader))
    with pytest.raises(UsageError, match="prefetch"):
        Loader(numbers, 10, prefetch=0, isolate=True)


def test_a_killed_process_is_named(numbers: Slab) -> None:
    """Batches that were ready arrive, and then an error says why; the next epoch has another."""
    before = children()
    loader = Loader(numbers, 1, Sequential(), isolate=True)
    batches = iter(loader)
    first = next(batches)
    (pid,) = children() - before
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerDied, match="SIGKILL"):
        for _ in batches:
            pass
    assert plain(first) == plain(numbers.gather([0]))
    assert len(rows_of(loader)) == ROWS
    (pid,) = children() - before
    os.kill(pid, signal.SIGTERM)  # while it waits for the next epoch
    while children() - before and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert len(rows_of(loader)) == ROWS
    loader.close()


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
    assert next(batches, None) is None


def finished(loader: Loader) -> None:
    """Run to the end, and close."""
    assert len(rows_of(loader)) == ROWS
    loader.close()


@pytest.mark.parametrize("leave", [broken_off, collected, closed, finished])
def test_no_process_nor_descriptor_is_left(numbers: Slab, leave: Callable[[Loader], None]) -> None:
    """However an iteration ends, its process ends at once; no file stays open or in /dev/shm."""
    before, shared = children(), set(os.listdir("/dev/shm"))
    loader = Loader(numbers, 3, threads=3, isolate=True)
    files = psutil.Process().num_fds()
    leave(loader)
    assert children() == before
    gc.collect()
    assert psutil.Process().num_fds() == files
    assert {name for name in os.listdir("/dev/shm") if "fieldslab-b" in name} <= shared


def test_a_transform_at_work_does_not_delay_the_end(numbers: Slab) -> None:
    """A loader that is closed while a transform takes a minute ends its process all the same."""
    loader = Loader(numbers, 3, transforms=[transforms.linger], isolate=True)
    before = children()
    batches = iter(loader)
    assert len(children() - before) == 1
    loader.close()
    assert children() == before
    assert next(batches, None) is None


def test_two_iterations_have_two_processes(numbers: Slab, tmp_path: Path) -> None:
    """Iterations of one loader at the same time do not mix; one process is kept for the next."""
    functions = [transforms.TellProcess(tmp_path / "pids")]
    (tmp_path / "pids").mkdir()
    with Loader(numbers, 10, Sequential(), transforms=functions, isolate=True) as loader:
        pairs = list(zip(iter(loader), iter(loader), strict=True))
        assert [pair[0].rows.tolist() for pair in pairs] == [
            pair[1].rows.tolist() for pair in pairs
        ]
        rows_of(loader)
        pids = {int(path.name) for path in (tmp_path / "pids").iterdir()}
        assert len(pids) == 2
        assert os.getpid() not in pids


def test_memory_does_not_grow(numbers: Slab) -> None:
    """Shared memory is used again: its pages are as many after twelve epochs as after three."""
    before = children()
    with Loader(numbers, 3, threads=2, isolate=True) as loader:
        sizes = []
        for _ in range(12):
            rows_of(loader)
            (pid,) = children() - before
            maps = psutil.Process(pid).memory_maps()
            sizes += [each.rss for each in maps if "fieldslab-batches" in each.path]
        assert len(sizes) == 12
        assert sizes[-1] <= 2 * sizes[2]
