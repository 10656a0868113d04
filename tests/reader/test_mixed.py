"""Orders over groups of rows: shares in every window, each pass whole, the same on any ranks."""

import itertools
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.naming import case
from tests.slabs import Column, categorical, write_slab

from fieldslab.reader import (
    Balanced,
    Grouped,
    Loader,
    Mixed,
    Order,
    Shuffled,
    Slab,
    Subset,
    Windows,
    open_slab,
)
from fieldslab.reader.orders.interleaving import (
    Interleaving,
    Timeline,
    count_cycle,
    scale_weights,
)
from fieldslab.reader.orders.ordertext import recall_order
from fieldslab.reader.orders.proportions import make_turns
from fieldslab.schemas.errors import RowOutOfRange, UnknownField, UsageError

ROWS = 230
LABELS = np.repeat([7, -2, 7, 40, 3], [90, 40, 10, 5, 85])
GROUPS: dict[str, Any] = {
    "web": range(100),
    "code": range(229, 159, -1),
    "books": np.array([150, 101, 149, -120]),
}


@pytest.fixture(scope="module")
def slab(tmp_path_factory: pytest.TempPathFactory) -> Slab:
    """Labels in three shards, as integers and as categories."""
    folder = tmp_path_factory.mktemp("mixed")
    columns = {
        "label": LABELS,
        "source": categorical(np.repeat([1, 0], [130, 100]), ["code", "web"]),
        "text": ["x"] * ROWS,
        "maybe": Column(np.arange(ROWS), dtype="int64", valid=np.arange(ROWS) != 77),
    }
    return open_slab(write_slab(folder / "a.slab", columns, [60, 100, 70]))


def epoch_of(order: Order, total: int = ROWS, epoch: int = 0) -> np.ndarray:
    """All rows of an epoch of an attached order."""
    return order.rows(epoch, 0, order.length(total), total)


def count_turns(counts: np.ndarray, length: int) -> np.ndarray:
    """Rows of each source before each position: int64[length + 1, sources]."""
    sources, _ = Interleaving(counts).locate(0, length)
    turns = np.cumsum(np.eye(len(counts), dtype=np.int64)[sources], axis=0)
    return np.concatenate([np.zeros((1, len(counts)), np.int64), turns])


