"""The order `Near`: a few shards at a time, the same rows whatever the number of ranks."""

from itertools import chain

import numpy as np
import pytest
from tests.slabs import write_slab

from fieldslab.reader import Loader, Near, Order, Shuffled, Slab, open_slab
from fieldslab.reader.grain import grain_batches
from fieldslab.reader.loading.epoch_plan import EpochPlan
from fieldslab.reader.orders.near import AttachedNear
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.notices import FieldslabWarning

SHARD_ROWS = (100, 37, 1, 250, 64, 180, 5, 99)


@pytest.fixture(scope="module")
def slab(tmp_path_factory: pytest.TempPathFactory) -> Slab:
    """Rows are numbered; shards differ in size."""
    total = sum(SHARD_ROWS)
    return open_slab(
        write_slab(tmp_path_factory.mktemp("near") / "a.slab", {"x": np.arange(total)}, SHARD_ROWS)
    )


@pytest.mark.filterwarnings("ignore::fieldslab.schemas.notices.FieldslabWarning")
def test_each_row_comes_once(slab: Slab) -> None:
    """Every row of the slab, or of a view, comes once an epoch, in another sequence each time."""
    views = slab, slab[13:600], slab[::3], slab[::-1], slab[700:20:-7], slab[5:5]
    for view in views:
        for groups, window in ((1, 1), (1, 3), (3, 2), (8, 16), (50, 1)):
            order = Near(groups, window).attach(view)
            total = len(view)
            epochs = [order.rows(epoch, 0, total, total) for epoch in range(2)]
            for rows in epochs:
                assert np.array_equal(np.sort(rows), np.arange(total))
            assert total < 2 or not np.array_equal(epochs[0], epochs[1])


@pytest.mark.filterwarnings("ignore::fieldslab.schemas.notices.FieldslabWarning")
def test_any_positions_are_those_of_the_whole(slab: Slab) -> None:
    """The row at a position depends neither on what is asked along with it nor on the sequence."""
    order, total = Near(3, 2).attach(slab), len(slab)
    whole = order.rows(1, 0, total, total)
    for start in range(0, total, 41):
        positions = np.arange(start, total, 5)
        assert np.array_equal(order.rows_at(1, positions, total), whole[positions])
        assert np.array_equal(order.rows(1, start, total, total), whole[start:])
    shuffled = Shuffled(3)
    assert np.array_equal(
        shuffled.rows_at(0, np.array([3, 9, 700]), total),
        shuffled.rows(0, 0, total, total)[[3, 9, 700]],
    )


@pytest.mark.filterwarnings("ignore::fieldslab.schemas.notices.FieldslabWarning")
def test_a_group_reads_a_window_of_shards_at_a_time(slab: Slab) -> None:
    """A group reads `window` shards and one at its border, then the next ones."""
    groups, total = 2, len(slab)
    for window in (1, 2, 3):
        order = Near(groups, window).attach(slab)
        rows = order.rows(0, 0, total, total)
        shards = np.searchsorted(np.cumsum(SHARD_ROWS), rows, side="right")
        for group in range(groups):
            read = shards[group::groups]
            spans = [np.flatnonzero(read == shard)[[0, -1]] for shard in np.unique(read)]
            open_shards = [
                sum(first <= position <= last for first, last in spans)
                for position in range(len(read))
            ]
            assert max(open_shards) <= window + 1


