"""A cache that is smaller than the data keeps what the order of a Loader needs next."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.naming import case
from tests.servers.web import WebServer
from tests.slabs import write_slab

from fieldslab.reader import Loader, Near, Sequential, Shuffled, Slab, open_slab
from fieldslab.reader.loading.epoch_plan import EpochPlan
from fieldslab.reader.loading.next_uses import make_next_uses
from fieldslab.reader.orders.near import find_shard_ends
from fieldslab.schemas.digest import BLOCK

ROWS, SHARDS = 480, 16
X = np.random.default_rng(0).integers(1, 256, (ROWS, 9_000), np.uint8)

pytestmark = pytest.mark.filterwarnings("ignore::fieldslab.schemas.notices.FieldslabWarning")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A slab of 4 MB in 16 shards."""
    folder = tmp_path_factory.mktemp("next-uses")
    return write_slab(folder / "x.slab", {"x": X, "y": np.arange(ROWS)}, [ROWS // SHARDS] * SHARDS)


def find_shards(slab: Slab, rows: np.ndarray) -> np.ndarray:
    """Find the shard of each row, among those that a view reads: int64[n]."""
    return np.searchsorted(find_shard_ends(slab), rows, side="right")


def test_an_order_says_when_it_reads_each_shard(source: Path) -> None:
    """Rows of a shard come between the positions told, and of other shards never."""
    slab = open_slab(source)
    for view in (slab, slab[40:300], slab[::-3]):
        total, ends = len(view), find_shard_ends(view)
        for order in (Sequential(), Near(1, 3), Near(3, 2), Near(8, 1)):
            attached = order.attach(view)
            rows = attached.rows(1, 0, total, total)
            for groups in (range(order.groups), range(0, order.groups, 2)):
                spans = attached.find_shard_spans(1, ends, groups)
                assert spans is not None
                positions = np.flatnonzero(np.isin(np.arange(total) % order.groups, groups))
                shards = find_shards(view, rows[positions])
                with case(view.view, order, groups):
                    assert (spans.starts[shards] <= positions).all()
                    assert (positions < spans.stops[shards]).all()
                    others = np.setdiff1d(np.arange(len(ends)), shards)
                    assert (spans.starts[others] >= spans.stops[others]).all()
    assert Shuffled().attach(slab).find_shard_spans(0, find_shard_ends(slab), [0]) is None


def test_what_was_read_is_needed_in_the_next_epoch(source: Path) -> None:
    """Shards are told when the order turns to others: those to come, and those that are over."""
    slab, plan = open_slab(source), EpochPlan(ROWS, 10)
    uses = make_next_uses(slab, Sequential(), plan, 0)
    assert uses is not None
    assert uses.advance(29, 0) is None
    told = uses.advance(32, 0)
    assert told is not None
    shards, seconds = told
    assert shards.tolist() == [0, *range(3, SHARDS)]
    assert np.argsort(seconds).tolist() == [*range(1, len(shards)), 0]
    assert make_next_uses(slab, Shuffled(), plan, 0) is None


@pytest.mark.parametrize("order", [Sequential(), Near(1, 1)])
def test_a_small_cache_keeps_what_is_needed_next(
    source: Path, tmp_path: Path, serve: Callable[..., WebServer], order: Sequential
) -> None:
    """A cache of three quarters spares a part of each epoch; by last uses, it would spare none."""
    server = serve(source)
    slab = open_slab(
        server.url, cache_dir=tmp_path / "cache", cache_limit=SHARDS * 5 * BLOCK * 3 // 4
    )
    loader = Loader(slab, 10, order, threads=2)
    fetched = []
    for _ in range(4):
        before = sum(request.bytes for request in server.requests)
        for batch in loader:
            assert np.array_equal(batch["x"], X[batch["y"]])
            time.sleep(0.004)  # what was needed a moment ago is never evicted
        fetched.append(sum(request.bytes for request in server.requests) - before)
    assert sum(fetched[1:]) < 0.85 * 3 * X.nbytes
