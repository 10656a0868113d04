"""Resuming and sharing: no row lost, none visited twice, on any number of ranks."""

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.naming import case
from tests.reader.loading import ROWS, make_numbers, rows_of

from fieldslab.reader import (
    Blocked,
    Loader,
    Order,
    Sequential,
    Shuffled,
    Slab,
    Weighted,
)
from fieldslab.schemas.errors import UsageError


@pytest.fixture
def numbers(tmp_path: Path) -> Slab:
    """A slab whose every value tells its row."""
    return make_numbers(tmp_path)


@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize(
    "order", [Shuffled(1), Blocked(1, 8, 3), Weighted(np.ones(ROWS))], ids=repr
)
def test_a_run_resumes_at_any_batch(numbers: Slab, order: Order, prefetch: int) -> None:
    """Stopped after any batch and loaded elsewhere, a run visits what was left, and then on."""
    whole = Loader(numbers, 10, order)
    expected = [[rows_of([batch]) for batch in whole] for _ in range(2)]
    for taken in range(12):
        loader = Loader(numbers, 10, order, prefetch=prefetch)
        for _ in itertools.islice(loader, taken):
            pass
        state = json.loads(json.dumps(loader.state_dict()))
        other = Loader(numbers, 10, order, threads=3)
        other.load_state_dict(state)
        other.set_epoch(other.epoch)  # as frameworks do; it must not start the epoch again
        left = expected[0][taken:] if taken < 12 else []
        assert [rows_of([batch]) for batch in other] == left
        assert [rows_of([batch]) for batch in other] == expected[1]


def test_what_was_prefetched_does_not_count(numbers: Slab) -> None:
    """The state is that of the batch in the user's hands, whatever the threads have ready."""
    loader = Loader(numbers, 10, prefetch=5, threads=2)
    batches = iter(loader)
    for taken in range(1, 5):
        next(batches)
        time.sleep(0.02)
        assert loader.state_dict()["position"] == 10 * taken
    loader.close()


def test_the_state_at_the_end_of_an_epoch(numbers: Slab) -> None:
    """After the last batch the epoch is over but not counted; the loaded one has nothing left."""
    loader = Loader(numbers, 10)
    batches = iter(loader)
    for _ in range(len(loader)):
        next(batches)
    state = loader.state_dict()
    assert (state["epoch"], state["position"]) == (0, ROWS)
    other = Loader(numbers, 10)
    other.load_state_dict(state)
    assert list(other) == []
    assert other.epoch == 1
    assert next(batches, None) is None
    assert loader.state_dict()["epoch"] == 1


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda loader: {"epoch": 0}, "not a loader state"),
        (lambda loader: [], "not a loader state"),
        (lambda loader: loader.state_dict() | {"epoch": "x"}, "integer"),
        (lambda loader: loader.state_dict() | {"position": -1}, "too small"),
        (lambda loader: loader.state_dict() | {"position": ROWS + 1}, "beyond the end"),
        (lambda loader: loader.state_dict() | {"version": 3}, "version"),
        (lambda loader: loader.state_dict() | {"slab": "0" * 64}, "another slab.*set_epoch"),
        (lambda loader: Loader(loader.slab, 10, Shuffled(1)).state_dict(), "another order"),
        (lambda loader: Loader(loader.slab[1:], 10).state_dict(), "another view"),
    ],
)
def test_a_foreign_state_is_refused(numbers: Slab, change: Any, match: str) -> None:
    """A state of other data, another order or nonsense is refused, and nothing changes."""
    loader = Loader(numbers, 10)
    with pytest.raises(UsageError, match=match):
        loader.load_state_dict(change(loader))
    assert loader.state_dict()["position"] == 0


def ranks_of(
    slab: Slab, size: int, state: dict[str, Any] | None = None, **options: Any
) -> list[Loader]:
    """Loaders of all ranks."""
    loaders = [Loader(slab, 2, rank=rank, world_size=size, **options) for rank in range(size)]
    for loader in loaders:
        if state is not None:
            loader.load_state_dict(state)
    return loaders


def in_step(loaders: list[Loader]) -> Iterator[list[int]]:
    """Steps of all ranks together: the rows that all of them visit."""
    for step in zip(*loaders, strict=True):
        sizes = {len(batch.rows) for batch in step}
        assert len(sizes) == 1
        yield rows_of(step)


