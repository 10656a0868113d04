"""Mixtures: shares in every window of a length, and rows that are counted without those before."""

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.naming import case
from tests.slabs import write_slab

from fieldslab.reader import Loader, Mixed, Slab, open_slab
from fieldslab.reader.orders.interleaving import Interleaving, scale_weights
from fieldslab.reader.orders.ordertext import recall_order
from fieldslab.reader.orders.proportions import LooseTurns, count_window, make_turns
from fieldslab.schemas.errors import UsageError

ROWS = 230
GROUPS: dict[str, Any] = {
    "web": range(100),
    "code": range(229, 159, -1),
    "books": np.array([150, 101, 149, -120]),
}
WEIGHTS = {"web": 0.52, "code": 0.31, "books": 0.17}
VERSION_1 = {
    "repeat": (224, [72, 229, 18, 110, 36, 172, 24, 194]),
    "drop": (174, [3, 229, 91, 101, 83, 172, 53, 194]),
    "schedule": (262, [173, 3, 183, 150, 174, 91, 215, 83]),
    "long": (223, [90, 177, 99, 150, 14, 227, 47, 196]),
}
"""Length of an epoch, and its first rows in the second one, as they were before version 2."""
ORDERS = {
    "repeat": Mixed(WEIGHTS, 1, groups=GROUPS),
    "drop": Mixed(WEIGHTS, 1, groups=GROUPS, exhausted="drop"),
    "schedule": Mixed(
        WEIGHTS, 1, groups=GROUPS, schedule={9: {"web": 1, "code": 1.3, "books": 0.37}}
    ),
    "long": Mixed({"web": 0.5123456789, "code": 0.31, "books": 0.17}, groups=GROUPS),
}


@pytest.fixture(scope="module")
def slab(tmp_path_factory: pytest.TempPathFactory) -> Slab:
    """As many rows as the groups need."""
    folder = tmp_path_factory.mktemp("proportions")
    return open_slab(write_slab(folder / "a.slab", {"x": np.arange(ROWS)}))


def draw_weights(random: np.random.Generator) -> list[float]:
    """Whole numbers, decimals, any numbers, or numbers of very different sizes; some are equal."""
    size = int(random.integers(2, 41))
    weights: list[Any] = [
        random.integers(1, 40, size),
        np.maximum(random.dirichlet(np.ones(size)).round(3), 0.001),
        random.random(size) + 0.02,
        10.0 ** random.uniform(-2, 0, size),
        np.repeat([0.97, 0.41], [size - 1, 1]) + 0.001 * random.integers(0, 2, size),
    ]
    chosen: list[float] = weights[int(random.integers(len(weights)))].tolist()
    return chosen


def test_every_window_of_a_hundred_rows_of_the_rarest_is_exact_to_a_row() -> None:
    """Of random weights, each window has each source within a row, and counts are brute force."""
    random = np.random.default_rng(7)
    loose = 0
    for number in range(40):
        weights = scale_weights(draw_weights(random))
        total, window = int(weights.sum()), count_window(weights.tolist())
        turns = make_turns(weights)
        loose += isinstance(turns, LooseTurns)
        first = int(random.choice([0, 10**6 + 7, 10**13]))
        length = max(min(20 * window, 60_000), 2 * window) if window < 200_000 else 0
        sources, numbers = turns.locate(first, first + length)
        before = turns.count(first)
        assert before.sum() == first
        with case(number, weights.tolist()[:5]):
            for source, weight in enumerate(weights.tolist()):
                own = sources == source
                counts = np.concatenate([[0], np.cumsum(own)])
                in_windows = counts[window:] - counts[: len(counts) - window]
                share = Fraction(window * weight, total)
                assert abs(int(in_windows.min(initial=round(share))) - share) < 1
                assert abs(int(in_windows.max(initial=round(share))) - share) < 1
                assert np.array_equal(numbers[own], before[source] + np.arange(counts[-1]))
            assert np.array_equal(
                turns.count(first + length), before + np.bincount(sources, minlength=len(before))
            )
            if isinstance(turns, LooseTurns):
                several = turns.parts * window
                exact = turns.count(first + several) - before
                rounded = 0 if turns.parts < 2**24 else 3
                assert all(
                    abs(rows - Fraction(several * weight, total)) <= rounded
                    for rows, weight in zip(exact.tolist(), weights.tolist(), strict=True)
                )
    assert 10 < loose < 40


def test_weights_keep_a_cycle_where_windows_allow_it() -> None:
    """Two sources and whole cycles take turns as before; a short cycle stays if windows agree."""
    for weights, is_cycle in (
        ([0.7, 0.3], True),
        ([0.123456789, 1], True),
        ([0.5, 0.3, 0.2], True),
        ([1] * 7, True),
        ([0.6, 0.25, 0.15], False),
        ([5, 3, 3], True),
        ([0.52, 0.31, 0.17], False),
        ([3, 0, 1, 0], True),
    ):
        with case(weights):
            assert isinstance(make_turns(scale_weights(weights)), Interleaving) == is_cycle
    tiny = make_turns(scale_weights([1e-30, 1, 0.7, 1e-9]))
    counts = tiny.count(2**40)
    assert counts.sum() == 2**40
    assert counts[3] == pytest.approx(2**40 / 1.7e9, abs=3)


def test_a_state_of_version_1_goes_on_with_its_sequence(slab: Slab) -> None:
    """Saved runs see the rows that were left then, also by the text of the order in a state."""
    for name, (length, rows) in VERSION_1.items():
        with case(name):
            order = ORDERS[name]
            key = json.loads(json.dumps(order.key() | {"version": 1}))
            loader = Loader(slab, 8, order, prefetch=0)
            state = loader.state_dict() | {"order": key, "epoch": 1}
            loader.load_state_dict(state)
            assert next(iter(loader)).rows.tolist() == rows
            assert loader._attached.length(ROWS) == length
            assert loader.state_dict()["order"] == key
            assert loader.rows_at(1, 0).tolist() == rows
            other = Loader(slab, 8, Mixed(WEIGHTS, 2, groups=GROUPS))
            with pytest.raises(UsageError, match="another order"):
                other.load_state_dict(state)
            changed = order.attach(slab).rows(1, 0, 8, ROWS).tolist()
            assert (changed == rows) == (name == "drop")  # which has two sources left soon
    earlier = json.loads(json.dumps(Mixed({"a": 5, "b": 3, "c": 3}, by="x").key()))
    earlier["version"] = 1
    assert recall_order(earlier).key() == earlier
