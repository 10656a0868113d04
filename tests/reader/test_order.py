"""Orders: every row as often as promised, any position at once, and never another stream."""

import json
import math
import pickle
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tests.slabs import ragged, write_slab

from fieldslab.reader import (
    Blocked,
    ByLength,
    Near,
    Order,
    Sequential,
    Shuffled,
    Strided,
    Subset,
    Weighted,
    open_slab,
)
from fieldslab.schemas.errors import RowOutOfRange, UnknownField, UsageError

SIZES = [0, 1, 2, 3, 7, 8, 63, 64, 65, 100, 101, 1000]
ORDERS = [
    Sequential(),
    Shuffled(3),
    Blocked(3, block_rows=1, window=1),
    Blocked(3, block_rows=4, window=3),
    Blocked(3, block_rows=7, window=1),
    Blocked(3, block_rows=64, window=2),
    Blocked(3, block_rows=5000, window=2),
    Blocked(3),
    Blocked(3, block_rows=4, window=3, spread=True),
    Blocked(3, block_rows=7, window=1, spread=True),
    Blocked(3, block_rows=1, window=5, spread=True),
    Blocked(3, block_rows=64, window=2, spread=True),
    Subset(fraction=1.0, seed=3),
]


def epoch_of(order: Order, total: int, epoch: int = 0) -> np.ndarray:
    """All rows of an epoch."""
    return order.rows(epoch, 0, order.length(total), total)


@pytest.mark.parametrize("order", ORDERS, ids=repr)
def test_every_row_comes_once_an_epoch(order: Order) -> None:
    """Orders over all rows visit each row exactly once in each epoch."""
    for total, epoch in product(SIZES, range(3)):
        rows = epoch_of(order, total, epoch)
        assert rows.dtype == np.int64, (total, epoch)
        assert np.array_equal(np.sort(rows), np.arange(total)), (total, epoch)


@pytest.mark.parametrize(
    "order", [*ORDERS, Strided(3), Subset(fraction=0.3), Weighted(np.arange(1000))], ids=repr
)
def test_any_part_is_the_same_as_that_part_of_the_whole(order: Order) -> None:
    """Rows at positions a..b do not depend on what was asked before or along with them."""
    whole = epoch_of(order, 1000, 2)
    for start in range(0, len(whole), 17):
        for stop in {start, start + 1, min(start + 100, len(whole))}:
            if stop <= len(whole):
                assert np.array_equal(order.rows(2, start, stop, 1000), whole[start:stop])


@pytest.mark.parametrize(
    "order",
    [Shuffled(1), Blocked(1), Strided(1000), Subset(fraction=0.5, seed=1)],
    ids=repr,
)
def test_a_billion_rows_need_no_array(order: Order) -> None:
    """Positions anywhere in an epoch of 10**9 rows are reached directly, and are in range."""
    total = 10**9
    for start in (0, 123_456, order.length(total) - 512):
        rows = order.rows(0, start, start + 512, total)
        assert len(np.unique(rows)) == 512
        assert rows.min() >= 0
        assert rows.max() < total


@pytest.mark.parametrize(
    "make",
    [
        Shuffled,
        Blocked,
        lambda seed: Subset(fraction=0.5, seed=seed),
        lambda seed: Subset(range(0, 1000, 2), seed=seed),
        lambda seed: Weighted(np.ones(1000), seed),
    ],
)
def test_seed_and_epoch_alone_decide(make) -> None:  # type: ignore[no-untyped-def]
    """The same seed and epoch give the same rows; another seed or epoch gives others."""
    rows = epoch_of(make(1), 1000, 4)
    assert np.array_equal(rows, epoch_of(make(1), 1000, 4))
    assert not np.array_equal(rows, epoch_of(make(1), 1000, 5))
    assert not np.array_equal(rows, epoch_of(make(2), 1000, 4))


