"""The order `TokenBudget`: batches of about as many tokens, equal steps on all ranks."""

import itertools
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from tests.naming import case
from tests.slabs import ragged, write_slab

from fieldslab.reader import Loader, Slab, TokenBudget, open_slab
from fieldslab.reader.grain import grain_batches
from fieldslab.schemas.errors import UnknownField, UsageError

ROWS = 3000
BUDGET = 1024
LENGTHS = np.random.default_rng(0).lognormal(3.5, 0.8, ROWS).astype(np.int64).clip(0, 900)


@pytest.fixture(scope="module")
def slab(tmp_path_factory: pytest.TempPathFactory) -> Slab:
    """Rows of very different lengths."""
    columns = {"tokens": ragged([np.arange(n) for n in LENGTHS], "uint16"), "x": np.arange(ROWS)}
    path = tmp_path_factory.mktemp("tokens") / "a.slab"
    return open_slab(write_slab(path, columns, [1000, 2000]))


def load(slab: Slab, rank: int = 0, world_size: int = 1, seed: int = 0) -> Loader:
    """A loader of numbers alone."""
    order = TokenBudget(BUDGET, "tokens", seed)
    return Loader(slab, order=order, fields=["x"], prefetch=0, rank=rank, world_size=world_size)


def rows_of(loader: Loader) -> list[list[int]]:
    """The rows of each batch of an epoch."""
    return [batch.rows.tolist() for batch in loader]


def test_batches_keep_the_budget(slab: Slab) -> None:
    """Each row comes once an epoch, no batch has more tokens than allowed, and few are padding."""
    loader = Loader(slab, order=TokenBudget(BUDGET, "tokens"), prefetch=2)
    epochs = [[batch.rows for batch in loader] for _ in range(2)]
    for batches in epochs:
        assert np.array_equal(np.sort(np.concatenate(batches)), np.arange(ROWS))
        assert all(len(rows) * LENGTHS[rows].max() <= BUDGET or len(rows) == 1 for rows in batches)
        assert len(batches) == len(loader) < 1.3 * LENGTHS.sum() / BUDGET
        firsts = np.array([LENGTHS[rows].max() for rows in batches])
        assert abs(np.corrcoef(np.arange(len(firsts)), firsts)[0, 1]) < 0.3
    large = [{tuple(rows.tolist()) for rows in batches if len(rows) > 4} for batches in epochs]
    assert large[0] & large[1] == set()
    padded = sum(len(rows) * LENGTHS[rows].max() for rows in epochs[1])
    stats = loader.stats()
    assert (stats.tokens, stats.padded_tokens) == (LENGTHS.sum(), padded)
    assert 0 < stats.as_dict()["padding_percent"] < 20
    assert f"{LENGTHS.sum():,} tokens; of batches" in str(stats)
    assert Loader(slab, 7, prefetch=0).stats().as_dict()["padding_percent"] == 0


def test_ranks_take_as_many_steps(slab: Slab) -> None:
    """A step has a batch for each rank, the same on any number of ranks, and a run goes on."""
    whole = rows_of(load(slab))
    for size in (2, 3, 7):
        loaders = [load(slab, rank, size) for rank in range(size)]
        assert {len(loader) for loader in loaders} == {-(-len(whole) // size)}
        steps = [*zip(*map(rows_of, loaders), strict=True)]
        together = list(itertools.chain(*steps))
        assert together == (whole + whole)[: len(together)]
        assert loaders[0].rows_at(0, 3, rank=1).tolist() == whole[3 * size + 1]
        for loader in loaders:
            loader.set_epoch(0)
            for _ in itertools.islice(loader, 5):
                pass
        state = json.loads(json.dumps(loaders[0].state_dict()))
        assert state == loaders[-1].state_dict()
        other = load(slab)
        other.load_state_dict(state)
        assert rows_of(other) == whole[5 * size :]
        options = {"rank": 0, "world_size": size, "drop_last": True}
        dropped = Loader(slab, order=TokenBudget(BUDGET, "tokens"), **options)  # type: ignore[arg-type]
        assert len(dropped) == len(whole) // size
    with pytest.raises(UsageError, match="another order"):
        load(slab, seed=1).load_state_dict(load(slab).state_dict())


def test_any_position_is_computed_by_itself(slab: Slab) -> None:
    """Parts of an epoch are those of the whole, after pickling, too; runs resume by these rows."""
    order = TokenBudget(BUDGET, "tokens", seed=2).attach(slab)
    whole = order.rows(1, 0, ROWS, ROWS)
    again = pickle.loads(pickle.dumps(order))
    for start in range(0, ROWS, 411):
        assert np.array_equal(again.rows(1, start, start + 9, ROWS), whole[start : start + 9])
    assert whole[:6].tolist() == [1307, 1610, 1527, 437, 682, 901]


def test_few_rows_and_views(slab: Slab, tmp_path: Path) -> None:
    """Views, few rows, empty rows and none at all are batches, too."""
    for view in (slab[5:9], slab[::-7], slab[:0]):
        rows = sorted(itertools.chain(*rows_of(load(view))))
        assert rows == list(range(len(view)))
    columns = {"tokens": ["", "", "abc"], "x": np.arange(3)}
    texts = open_slab(write_slab(tmp_path / "b.slab", columns))
    assert sorted(itertools.chain(*rows_of(load(texts)))) == [0, 1, 2]


def test_grain_has_the_batches_of_a_loader(slab: Slab) -> None:
    """Of each rank in each epoch: the same batches, also in a copy that travels."""
    order = TokenBudget(BUDGET, "tokens", seed=2)
    for rank in range(2):
        loader = load(slab, rank, 2, seed=2)
        source = grain_batches(
            slab, order=order, fields=["x"], epochs=2, drop_last=False, rank=rank, world_size=2
        )
        expected = rows_of(loader) + rows_of(loader)
        assert len(source) == len(expected)
        for batches in (source, pickle.loads(pickle.dumps(source))):
            assert [batches[i]["x"].tolist() for i in range(len(source))] == expected


def test_what_cannot_be_is_refused(slab: Slab) -> None:
    """Fields, lengths and batch sizes are checked when a loader is made."""
    with pytest.raises(UsageError, match=r"more tokens.*tokens, row 0, expected .up to 10"):
        Loader(slab, order=TokenBudget(10, "tokens"))
    for field, error in (("none", UnknownField), ("x", UsageError)):
        with case(field), pytest.raises(error):
            TokenBudget(10, field).attach(slab)
    with pytest.raises(UsageError, match="the order decides"):
        Loader(slab, 8, TokenBudget(BUDGET, "tokens"))
    with pytest.raises(UsageError, match="the order decides"):
        grain_batches(slab, 8, order=TokenBudget(BUDGET, "tokens"))
    with pytest.raises(UsageError, match="batch_size is missing"):
        Loader(slab)
    for wrong in (0, 1.5, "many"):
        with case(wrong), pytest.raises(UsageError):
            TokenBudget(wrong, "tokens")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="attach"):
        TokenBudget(5, "tokens").rows(0, 0, 1, ROWS)
