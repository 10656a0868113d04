"""Loaders of slabs larger than the cache: which order they choose, and what they refuse."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.slabs import write_slab

from fieldslab.reader import Loader, Near, Sequential, Shuffled, open_slab
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.notices import FieldslabWarning

ROWS, WIDTH, SHARDS = 600, 9_000, 20
X = np.random.default_rng(0).integers(1, 256, (ROWS, WIDTH), np.uint8)
SHARD_BYTES = X.nbytes // SHARDS


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A slab of 5 MB in 20 shards, which was not shuffled."""
    columns = {"x": X, "y": np.arange(ROWS)}
    path = tmp_path_factory.mktemp("source") / "x.slab"
    return write_slab(path, columns, [ROWS // SHARDS] * SHARDS)


def test_near_is_chosen_where_the_cache_is_smaller(source: Path, tmp_path: Path) -> None:
    """By default rows come near each other, with a warning; each block is fetched about once."""
    slab = open_slab(source, cache_dir=tmp_path / "cache", cache_limit=12 * SHARD_BYTES)
    with pytest.warns(FieldslabWarning, match=r"cache_limit.*Near\(groups=1, window=5, seed=0\)"):
        loader = Loader(slab, 32, fields=["x"])
    seen = []
    for batch in loader:
        assert np.array_equal(batch["x"], X[batch.rows])
        seen.append(batch.rows)
    assert np.array_equal(np.sort(np.concatenate(seen)), np.arange(ROWS))
    state = loader.state_dict()
    smaller = open_slab(source, cache_dir=tmp_path / "other", cache_limit=10 * SHARD_BYTES)
    with pytest.warns(FieldslabWarning, match="window=4"):
        resumed = Loader(smaller, 32, fields=["x"])
    resumed.load_state_dict(state)
    assert resumed.order.key() == loader.order.key()


def test_what_fits_is_shuffled(source: Path, tmp_path: Path) -> None:
    """Without a limit, or where the fields that are read fit, rows are shuffled as ever."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, options in (("a", {}), ("b", {"cache_limit": 2 * X.nbytes})):
            slab = open_slab(source, cache_dir=tmp_path / name, **options)  # type: ignore[arg-type]
            assert isinstance(Loader(slab, 32).order, Shuffled)
        slab = open_slab(source, cache_dir=tmp_path / "c", cache_limit=12 * SHARD_BYTES)
        assert isinstance(Loader(slab, 32, fields=["y"]).order, Shuffled)
        assert isinstance(Loader(slab, 32, Sequential()).order, Sequential)


def test_orders_that_fetch_again_are_warned_of(source: Path, tmp_path: Path) -> None:
    """A shuffle all over the slab is carried out, and the user is told what it costs."""
    slab = open_slab(source, cache_dir=tmp_path / "cache", cache_limit=12 * SHARD_BYTES)
    with pytest.warns(FieldslabWarning, match="fetched again and again"):
        loader = Loader(slab, 8, Shuffled(1))
    assert repr(loader.order) == "Shuffled(seed=1)"


@pytest.mark.filterwarnings("ignore::fieldslab.schemas.notices.FieldslabWarning")
def test_windows_must_fit(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that the cache cannot hold is an error that says how much it takes."""
    slab = open_slab(source, cache_dir=tmp_path / "cache", cache_limit=12 * SHARD_BYTES)
    with pytest.raises(UsageError, match=r"cache_limit.*window=10.*at least 5,94\d,\d+ bytes"):
        Loader(slab, 32, Near(window=10), fields=["x"])
    Loader(slab, 32, Near(window=5), fields=["x"])
    # Four ranks on two machines: each machine reads two of four groups.
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    Loader(slab, 32, Near(4, 2), fields=["x"], rank=0, world_size=4)
    with pytest.raises(UsageError, match="cache_limit"):
        Loader(slab, 32, Near(8, 2), fields=["x"], rank=0, world_size=4)
    chosen = Loader(slab, 32, fields=["x"], rank=0, world_size=4).order
    assert isinstance(chosen, Near)
    assert chosen.groups == 2