def test_streams_are_frozen(tmp_path: Path) -> None:
    """These rows came out of the first release: runs that stopped under it resume by them."""
    frozen = {
        Shuffled(0): [1, 29, 12, 27, 17, 8, 15, 14, 16, 28, 11, 3],
        Shuffled(2**80): [18, 16, 22, 19, 20, 13, 6, 9, 14, 24, 2, 21],
        Blocked(0, block_rows=4, window=2): [2, 0, 1, 14, 3, 15, 12, 13, 29, 25, 27, 24],
        Blocked(0, block_rows=4, window=2, spread=True): [
            25,
            26,
            12,
            13,
            14,
            27,
            24,
            15,
            3,
            2,
            1,
            0,
        ],
        Subset(fraction=0.25, seed=5): [3, 12, 2, 13, 1, 7, 25, 0],
        Subset([5, 4, -1], seed=2): [29, 5, 4],
        Weighted(np.arange(30), seed=1): [21, 24, 14, 13, 21, 24, 19, 25, 23, 28, 25, 26],
    }
    for order, rows in frozen.items():
        assert epoch_of(order, 30, 1)[:12].tolist() == rows, order
    lengths = [n * n % 11 for n in range(30)]
    path = write_slab(tmp_path / "a.slab", {"text": ["x" * n for n in lengths]})
    order = ByLength("text", seed=1, bucket=4).attach(open_slab(path))
    assert epoch_of(order, 30, 1)[:12].tolist() == [5, 28, 20, 2, 24, 9, 13, 7, 21, 1, 23, 12]


