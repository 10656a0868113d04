"""Small batches that are made several at a time: nobody can tell them from others."""

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reader.conftest import Example
from tests.reader.loading import plain
from tests.slabs import array_path, flip, ragged, write_slab

from fieldslab.reader import Batch, Loader, Pad, Shuffled, Slab, open_slab
from fieldslab.reader.loading.groups import choose_group_size
from fieldslab.schemas.errors import DamagedArray, UsageError


def is_grouped(loader: Loader) -> bool:
    """Whether its batches share memory."""
    first, second = itertools.islice(iter(loader), 2)
    loader.close()
    return first.rows.base is not None and first.rows.base is second.rows.base


@settings(deadline=None, max_examples=25)
@given(
    batch_size=st.integers(1, 7),
    world_size=st.integers(1, 3),
    threads=st.integers(1, 3),
    start=st.integers(0, 40),
    drop_last=st.booleans(),
    padded=st.booleans(),
)
def test_groups_hold_the_batches_made_on_demand(
    example: Example,
    batch_size: int,
    world_size: int,
    threads: int,
    start: int,
    drop_last: bool,
    padded: bool,
) -> None:
    """Every kind of field, on every rank, after a resume, with and without our transforms."""
    slab = open_slab(example.path)[:120]
    ways: list[dict[str, Any]] = [{"prefetch": 0}, {"threads": threads}]
    options: dict[str, Any] = {"world_size": world_size, "drop_last": drop_last}
    options["transforms"] = [Pad("tokens", mask="mask")] if padded else []
    for rank in range(world_size):
        loaders = [
            Loader(slab, batch_size, Shuffled(1), rank=rank, **options, **each) for each in ways
        ]
        for loader in loaders:
            loader.load_state_dict({**loader.state_dict(), "position": start})
        expected, batches = map(list, loaders)
        assert [plain(batch) for batch in batches] == [plain(batch) for batch in expected]
        first, second = (loader.stats() for loader in loaders)
        assert (first.batches, first.rows, first.bytes) == (
            second.batches,
            second.rows,
            second.bytes,
        )


def test_only_small_batches_are_grouped(slab: Slab, tmp_path: Path) -> None:
    """Not those of large rows, those a function is called with, or those of a short epoch."""
    wide = open_slab(write_slab(tmp_path / "x.slab", {"x": np.zeros((40, 2**21), np.uint8)}))

    def function(batch: Batch) -> dict[str, Any]:
        return {}

    assert is_grouped(Loader(slab, 2))
    assert not is_grouped(Loader(slab, 2, transforms=[function]))
    assert not is_grouped(Loader(slab, 2, prefetch=0))
    assert not is_grouped(Loader(slab, 100))
    assert not is_grouped(Loader(wide, 1))
    loader = Loader(slab, 2)
    assert choose_group_size(loader._make_preparation(loader._make_plan(0, 0))) == 9


def test_batches_in_front_of_damage_arrive(tmp_path: Path) -> None:
    """An error in the middle of a group names its batch; those before it are handed over."""
    values = np.random.default_rng(0).integers(0, 256, (640, 4096), np.uint8)
    path = write_slab(tmp_path / "x.slab", {"x": values})
    flip(array_path(path, "x"), offset=200 * 4096)
    for threads in (1, 2):
        loader = Loader(open_slab(path), 4, Shuffled(2), threads=threads)
        assert is_grouped(loader)
        order = Shuffled(2).rows(0, 0, 640, 640).tolist()
        damaged = range(200 // 16 * 16, 200 // 16 * 16 + 16)  # the rows of one block of digests
        wrong = min(order.index(row) for row in damaged) // 4
        rows: list[int] = []
        with pytest.raises(DamagedArray) as caught:
            rows.extend(row for batch in loader for row in batch.rows.tolist())
        assert rows == order[: wrong * 4]
        assert f"in batch {wrong} of epoch 0" in caught.value.__notes__[0]
        assert loader.state_dict()["position"] == wrong * 4


def test_a_group_is_not_continued_in_a_forked_child(slab: Slab) -> None:
    """Batches that were ready before the fork are the parent's."""
    batches = iter(Loader(slab, 2))
    next(batches)
    child = os.fork()
    if not child:
        try:
            next(batches)
        except UsageError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    next(batches)


def test_a_batch_of_a_group_stays_as_it_is(tmp_path: Path) -> None:
    """Memory of a group is used again only when none of its batches is held."""
    rows = [np.arange(row, row + 3000 + row % 7) for row in range(400)]
    slab = open_slab(write_slab(tmp_path / "x.slab", {"x": ragged(rows, "int64")}))
    loader = Loader(slab, 4)
    assert is_grouped(loader)
    held = []
    for index, batch in enumerate(loader):
        if index % 9 == 0:
            held.append(batch)
    for batch in held:
        for row, values in zip(batch.rows.tolist(), batch["x"], strict=True):
            assert np.array_equal(values, rows[row])
