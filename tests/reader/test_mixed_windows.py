"""Mixtures of windows: shares of windows, none of which goes beyond its source."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.naming import case
from tests.slabs import ragged, write_slab

from fieldslab.reader import Loader, Mixed, Order, Slab, Subset, Windows, open_slab
from fieldslab.reader.orders.ordertext import parse_order, recall_order
from fieldslab.schemas.errors import RowOutOfRange, UsageError

SIZES = {"lab": 60, "field": 24, "sim": 40}
BORDERS = np.cumsum([0, *SIZES.values()])


@pytest.fixture(scope="module")
def union(tmp_path_factory: pytest.TempPathFactory) -> Slab:
    """Three slabs, with episodes of 20, 12 and 10 steps, and tokens of any number a row."""
    folder, first = tmp_path_factory.mktemp("robots"), 0
    for (name, rows), steps in zip(SIZES.items(), (20, 12, 10), strict=True):
        numbers = np.arange(first, first + rows)
        columns = {
            "x": numbers,
            "episode": numbers // steps,
            "tokens": ragged([range(row, row + row % 3) for row in numbers.tolist()], "int32"),
        }
        write_slab(folder / f"{name}.slab", columns, [7, rows - 7])
        first += rows
    return open_slab({name: folder / f"{name}.slab" for name in SIZES})


def epoch_of(order: Order, slab: Slab, epoch: int = 0) -> np.ndarray:
    """All starts of an epoch of an attached order."""
    return order.rows(epoch, 0, order.length(len(slab)), len(slab))


def test_each_source_has_its_share_of_windows(union: Slab) -> None:
    """Where sources leave when they are done, each window comes once; else shares hold."""
    weights = {"lab": 0.5, "field": 0.3, "sim": 0.2}
    for windows in (
        Windows(4, 2, "episode"),
        Windows(5),
        Windows(5, 3, edges="repeat"),
        Windows(delta_indices={"x": [-2, 0]}, within="episode", edges="zeros"),
        Windows(6, 2, of="tokens"),
    ):
        with case(windows):
            alone = windows.in_sequence().attach(union)
            dropping = Mixed(weights, exhausted="drop", windows=windows).attach(union)
            assert sorted(epoch_of(dropping, union)) == epoch_of(alone, union).tolist()
            attached = Mixed(weights, 1, windows=windows).attach(union)
            starts = epoch_of(attached, union, 1)
            borders = BORDERS
            if windows.of is not None:
                borders = np.cumsum([0, *(union["tokens"][:].lengths)])[BORDERS]
            sources = np.searchsorted(borders, starts, side="right") - 1
            turns = np.eye(3)[sources].cumsum(axis=0)
            assert np.abs(turns[10:] - turns[:-10] - [5, 3, 2]).max() == 0
            length = windows.shape.length or 1
            last = starts + (length - 1 if windows.edges == "drop" else 0)
            assert (np.searchsorted(borders, last, side="right") - 1 == sources).all()
            assert (
                dropping.count_rows(0, len(epoch_of(alone, union)))["lab"]
                == (epoch_of(alone, union) < borders[1]).sum()
            )


def test_groups_of_rows_are_sources_of_windows(union: Slab) -> None:
    """No window goes beyond its group; edges of groups are edges."""
    groups = {"head": range(10), "tail": range(70, 124)}
    drop = Mixed({"head": 1, "tail": 1}, groups=groups, exhausted="drop", windows=Windows(4))
    assert sorted(epoch_of(drop.attach(union), union)) == [
        *(*range(7), *range(70, 81), *range(84, 121))
    ]
    filled = Mixed({"head": 1}, groups=groups, windows=Windows(4, edges="repeat"))
    batch = next(iter(Loader(union, 10, filled, fields=["x"], prefetch=0)))
    nearest = (batch.rows[:, None] + np.arange(4)).clip(None, 9)
    assert batch["x"].tolist() == nearest.tolist()
    assert batch["is_pad"].sum() == 6


def test_loaders_read_windows_of_mixtures(union: Slab) -> None:
    """With threads, pickled, resumed, and by the numbers of steps; states tell all but rows."""
    order = Mixed({"lab": 2, "sim": 1}, 3, windows=Windows(6, 2, "episode"))
    loader = Loader(union, 8, order)
    batches = list(loader)
    for batch in batches:
        assert batch["x"].tolist() == (batch.rows[:, None] + np.arange(6)).tolist()
        assert (batch["episode"] == batch["episode"][:, :1]).all()
    starts = [batch.rows.tolist() for batch in batches]
    assert starts == [loader.rows_at(0, step).tolist() for step in range(len(loader))]
    again: Any = pickle.loads(pickle.dumps(Loader(union, 8, order, prefetch=0)))
    assert [batch.rows.tolist() for batch in again] == starts
    half = Loader(union, 8, order, prefetch=0)
    iterator = iter(half)
    next(iterator)
    state = half.state_dict()
    resumed = Loader(union, 8, order, prefetch=0)
    resumed.load_state_dict(state)
    assert [batch.rows.tolist() for batch in resumed] == starts[1:]
    with pytest.raises(UsageError, match="another order"):
        Loader(union, 8, Mixed({"lab": 2, "sim": 1}, 3)).load_state_dict(state)
    key = order.attach(union).key()
    assert recall_order(key).key() == order.key()
    assert parse_order(repr(order)).key() == order.key()
    tokens = Loader(union, 4, Mixed({"lab": 1, "field": 1}, windows=Windows(3, of="tokens")))
    assert next(iter(tokens))["tokens"].shape == (4, 3)
    assert order.in_sequence().key() == Windows(6, 2, "episode", seed=None).key()


def test_windows_that_cannot_be_mixed_are_refused(union: Slab, tmp_path: Path) -> None:
    """What to do is said by name."""
    with pytest.raises(UsageError, match="not grouped by a field"):
        Mixed({"0": 1}, by="episode", windows=Windows(2))
    for other in (4, Subset([1])):
        with case(other), pytest.raises(UsageError, match="a Windows order"):
            Mixed({"lab": 1}, windows=other)
    np.save(tmp_path / "rows.npy", np.arange(9))
    for rows in (range(0, 20, 2), [0, 1, 2], tmp_path / "rows.npy", range(-9, 0)):
        order = Mixed({"a": 1}, groups={"a": rows}, windows=Windows(2))
        with case(rows), pytest.raises(UsageError, match="not told to be neighbours"):
            order.attach(union)
    with pytest.raises(RowOutOfRange):
        Mixed({"a": 1}, groups={"a": range(200)}, windows=Windows(2)).attach(union)
    with pytest.raises(UsageError, match="'field' has no window"):
        Mixed({"lab": 1, "field": 1}, windows=Windows(15, within="episode")).attach(union)