@pytest.mark.filterwarnings("ignore::fieldslab.schemas.notices.FieldslabWarning")
def test_machines_share_the_shards(slab: Slab) -> None:
    """Ranks of one machine read shards of one group, whatever the number of ranks."""
    half = len(slab) // 2
    for world_size in (2, 4, 8):
        shards: list[set[int]] = [set(), set()]
        for rank in range(world_size):
            loader = Loader(slab, 6, Near(2, 1), rank=rank, world_size=world_size, drop_last=True)
            for batch in loader:
                touched = np.searchsorted(np.cumsum(SHARD_ROWS), batch.rows, side="right")
                shards[rank * 2 // world_size] |= set(touched.tolist())
        assert len(shards[0] & shards[1]) <= 1, half  # the one that is cut between groups


@pytest.mark.filterwarnings("ignore::fieldslab.schemas.notices.FieldslabWarning")
def test_a_step_has_the_same_rows_on_any_number_of_ranks(slab: Slab) -> None:
    """Which rows make up a step depends on its size only, so that a run resumes on other ranks."""
    steps = {}
    for world_size in (1, 2, 3, 4, 6, 12):
        loaders = [
            Loader(slab, 24 // world_size, Near(4, 2), rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]
        shares = [[batch.rows for batch in loader] for loader in loaders]
        steps[world_size] = [np.sort(np.concatenate(step)) for step in zip(*shares, strict=True)]
    for step in zip(*steps.values(), strict=True):
        # The last step may begin the epoch anew to give each rank as much.
        assert all(np.array_equal(rows, step[0]) for rows in step[1:]) or len(step[0]) < 24


def test_shares_by_group_are_a_partition() -> None:
    """The positions of ranks are those of the step, each once; equal shares are filled up."""
    for groups in (1, 2, 3, 8):
        for world_size in (1, 2, 3, 4, 5):
            for length in (1, 2, 29, 30, 31, 100):
                plans = [
                    EpochPlan(length, 6, rank, world_size, groups=groups)
                    for rank in range(world_size)
                ]
                for index in range(plans[0].batch_count):
                    shares = [
                        [
                            position + part.lap * length
                            for part in plan.find_rank_positions(index)
                            for position in range(part.start, part.stop, part.step)
                        ]
                        for plan in plans
                    ]
                    assert len({len(share) for share in shares}) == 1
                    positions = sorted(chain(*shares))
                    first = index * plans[0].positions_per_step
                    assert positions == list(range(first, first + len(positions)))


@pytest.mark.filterwarnings("ignore::fieldslab.schemas.notices.FieldslabWarning")
def test_grain_shares_by_group(slab: Slab) -> None:
    """Batches for Grain have the rows that the Loader's have."""
    for rank in range(2):
        loader = Loader(slab, 8, Near(2, 1), rank=rank, world_size=2)
        batches = grain_batches(slab, 8, order=Near(2, 1), rank=rank, world_size=2)
        for index, batch in enumerate(loader):
            assert np.array_equal(batches[index]["x"], batch["x"])


def test_shuffled_data_stays_shuffled() -> None:
    """Batches of data that was shuffled when it was packed have classes as a true shuffle has."""
    total, classes, size = 200_000, 100, 2_000
    labels = np.random.default_rng(0).permutation(np.arange(total) % classes)
    ends = np.linspace(0, total, 51)[1:].astype(np.int64)
    for groups, window in ((1, 1), (1, 4), (5, 2)):
        rows = AttachedNear(Near(groups, window), ends).rows(0, 0, total, total)
        counts = np.stack([np.bincount(labels[some]) for some in rows.reshape(-1, size)])
        expected = size / classes
        statistic = ((counts - expected) ** 2 / expected).sum(1) / (classes - 1)
        assert statistic.mean() < 1.05


def test_sorted_data_is_warned_of(slab: Slab) -> None:
    """Whoever reads few shards of a slab that was not shuffled is warned; of many, nobody is."""
    with pytest.warns(FieldslabWarning, match=r"2 of 8 shards.*shuffle=0"):
        Near(1, 2).attach(slab)
    order: Order = Near(2, 4).attach(slab)
    assert repr(order) == "Near(groups=2, window=4, seed=0)"


def test_an_unattached_order_is_refused() -> None:
    """Shards are known from the slab alone."""
    with pytest.raises(UsageError, match="not attached"):
        Near().rows(0, 0, 1, 1)


def test_impossible_parameters_are_refused() -> None:
    """Groups and windows are numbers from 1 on, and groups not more than machines can be."""
    for parameters in ((0,), (1, 0), (2**63,), (2**21,), ("two",), (1.5,)):
        with pytest.raises(UsageError):
            Near(*parameters)