def test_blocks_stay_together_within_a_window() -> None:
    """A window of `Blocked` touches `window` blocks and no others."""
    rows = epoch_of(Blocked(0, block_rows=10, window=4), 1000)
    for window in rows.reshape(-1, 40):
        blocks = np.unique(window // 10)
        assert len(blocks) == 4
    assert len(np.unique(rows[:40] // 10)) == 4
    assert not np.array_equal(rows[:40], np.sort(rows[:40]))


def test_spread_blocks_come_from_every_part() -> None:
    """Each window has a block of each of as many parts of the slab, in another turn each epoch."""
    order = Blocked(0, block_rows=10, window=4, spread=True)
    for epoch in (0, 1):
        for rows_of_window in epoch_of(order, 1000, epoch).reshape(-1, 40):
            blocks = np.unique(rows_of_window // 10)
            assert len(blocks) == 4
            assert (blocks // 25).tolist() == [0, 1, 2, 3]
    first, second = (epoch_of(order, 1000, epoch)[:40] // 10 for epoch in (0, 1))
    assert set(first.tolist()) != set(second.tolist())
    turns = np.zeros((25, 25))
    for epoch in range(400):
        rows = epoch_of(order, 1000, epoch).reshape(-1, 40)
        for window, members in enumerate(rows // 10):
            turns[window, members.min()] += 1
    assert np.abs((turns - 16) / math.sqrt(16)).max() < 5


def test_sorted_data_is_shuffled_by_default() -> None:
    """On data sorted by class, batches by class are near those of a true shuffle."""
    total, classes, size = 200_000, 1000, 4096
    labels = np.arange(total) * classes // total

    def unevenness(order: Order) -> float:
        """Chi-squared per degree of freedom of the classes in a batch: 1.0 for a true shuffle."""
        rows = epoch_of(order, total)
        results = []
        for start in range(0, total - size, size):
            counts = np.bincount(labels[rows[start : start + size]], minlength=classes)
            results.append(
                ((counts - size / classes) ** 2).sum() / (size / classes) / (classes - 1)
            )
        return float(np.mean(results))

    assert unevenness(Blocked(0)) < 1.5
    assert unevenness(Blocked(0, 256, 64)) > 10


def test_blocks_have_bytes_enough(tmp_path: Path) -> None:
    """`Blocked` chooses its block by the largest rows, keeps what is given, and tells of it."""
    columns = {"small": np.arange(4000), "wide": np.zeros((4000, 1024), np.uint8)}
    slab = open_slab(write_slab(tmp_path / "a.slab", columns))
    chosen = "Blocked(seed=3, block_rows=256, window=2048, spread=True)"
    assert repr(Blocked(3).attach(slab)) == chosen
    assert repr(Blocked(3).attach(slab[:100])) == chosen
    huge = open_slab(write_slab(tmp_path / "b.slab", {"x": np.zeros((4, 10**5))}))
    assert "block_rows=8," in repr(Blocked(3).attach(huge))
    assert repr(Blocked(3, 9).attach(slab)) == "Blocked(seed=3, block_rows=9, window=64)"
    assert repr(Blocked(3, spread=False)) == "Blocked(seed=3, block_rows=256, window=64)"
    for order in (Blocked(3), Blocked(3, 9), Blocked(3, window=7, spread=True)):
        attached = order.attach(slab)
        again = Blocked(3).recall(attached.key())
        assert again is not None
        assert np.array_equal(epoch_of(again, 4000), epoch_of(attached, 4000))


@pytest.mark.parametrize("spread", [False, True])
def test_the_short_block_comes_anywhere(spread: bool) -> None:
    """The rows behind the last whole block come at the end of an epoch no more than elsewhere."""
    order = Blocked(0, block_rows=10, window=1, spread=spread)
    places = [int(np.argmax(epoch_of(order, 45, epoch) == 44)) for epoch in range(400)]
    counts = np.histogram(places, bins=[0, 5, 15, 25, 35, 45])[0]
    assert counts.sum() == 400
    assert counts[1:].min() > 50


def test_strided_takes_every_nth_row() -> None:
    """`Strided(n)` is rows 0, n, 2n and so on."""
    assert epoch_of(Strided(4), 10).tolist() == [0, 4, 8]
    assert epoch_of(Strided(1), 3).tolist() == [0, 1, 2]
    assert epoch_of(Strided(4), 0).tolist() == []


def test_a_fraction_has_the_same_members_in_each_epoch() -> None:
    """The seed of a random subset chooses rows once; epochs shuffle them."""
    first, second = (epoch_of(Subset(fraction=0.3, seed=1), 1000, epoch) for epoch in (0, 1))
    assert len(np.unique(first)) == 300
    assert not np.array_equal(first, second)
    assert np.array_equal(np.sort(first), np.sort(second))
    other = epoch_of(Subset(fraction=0.3, seed=2), 1000)
    assert not np.array_equal(np.sort(first), np.sort(other))


def test_members_of_a_fraction_are_a_fair_choice() -> None:
    """Over many seeds, every row is a member equally often."""
    counts = np.zeros(50)
    for seed in range(2000):
        counts[epoch_of(Subset(fraction=0.4, seed=seed), 50)] += 1
    deviation = (counts - 800) / math.sqrt(2000 * 0.4 * 0.6)
    assert np.abs(deviation).max() < 4


def test_given_rows_come_as_given_or_shuffled() -> None:
    """Without a seed the rows keep their order; negative ones count from the end."""
    assert epoch_of(Subset([5, -1, 2, 5], seed=None), 10).tolist() == [5, 9, 2, 5]
    assert sorted(epoch_of(Subset([5, -1, 2, 5], seed=3), 10)) == [2, 5, 5, 9]


def test_weights_decide_how_often_a_row_comes() -> None:
    """Draws follow the weights; a row of weight 0 never comes."""
    weights = np.array([0, 1, 2, 0, 5, 0] * 50, np.float64)
    counts = np.zeros(300)
    for epoch in range(400):
        counts += np.bincount(epoch_of(Weighted(weights, 0), 300, epoch), minlength=300)
    assert counts[weights == 0].sum() == 0
    expected = weights / weights.sum() * 300 * 400
    some = weights > 0
    assert np.abs((counts - expected)[some] / np.sqrt(expected[some])).max() < 4.5


@pytest.mark.parametrize("rows", [0, 1, 5, 64, 300, 1003])
def test_by_length_brings_like_to_like(tmp_path: Path, rows: int) -> None:
    """Each row comes once; a bucket's rows differ little in length; buckets come mixed."""
    lengths = np.random.default_rng(0).integers(0, 200, rows)
    columns = {"tokens": ragged([np.arange(n) for n in lengths], "int32")}
    shards = [rows // 2, rows - rows // 2] if rows > 1 else None
    slab = open_slab(write_slab(tmp_path / "a.slab", columns, shards))
    order = ByLength("tokens", bucket=8).attach(slab)
    for epoch in range(2):
        actual = epoch_of(order, rows, epoch)
        assert np.array_equal(np.sort(actual), np.arange(rows))
    buckets = lengths[actual][: rows // 8 * 8].reshape(-1, 8)
    if rows == 1003:
        assert np.ptp(buckets, axis=1).mean() < 10
        assert abs(np.corrcoef(np.arange(len(buckets)), buckets[:, 0])[0, 1]) < 0.3
        parts = [order.rows(1, start, min(start + 37, rows), rows) for start in range(0, rows, 37)]
        assert np.array_equal(np.concatenate(parts), actual)
        again = pickle.loads(pickle.dumps(order))
        assert np.array_equal(epoch_of(again, rows, 1), actual)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Shuffled(1.5), UsageError),  # type: ignore[arg-type]
        (lambda: Strided(0), UsageError),
        (lambda: Blocked(0, block_rows=0), UsageError),
        (lambda: Blocked(0, window=-1), UsageError),
        (lambda: Subset(), UsageError),
        (lambda: Subset([1], fraction=0.5), UsageError),
        (lambda: Subset(fraction=0.0), UsageError),
        (lambda: Subset(fraction=1.5), UsageError),
        (lambda: Subset(fraction=0.5, seed=None), UsageError),
        (lambda: Subset([0.5]), UsageError),  # type: ignore[list-item]
        (lambda: Weighted([1, -1]), UsageError),
        (lambda: Weighted([0, 0]), UsageError),
        (lambda: Weighted([1, float("nan")]), UsageError),
        (lambda: Weighted([[1, 2]]), UsageError),
        (lambda: ByLength("x", bucket=0), UsageError),
    ],
)
def test_impossible_orders_are_refused(make, error: type[Exception]) -> None:  # type: ignore[no-untyped-def]
    """An order that cannot be is refused as it is made."""
    with pytest.raises(error):
        make()


def test_an_order_that_does_not_fit_the_slab_is_refused(tmp_path: Path) -> None:
    """Rows, weights and fields are compared with the slab before anything is read."""
    columns = {"label": np.arange(5), "text": ["a", "b", "c", "d", "e"]}
    slab = open_slab(write_slab(tmp_path / "a.slab", columns))
    with pytest.raises(RowOutOfRange, match="position 1"):
        Subset([1, 5]).attach(slab)
    with pytest.raises(UsageError, match="number of weights must be"):
        Weighted([1, 2]).attach(slab)
    with pytest.raises(UnknownField):
        ByLength("tokens").attach(slab)
    with pytest.raises(UsageError, match="fixed size"):
        ByLength("label").attach(slab)
    with pytest.raises(UsageError, match="attach"):
        ByLength("text").rows(0, 0, 1, 5)


def test_orders_that_differ_have_different_keys() -> None:
    """`key` tells apart all orders that give different rows: loaders compare it on resume."""
    orders = [
        *ORDERS,
        Shuffled(4),
        Strided(2),
        Strided(3),
        Subset([1, 2]),
        Subset([1, 3]),
        Subset([1, 2], seed=None),
        Subset(fraction=0.5),
        Weighted([1, 2]),
        Weighted([1, 3]),
        ByLength("a"),
        ByLength("b"),
        Near(),
        Near(2),
        Near(1, 2),
    ]
    keys = [json.dumps(order.key()) for order in orders]
    assert len(set(keys)) == len(orders)
    for key in keys:
        assert {"name", "version"} <= json.loads(key).keys()
