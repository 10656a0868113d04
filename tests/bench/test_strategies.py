"""In which order rows are asked for."""

from itertools import islice

import numpy as np
import pytest

from fieldslab.bench.slab.strategies import STRATEGIES, batches, subset


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("total", "count"), [(1000, 300), (10, 64), (1, 5), (1000, 1000)])
def test_rows_are_there_and_enough(strategy: str, total: int, count: int) -> None:
    """A subset has as many rows as asked for, all of them in the slab, the same for a seed."""
    rows = subset(strategy, total, count, 16, seed=3)
    assert rows.dtype == np.int64
    assert len(rows) == count
    assert 0 <= rows.min() <= rows.max() < total
    np.testing.assert_array_equal(rows, subset(strategy, total, count, 16, seed=3))


def test_what_the_strategies_are() -> None:
    """Each strategy is what its name says."""
    rows = {strategy: subset(strategy, 1000, 1000, 16, 0) for strategy in STRATEGIES}
    every = np.arange(1000)
    np.testing.assert_array_equal(rows["sequential"], every)
    np.testing.assert_array_equal(rows["stratified"], every)
    for strategy in ("random", "blocked"):
        np.testing.assert_array_equal(np.sort(rows[strategy]), every)
        assert (rows[strategy] != every).any()
    assert len(np.unique(rows["repeated"])) == 16
    apart = subset("stratified", 1000, 100, 16, 0)
    np.testing.assert_array_equal(apart // 10, np.arange(100))


def test_batches_never_end() -> None:
    """Batches go on behind the last row of the slab, with rows drawn anew."""
    subsets = list(islice(batches("random", 100, 32, 0), 20))
    assert {len(subset) for subset in subsets} == {32}
    assert len({subset.tobytes() for subset in subsets}) == 20