def test_shares_hold_in_every_window() -> None:
    """In any window, two sources are within one row, more within 3.4; in one of a cycle all are."""
    random = np.random.default_rng(0)
    cases: list[Any] = [
        [0.7, 0.3],
        [0.5, 0.3, 0.2],
        [1] * 7,
        [0.999, 0.001],
        [8, 5, 3, 2, 1, 1],
        [1e-9, 1, 1],
    ]
    cases += [random.dirichlet(np.ones(size)).round(4) + 1e-3 for size in (2, 3, 4, 9, 20)]
    for weights in cases:
        with case(weights):
            shares = np.array(weights) / np.sum(weights)
            counts = count_cycle(weights)
            cycle = int(counts.sum())
            window = min(cycle, 6_000)
            turns = count_turns(counts, 2 * window)
            drift = turns - np.arange(len(turns))[:, None] * shares
            limit = 1 if len(shares) == 2 else 3.4
            for size in (1, 2, 7, 100, 333, window - 1, len(turns) // 2):
                assert np.abs(drift[size:] - drift[:-size]).max(initial=0) < limit
            assert np.abs(drift).max() < limit / 2 + 1
            if cycle == window:
                whole = turns[cycle:] - turns[:-cycle]
                assert (whole == counts).all()
                assert np.abs(whole - shares * cycle).max() < 1


def test_a_position_needs_none_before() -> None:
    """Sources and counts at 10**15 agree with each other, and with those of whole cycles before."""
    counts = count_cycle([0.61, 0.3, 0.05, 0.04])
    interleaving = Interleaving(counts)
    cycle = int(counts.sum())
    start = 10**15 // cycle * cycle
    sources, numbers = interleaving.locate(start, start + 2 * cycle)
    near, _ = interleaving.locate(0, 2 * cycle)
    assert np.array_equal(sources, near)
    for offset in (0, 1, 57, cycle + 3):
        before = interleaving.count(start + offset)
        assert before.sum() == start + offset
        assert numbers[offset] == before[sources[offset]]


def test_weights_have_the_shortest_cycle() -> None:
    """Decimals are exact; what has a long cycle is rounded to 100 rows of the rarest source."""
    assert count_cycle([0.7, 0.3]).tolist() == [7, 3]
    assert count_cycle([20, 10, 0, 0.5]).tolist() == [40, 20, 0, 1]
    assert count_cycle([1 / 3, 1 / 3, 1 / 3]).tolist() == [1, 1, 1]
    thirds = count_cycle([0.33333, 0.333, 0.33367])
    assert (thirds.sum(), thirds.tolist()) == (301, [100, 100, 101])
    assert count_cycle([0.123456789, 1]).sum() > 10**9


def test_a_pass_of_a_source_is_a_shuffle(slab: Slab) -> None:
    """Each source comes whole before it comes again, over the ends of epochs, in another order."""
    for order in (
        Mixed({"web": 0.5, "code": 0.45, "books": 0.05}, groups=GROUPS),
        Mixed({"web": 0.5, "code": 0.4, "books": 0.1}, groups=GROUPS, exhausted="stop"),
        Mixed({"web": 3, "code": 1}, groups=GROUPS, schedule={150: {"code": 1, "books": 0.1}}),
        Balanced("label"),
        Balanced("label", length=1000),
    ):
        attached = order.attach(slab)
        rows = np.concatenate([epoch_of(attached, epoch=epoch) for epoch in range(4)])
        sources = attached.sources
        for number, size in enumerate(sources.sizes.tolist()):
            members = sources.find_rows(np.full(size, number), np.arange(size), ROWS)
            visits = rows[np.isin(rows, members)]
            passes = visits[: len(visits) // size * size].reshape(-1, size)
            assert (np.sort(passes, axis=1) == np.sort(members)).all()
            if size > 10 and len(passes) > 1:
                assert not np.array_equal(passes[0], passes[1])


def test_epochs_end_as_asked(slab: Slab) -> None:
    """ "repeat" ends with the largest need, "stop" with the first whole source, "drop" with all."""
    weights = {"web": 0.5, "code": 0.4, "books": 0.1}
    repeat, stop, drop = (
        Mixed(weights, groups=GROUPS, exhausted=exhausted).attach(slab)
        for exhausted in ("repeat", "stop", "drop")
    )
    assert abs(repeat.length(ROWS) - 200) <= 2
    assert set(epoch_of(repeat).tolist()) >= {*range(100), *range(160, 230)}
    assert abs(stop.length(ROWS) - 40) <= 8
    assert stop.count_rows(0, stop.length(ROWS))["books"] == 4
    for epoch in range(2):
        rows = epoch_of(drop, epoch=epoch)
        assert len(rows) == 174
        assert sorted(rows) == sorted([*range(100), *range(160, 230), 150, 101, 149, 110])
    after = rows[np.flatnonzero(rows == rows[np.isin(rows, [150, 101, 149, 110])][-1])[0] + 1 :]
    shares = [np.mean(after[start : start + 9] < 100) for start in range(0, 81, 9)]
    assert shares == pytest.approx([5 / 9] * 9)  # the others keep their proportions
    assert not np.array_equal(epoch_of(drop), epoch_of(drop, epoch=1))


def test_a_schedule_changes_weights_at_a_position(slab: Slab) -> None:
    """From a position of the run on, other weights hold, in whatever epoch it lies."""
    schedule = {30: {"web": 1, "code": 1}, 450: {"books": 1}}
    order = Mixed({"web": 1}, groups=GROUPS, schedule=schedule, exhausted="stop").attach(slab)
    assert order.length(ROWS) == 169
    rows = np.concatenate([epoch_of(order, epoch=epoch) for epoch in range(3)])
    assert (rows[:30] < 100).all()
    assert np.mean(rows[30:450] < 100) == 0.5
    assert set(rows[450:].tolist()) == {150, 101, 149, 110}
    assert order.count_rows(1, 10) == {"books": 0, "code": 74, "web": 105}


def test_a_thousand_sources(slab: Slab) -> None:
    """Weights of a thousand sources are held, also as sources leave; every row comes once."""
    sizes = np.random.default_rng(0).integers(1, 40, 300)
    ends = np.cumsum(sizes)
    timeline = Timeline(make_turns, scale_weights(sizes.tolist()))
    assert (timeline.count(int(ends[-1]))).sum() == ends[-1]
    rows = np.arange(ends[-1]) % ROWS
    groups = {f"s{n}": rows[ends[n] - size : ends[n]] for n, size in enumerate(sizes)}
    weights = {name: float(n % 7 + 1) for n, name in enumerate(groups)}
    order = Mixed(weights, groups=groups, exhausted="drop").attach(slab)
    assert order.length(ROWS) == ends[-1]
    assert np.array_equal(np.sort(epoch_of(order)), np.sort(rows))


def test_values_of_a_field_are_sources(slab: Slab) -> None:
    """Sources may be categories of a field, and classes come equally often in every batch."""
    order = Mixed({"web": 0.25, "code": 0.75}, by="source").attach(slab)
    rows = epoch_of(order)
    assert all(np.sum(rows[at : at + 4] < 130) == 1 for at in range(len(rows) - 3))
    balanced = Balanced("label").attach(slab)
    assert balanced.length(ROWS) == ROWS
    for rows in epoch_of(balanced)[: ROWS // 8 * 8].reshape(-1, 8):
        assert np.unique(LABELS[rows], return_counts=True)[1].tolist() == [2, 2, 2, 2]
    views = slab[10:150], slab[::-3]
    for view in views:
        rows = epoch_of(Balanced("label").attach(view), len(view))
        labels, counts = np.unique(view["label"][rows], return_counts=True)
        assert labels.tolist() == np.unique(view["label"][:]).tolist()
        assert np.ptp(counts) <= 1


def test_slabs_that_are_opened_as_one_are_sources(tmp_path: Path) -> None:
    """Members are sources by their names; a state knows which member had which name."""
    paths = [
        write_slab(tmp_path / f"{name}.slab", {"x": np.full(size, size)})
        for name, size in (("a", 60), ("b", 20))
    ]
    both = open_slab({"web": paths[0], "code": paths[1]})
    order = Mixed({"web": 0.75, "code": 0.25})
    loader = Loader(both, 8, order, prefetch=0)
    for batch in loader:
        assert (batch["x"] == 20).sum() == len(batch.rows) // 4
    swapped = Loader(open_slab({"code": paths[0], "web": paths[1]}), 8, order)
    with pytest.raises(UsageError, match="another order"):
        swapped.load_state_dict(loader.state_dict())
    recalled = recall_order(json.loads(json.dumps(loader.state_dict()["order"])))
    assert recalled.key() == order.key()
    rows = epoch_of(Mixed({"web": 1, "code": 1}, exhausted="stop").attach(both[40:70]), 30)
    assert sorted(rows[rows < 20]) != rows[rows < 20].tolist()
    assert set(rows) > set(range(20, 30))


def test_rows_of_a_group_follow_each_other(slab: Slab) -> None:
    """`Grouped` visits each row once; a group comes in one piece, groups and rows shuffled."""
    order = Grouped("label", seed=3).attach(slab)
    epochs = [epoch_of(order, epoch=epoch) for epoch in range(6)]
    sequences = set()
    for rows in epochs:
        assert np.array_equal(np.sort(rows), np.arange(ROWS))
        borders = np.flatnonzero(np.diff(LABELS[rows]))
        assert len(borders) == 3
        sequences.add(tuple(LABELS[rows][[0, *(borders + 1)]]))
    assert len(sequences) > 2
    assert not np.array_equal(epochs[0][:5], np.sort(epochs[0][:5]))
    again = pickle.loads(pickle.dumps(order))
    assert np.array_equal(epoch_of(again), epochs[0])


def test_a_file_of_rows_is_mapped(slab: Slab, tmp_path: Path) -> None:
    """`Subset` and `Mixed` take `.npy` files, of any integers; they equal the arrays."""
    rows = np.arange(3, ROWS, 7)
    np.save(tmp_path / "rows.npy", rows.astype(np.uint16))
    path = tmp_path / "rows.npy"
    mapped, listed = Subset(path, seed=2), Subset(rows, seed=2)
    assert str(path) in Path("/proc/self/maps").read_text()
    assert mapped.key() == listed.key()
    for order in (mapped, pickle.loads(pickle.dumps(mapped))):
        assert np.array_equal(epoch_of(order.attach(slab)), epoch_of(listed))
        assert not order.visits(0, 0, 5, ROWS).any()
    groups = {"a": str(path), "b": range(3)}
    assert set(epoch_of(Mixed({"a": 1, "b": 1}, groups=groups).attach(slab))) == {*rows, 0, 1, 2}
    np.save(path, np.array([1.5]))
    for wrong in (path, tmp_path / "none.npy", __file__):
        with pytest.raises(UsageError, match="row"):
            Subset(wrong)
    slab[3:7].save(tmp_path / "view.rows")
    with pytest.raises(UsageError, match=r"slab\.select"):
        Subset(tmp_path / "view.rows")
    with pytest.raises(UsageError, match=r"not a \.npy file\. Write it with numpy"):
        Subset(__file__)


ORDERS = {
    "repeat": Mixed({"web": 0.5, "code": 0.45, "books": 0.05}, groups=GROUPS),
    "stop": Mixed({"web": 5, "code": 2}, 4, groups=GROUPS, exhausted="stop"),
    "drop": Mixed({"web": 1, "code": 3, "books": 0.01}, groups=GROUPS, exhausted="drop"),
    "schedule": Mixed({"web": 1}, groups=GROUPS, schedule={70: {"web": 1, "code": 1}}),
    "field": Mixed({"web": 1, "code": 2}, by="source"),
    "balanced": Balanced("label", 5),
    "grouped": Grouped("label", 5),
    "subset": Subset(np.arange(9, 200, 2)),
    "windows": Windows(7, 3, "label", seed=5),
    "mixed windows": Mixed(
        {"web": 2, "code": 1},
        groups={"web": range(100), "code": range(160, 230)},
        windows=Windows(7, 3),
    ),
}


@settings(max_examples=25)
@given(
    name=st.sampled_from(sorted(ORDERS)),
    sizes=st.tuples(*[st.integers(1, 9)] * 2),
    worlds=st.tuples(*[st.integers(1, 5)] * 2),
    steps=st.integers(0, 6),
    epoch=st.integers(0, 3),
)
def test_any_ranks_share_and_resume_any_order(
    slab: Slab,
    name: str,
    sizes: tuple[int, int],
    worlds: tuple[int, int],
    steps: int,
    epoch: int,
) -> None:
    """Ranks visit together what the order has, and others go on where they stopped."""
    order = ORDERS[name]
    expected = epoch_of(order.attach(slab), epoch=epoch).tolist()

    def make(part: int, state: Any = None) -> list[Loader]:
        loaders = []
        for rank in range(worlds[part]):
            options: dict[str, Any] = {"rank": rank, "world_size": worlds[part], "prefetch": 0}
            loaders.append(Loader(slab, sizes[part], order, fields=[], **options))
            loaders[-1].set_epoch(epoch)
            if state is not None:
                loaders[-1].load_state_dict(state)
        return loaders

    def rows_of(step: Any) -> list[int]:
        return [row for batch in step for row in batch.rows.tolist()]

    first = make(0)
    begun = list(itertools.islice(zip(*first, strict=True), steps))
    state = json.loads(json.dumps(first[0].state_dict()))
    second = make(1, state)
    for number, step in enumerate(begun):
        for rank, batch in enumerate(step):
            assert first[0].rows_at(epoch, number, rank).tolist() == batch.rows.tolist()
    if state["epoch"] > epoch:
        return
    planned = [
        [second[0].rows_at(epoch, number, rank).tolist() for rank in range(worlds[1])]
        for number in range(second[0]._make_plan(epoch, state["position"]).batch_count)
    ]
    rest = list(zip(*second, strict=True))
    assert [[batch.rows.tolist() for batch in step] for step in rest] == planned
    visited = [row for step in (*begun, *rest) for row in rows_of(step)]
    assert visited[: len(expected)] == expected
    assert len(visited) - len(expected) < max(worlds)


def test_any_part_is_that_part_of_the_whole(slab: Slab) -> None:
    """Rows at positions a..b depend on nothing else, also after pickling; views may be empty."""
    for name, order in ORDERS.items():
        with case(name):
            attached = order.attach(slab)
            whole = epoch_of(attached, epoch=2)
            again = pickle.loads(pickle.dumps(attached))
            for start in range(0, len(whole), 31):
                part = again.rows(2, start, min(start + 9, len(whole)), ROWS)
                assert np.array_equal(part, whole[start : start + 9])
    for empty in (Balanced("label"), Grouped("label")):
        with case(empty):
            assert list(Loader(slab[:0], 4, empty, prefetch=0)) == []


def test_streams_are_frozen(slab: Slab) -> None:
    """Runs that stopped resume by these rows."""
    frozen = {
        name: epoch_of(order.attach(slab), epoch=1)[:8].tolist() for name, order in ORDERS.items()
    }
    assert frozen == {
        "repeat": [5, 225, 74, 190, 88, 200, 16, 226],
        "stop": [61, 222, 66, 99, 94, 224, 49, 10],
        "drop": [177, 5, 227, 196, 207, 74, 161, 182],
        "schedule": [78, 197, 82, 201, 4, 223, 39, 207],
        "field": [146, 26, 156, 223, 6, 189, 174, 52],
        "balanced": [91, 56, 196, 142, 109, 42, 222, 141],
        "grouped": [140, 142, 144, 141, 143, 78, 21, 82],
        "subset": [183, 71, 95, 151, 93, 111, 195, 181],
        "windows": [187, 102, 0, 123, 214, 51, 199, 148],
        "mixed windows": [66, 172, 3, 93, 175, 33, 27, 178],
    }


def test_orders_that_differ_have_different_keys(slab: Slab, tmp_path: Path) -> None:
    """`key` tells apart what gives other rows, and is ready for JSON."""
    orders = [*ORDERS.values()]
    orders += [Mixed({"web": 1}, groups={"web": range(3)}), Mixed({"web": 1}), Mixed({"web": 2})]
    orders += [Mixed({"web": 1}, groups={"web": [1, 2]}), Mixed({"web": 1}, groups={"web": [2]})]
    orders += [Mixed({"web": 1}, by="source"), Mixed({"web": 1}, by="label"), Mixed({"web": 1}, 1)]
    orders += [Balanced("label"), Balanced("label", length=3), Grouped("label"), Grouped("source")]
    keys = {json.dumps(order.key()) for order in orders}
    assert len(keys) == len(orders)
    assert all(order.attach(slab).key() == order.key() for order in ORDERS.values())


def test_what_cannot_be_mixed_is_refused(slab: Slab) -> None:
    """Weights, names, groups and fields are checked before anything is read."""
    for weights in ({}, {"a": -1}, {"a": float("nan")}, {"a": float("inf")}, {"a": 0}, ["a"]):
        with case(weights), pytest.raises(UsageError, match="weight"):
            Mixed(weights)  # type: ignore[arg-type]
    refused: list[dict[str, Any]] = [
        {"exhausted": "end"},
        {"groups": {}, "by": "x"},
        {"schedule": {0: {"web": 1}}},
        {"schedule": {5: {"web": 1}}, "exhausted": "drop"},
        {"groups": {"wep": range(3)}},
    ]
    for options in refused:
        with case(options), pytest.raises(UsageError):
            Mixed({"web": 1}, **options)
    with pytest.raises(UsageError, match="the class Balanced"):
        Loader(slab, 4, Balanced)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="opened alone has no members"):
        Mixed({"web": 1}).attach(slab)
    with pytest.raises(UsageError, match=r"no source.*Did you mean 'web'"):
        Mixed({"wep": 1}, by="source").attach(slab)
    with pytest.raises(UsageError, match="no rows"):
        Mixed({"web": 1}, groups={"web": []}).attach(slab)
    for rows in (range(9, ROWS + 1), [3, ROWS], range(5, -(ROWS + 9), -1)):
        with case(rows), pytest.raises(RowOutOfRange):
            Mixed({"web": 1}, groups={"web": rows}).attach(slab)
    for order in (Mixed({"web": 1}, by="source"), Balanced("label"), Grouped("label")):
        with pytest.raises(UsageError, match="attach"):
            order.rows(0, 0, 1, ROWS)
    for field, error in (("none", UnknownField), ("text", UsageError), ("maybe", UsageError)):
        with case(field), pytest.raises(error):
            Balanced(field).attach(slab)


def test_any_step_of_a_huge_epoch(slab: Slab) -> None:
    """A step is computed without those before it, and there is none behind the last."""
    loader = Loader(slab, 10, Shuffled(1), rank=1, world_size=3, prefetch=0)
    expected = [batch.rows.tolist() for batch in loader]
    assert [loader.rows_at(0, step).tolist() for step in range(len(loader))] == expected
    assert loader.rows_at(5, 2, rank=0).tolist() == Shuffled(1).rows(5, 60, 70, ROWS).tolist()
    for wrong in ((0, len(loader)), (-1, 0), (0, -1), (0, 0, 3)):
        with case(wrong), pytest.raises(UsageError):
            loader.rows_at(*wrong)
