"""`Loader(prefetch="auto")`: what it chooses, and that batches do not depend on it."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.naming import case
from tests.slabs import write_slab

from fieldslab.reader import Batch, Loader, Shuffled, open_slab
from fieldslab.reader.loading.tuning import MOST_AHEAD, Tuner
from fieldslab.reader.loading.workers import Workers
from fieldslab.schemas.errors import UsageError

ROWS = 4000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A slab of rows of 1 KiB."""
    numbers = np.arange(ROWS * 128).reshape(ROWS, 128)
    return write_slab(tmp_path / "n.slab", {"x": numbers, "row": np.arange(ROWS)})


def sleep_now_and_then(batch: Batch) -> dict[str, Any]:
    """Take long for some batches."""
    time.sleep(0.004 if batch.rows[0] % 3 == 0 else 0.0)
    return {}


@pytest.mark.parametrize("transforms", [[], [sleep_now_and_then]], ids=["groups", "batches"])
def test_batches_and_states_are_those_of_any_loader(path: Path, transforms: list[Any]) -> None:
    """Rows, their order and states in mid-epoch are the same as with a fixed number."""
    slab = open_slab(path)
    fixed = Loader(slab, 16, Shuffled(1), transforms=transforms)
    auto = Loader(slab, 16, Shuffled(1), transforms=transforms, prefetch="auto")
    for epoch in range(2):
        for number, (batch, other) in enumerate(zip(fixed, auto, strict=True)):
            assert np.array_equal(batch["x"], other["x"])
            assert np.array_equal(batch.rows, other.rows)
            if number % 50 == 0:
                assert fixed.state_dict() == auto.state_dict()
        with case(epoch):
            stats = auto.stats()
            assert stats.threads is not None
            assert stats.prefetch is not None
            assert f"chosen: prefetch={stats.prefetch}, threads={stats.threads}" in str(stats)
    assert fixed.stats().threads is fixed.stats().prefetch is None


def run(tuner: Tuner, waited: float, prepared: float, size: int = 1, rate: int = 100) -> None:
    """Tell the tuner of a second of an epoch; `waited` and `prepared` are shares of that time."""
    tuner.start_epoch()
    for number in range(rate + 1):
        seconds = 1 / rate if number else 9.0  # for the first, which does not count
        tuner.add_result(waited * seconds, prepared * seconds, size, 9 + number / rate)


def test_a_consumer_that_waits_gets_what_helps() -> None:
    """Busy threads: one more, if allowed; else more batches ahead, within memory; else nothing."""
    content = Tuner(2**20, 1, 4)
    run(content, waited=0.005, prepared=0.9)
    assert (content.threads, content.ahead, content.prefetch) == (1, 2, 2)
    uneven = Tuner(2**20, 1, 4)
    run(uneven, waited=0.3, prepared=0.2, rate=8)
    assert (uneven.threads, uneven.ahead) == (1, 4)
    busy = Tuner(2**20, 1, 4)
    run(busy, waited=0.3, prepared=0.9, rate=8)
    assert (busy.threads, busy.ahead) == (2, 3)
    alone = Tuner(2**20, 1, 1)
    run(alone, waited=0.3, prepared=0.99)
    assert (alone.threads, alone.ahead) == (1, MOST_AHEAD)
    short = Tuner(5 * 1000, 1, 4)
    run(short, waited=0.3, prepared=0.2, size=1000)
    assert short.ahead == 4, "and the consumer holds one"


def test_a_thread_that_does_not_help_ends_again() -> None:
    """After one more thread, as many results a second as before: the thread goes, for good."""
    tuner = Tuner(2**20, 1, 4)
    run(tuner, waited=0.3, prepared=0.9, rate=8)
    assert tuner.threads == 2
    run(tuner, waited=0.3, prepared=1.9, rate=8)
    assert tuner.threads == 1
    run(tuner, waited=0.3, prepared=0.9, rate=8)
    assert tuner.threads == 1
    helped = Tuner(2**20, 1, 4)
    for turn, rate in enumerate((8, 10, 13)):
        run(helped, waited=0.3, prepared=0.9 * (turn + 1), rate=rate)
    assert helped.threads == 4


def test_threads_come_and_go_while_results_are_taken() -> None:
    """Every result comes once and in order, however the number of threads and the depth change."""
    workers = Workers(lambda number: number, 500, 1, 2, MOST_AHEAD)
    numbers = np.random.default_rng(0).integers(1, 6, (500, 2))
    for number, (threads, ahead) in enumerate(numbers.tolist()):
        assert workers.get_next() == number
        workers.task_queue.adjust(threads, 4 * ahead)
    with pytest.raises(StopIteration):
        workers.get_next()
    workers.close()


def test_wrong_options_are_named(path: Path) -> None:
    """Other words than "auto", memory without it, too little memory, and `isolate`."""
    slab = open_slab(path)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"prefetch": "many"}, "`prefetch` is not possible"),
        ({"memory": 2**20}, "`memory` is for prefetch"),
        ({"prefetch": "auto", "memory": 0}, "`memory` is too small"),
        ({"prefetch": "auto", "isolate": True}, "`isolate` with prefetch"),
    ]
    for options, match in wrong:
        with case(options), pytest.raises(UsageError, match=match):
            Loader(slab, 4, **options)