@pytest.mark.parametrize("order", [Shuffled(0), Sequential(), Blocked(0, 4, 3)], ids=repr)
def test_ranks_share_an_epoch(numbers: Slab, order: Order) -> None:
    """All ranks have as many batches; every row is visited, and few twice, at the end only."""
    for size in (1, 2, 3, 8, 16, 200):
        steps = list(in_step(ranks_of(numbers, size, order=order, prefetch=0)))
        rows = [row for step in steps for row in step]
        assert set(rows) == set(range(ROWS)), size
        assert 0 <= len(rows) - ROWS < size
        whole = [row for step in steps[:-1] for row in step]
        assert len(set(whole)) == len(whole), size


@pytest.mark.parametrize("size", [1, 3, 8, 200])
def test_drop_last_visits_no_row_twice(numbers: Slab, size: int) -> None:
    """With `drop_last`, every batch of every rank is full, and no row comes twice."""
    loaders = ranks_of(numbers, size, drop_last=True, prefetch=0)
    rows = [row for step in in_step(loaders) for row in step]
    assert len(rows) == len(set(rows)) == ROWS // (2 * size) * 2 * size
    assert {len(loader) for loader in loaders} == {ROWS // (2 * size)}


def test_a_run_resumes_on_other_ranks(numbers: Slab) -> None:
    """Stopped in step on some ranks and resumed on others, each row is visited once an epoch."""
    for before, after, steps in itertools.product([1, 2, 8], [1, 4, 8, 16], [0, 1, 4]):
        with case(before, after, steps):
            check_resumed(numbers, before, after, steps)


def check_resumed(numbers: Slab, before: int, after: int, steps: int) -> None:
    """After some steps on ranks `before`, ranks `after` visit the rest of the epoch."""
    first = ranks_of(numbers, before)
    visited = [row for step in itertools.islice(in_step(first), steps) for row in step]
    states = [loader.state_dict() for loader in first]
    assert all(state == states[0] for state in states)
    assert states[0]["position"] == len(visited)
    second = list(in_step(ranks_of(numbers, after, states[0])))
    visited += [row for step in second[:-1] for row in step]
    last = second[-1]
    assert len(set(visited)) == len(visited)
    missing = set(range(ROWS)) - set(visited)
    # The last step may be filled up, so that all ranks have as many; it holds all that is left.
    assert set(last[: len(missing)]) == missing
    assert len(last) - len(missing) < after


@pytest.mark.parametrize(("before", "after"), [(1, 8), (8, 1), (2, 16), (3, 3)])
def test_drop_last_leaves_out_the_end_alone(numbers: Slab, before: int, after: int) -> None:
    """Resumed on other ranks with `drop_last`, less than one step of these is left out, at the end.

    A tail that was cut by the ranks before would not divide into whole batches of those after.
    """
    first = ranks_of(numbers, before, drop_last=True)
    visited = [row for step in itertools.islice(in_step(first), 3) for row in step]
    second = in_step(ranks_of(numbers, after, first[0].state_dict(), drop_last=True))
    visited += [row for step in second for row in step]
    order = Shuffled(0).rows(0, 0, ROWS, ROWS).tolist()
    assert sorted(visited) == sorted(order[: len(visited)])
    assert ROWS - 2 * after < len(visited) <= ROWS


def test_a_state_of_an_earlier_default_goes_on(tmp_path: Path) -> None:
    """`Blocked()` resumes a state of the first releases, by the parameters that it names."""
    slab = make_numbers(tmp_path)
    earlier = Blocked(3, block_rows=256, window=64)
    whole = rows_of(Loader(slab, 10, earlier))
    loader = Loader(slab, 10, earlier)
    begun = rows_of([next(iter(loader))])
    state = loader.state_dict()
    assert (state["order"]["block_rows"], state["order"]["window"]) == (256, 64)
    other = Loader(slab, 10, Blocked(3))
    assert other.state_dict()["order"] != state["order"]
    other.load_state_dict(state)
    assert begun + rows_of(other) == whole
    assert other.state_dict()["order"] == state["order"]
    for stranger in (Blocked(4), Blocked(3, block_rows=8), Shuffled(3)):
        with pytest.raises(UsageError, match="another order"):
            Loader(slab, 10, stranger).load_state_dict(state)
    default = Loader(slab, 10, Blocked(3)).state_dict()
    Loader(slab, 10, Blocked(3)).load_state_dict(default)
    with pytest.raises(UsageError, match="another order"):
        Loader(slab, 10, earlier).load_state_dict(default)
