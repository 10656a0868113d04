"""Slabs that are read on without damaged rows: `on_damage` and `max_damaged`."""

import pickle
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.jpegs import encode
from tests.naming import case
from tests.slabs import Column, array_path, categorical, flip, images, ragged, write_slab

from fieldslab.packer import pack
from fieldslab.reader import ImageSteps, Loader, Mixed, Pad, Resize, Sequential, Slab, open_slab
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.errors import DamagedArray, UsageError
from fieldslab.schemas.fields import Role
from fieldslab.schemas.notices import FieldslabWarning

ROWS, SHARDS = 300, [100, 200]
WIDE = np.random.default_rng(0).integers(0, 256, (ROWS, 16_384), np.uint8)
"""Four rows a block."""
LENGTHS = np.arange(ROWS) % 7
BAD = [120, 121, 122, 123]
"""The rows of the block that `damaged` damages: `x` of the second shard, the sixth block."""

pytestmark = pytest.mark.filterwarnings("ignore::fieldslab.schemas.notices.FieldslabWarning")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A slab of several kinds of fields."""
    valid = np.arange(ROWS) % 5 > 0
    columns = {
        "x": WIDE,
        "tokens": ragged([np.full(n, n) for n in LENGTHS], "int32"),
        "text": [f"row {row}" for row in range(ROWS)],
        "kind": categorical(np.arange(ROWS) % 2, ["a", "b"]),
        "weight": Column(np.where(valid, np.arange(ROWS), 0.0), dtype="float64", valid=valid),
        "y": np.arange(ROWS),
    }
    return write_slab(tmp_path_factory.mktemp("whole") / "x.slab", columns, SHARDS)


@pytest.fixture
def damaged(whole: Path, tmp_path: Path) -> Path:
    """A copy of it with one damaged block of `x`."""
    path = Path(shutil.copytree(whole, tmp_path / "x.slab"))
    flip(array_path(path, "x", shard=1), 5 * 65536 + 7)
    return path


def open_damaged(path: Any, policy: Any, **options: Any) -> Slab:
    """Open it, with room for the damage in so small a slab."""
    return open_slab(path, on_damage=policy, **{"max_damaged": 0.5, **options})


def check_skipped(slab: Slab, bad: Sequence[int] = BAD) -> None:
    """Rows that are left are right, in all fields, and the others are named."""
    rows = np.random.default_rng(1).permutation(ROWS)
    for _ in range(2):
        batch = slab.gather(rows)
        kept = rows[~np.isin(rows, bad)]
        assert np.array_equal(batch.rows, kept)
        assert np.array_equal(batch["x"], WIDE[kept])
        assert np.array_equal(batch["y"], kept)
        assert batch["text"].tolist() == [f"row {row}" for row in kept]
        assert sorted(failure.row for failure in batch.failures) == list(bad)
        assert {failure.field for failure in batch.failures} == {"x"}


def test_skip_leaves_rows_out(damaged: Path) -> None:
    """A damaged block costs the rows that own it, wherever the slab is opened."""
    slab = open_damaged(damaged, "skip")
    with pytest.warns(FieldslabWarning, match=r"rows 120..123 are left out of batches: .*x.values"):
        check_skipped(slab)
    check_skipped(pickle.loads(pickle.dumps(slab)))
    check_skipped(slab.cast({"weight": "float32"}))
    out = slab.buffers(8)
    assert slab.gather([119, 120, 124], out=out).rows.tolist() == [119, 124]
    assert not len(slab.gather(BAD).rows)
    view = slab[110:130].gather([10, -1], ["x"])
    assert [view.rows.tolist(), view.failures[0].row] == [[19], 10]
    assert slab.gather(BAD, ["y"])["y"].tolist() == BAD, "the damage is that of another field"


def test_mirrors_and_unions_skip_the_same_rows(damaged: Path, tmp_path: Path) -> None:
    """A mirror leaves out what is damaged at its origin; a union, rows of its damaged member."""
    check_skipped(open_damaged(damaged, "skip", cache_dir=tmp_path / "cache"))
    union = open_damaged([damaged, damaged], "skip")
    batch = union.gather(range(2 * ROWS), ["x"])
    bad = [*BAD, *(row + ROWS for row in BAD)]
    assert [failure.row for failure in batch.failures] == bad
    assert len(batch.rows) == 2 * ROWS - len(bad)


def test_fill_keeps_rows(damaged: Path) -> None:
    """With "fill", only the damaged field of a row is filled, and batches keep their shapes."""
    for name in ("tokens", "text", "kind", "weight"):
        flip(array_path(damaged, name, shard=1))
    slab = open_damaged(damaged, "fill", max_damaged=1)
    batch = slab.gather(range(ROWS))
    second = np.arange(ROWS) >= SHARDS[0]
    expected = WIDE.copy()
    expected[BAD] = 0
    assert np.array_equal(batch["x"], expected)
    assert np.array_equal(batch["y"], np.arange(ROWS))
    assert np.array_equal(batch["kind"], np.where(second, -1, np.arange(ROWS) % 2))
    assert np.array_equal(batch["weight"] > 0, (np.arange(ROWS) % 5 > 0) & ~second)
    assert np.array_equal(batch.valid["weight"], (np.arange(ROWS) % 5 > 0) & ~second)
    assert np.array_equal(batch["tokens"].lengths, np.where(second, 0, LENGTHS))
    assert batch["tokens"][99].tolist() == [LENGTHS[99]] * LENGTHS[99]
    assert batch["text"].tolist()[98:101] == ["row 98", "row 99", ""]
    assert {failure.field for failure in batch.failures} == {
        "x",
        "tokens",
        "text",
        "kind",
        "weight",
    }
    alone = slab.gather(BAD, ["x", "y"])
    assert not alone["x"].any()
    assert alone["y"].tolist() == BAD
    loader = Loader(
        slab, 100, Sequential(), fields=["tokens"], transforms=[Pad("tokens", 6, fill=9)]
    )
    tokens = np.concatenate([batch["tokens"] for batch in loader])
    assert (tokens[second] == 9).all()


def test_loaders_count_damaged_rows(damaged: Path) -> None:
    """Loaders, small batches and processes leave the same rows out, and states go on behind."""
    fields = ["y", "x"]
    for options in ({}, {"prefetch": 0}, {"isolate": True}):
        slab = open_damaged(damaged, "skip")
        with case(options), Loader(slab, 10, Sequential(), fields=fields, **options) as loader:
            batches = [batch["y"].tolist() for batch in loader]
            assert batches[12] == [*range(124, 130)]
            assert [row for batch in batches for row in batch] == [
                row for row in range(ROWS) if row not in BAD
            ]
            assert loader.stats().failures == len(BAD)
    loader = Loader(open_damaged(damaged, "skip"), 50, Sequential(), fields=fields)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state = loader.state_dict()
    loader.close()
    resumed = Loader(open_slab(damaged), 50, Sequential(), fields=fields)
    resumed.load_state_dict(state)
    assert next(iter(resumed))["y"].tolist() == [*range(150, 200)]


def test_the_limit(damaged: Path) -> None:
    """More damage than the limit allows is the error that it was, and says so."""
    for limit in (0, 0.001, 3.9 / ROWS):
        slab = open_slab(damaged, on_damage="skip", max_damaged=limit)
        with pytest.raises(DamagedArray, match=r"4 of 300 rows are damaged.*max_damaged="):
            slab.gather(range(ROWS))
    assert len(open_damaged(damaged, "skip", max_damaged=4 / ROWS).gather(BAD).failures) == 4


def test_missing_files_are_damage_of_a_shard(damaged: Path) -> None:
    """A file that is cut or gone, a digest table: all rows of the shard are left out."""
    cases: list[tuple[str, Role, int | None]] = [
        ("y", "values", None),
        ("text", "offsets", HEADER),
    ]
    for name, role, size in cases:
        file = array_path(damaged, name, role, shard=0)
        content = file.read_bytes()
        file.write_bytes(content[:size]) if size else file.unlink()
        batch = open_damaged(damaged, "skip").gather(range(ROWS), [name])
        assert batch.rows.tolist() == [*range(SHARDS[0], ROWS)]
        file.write_bytes(content)
    flip(damaged / "shard-00000" / "digests.npy")
    assert len(open_damaged(damaged, "skip").gather(range(ROWS), ["y", "kind"]).rows) == SHARDS[1]


def test_images(tmp_path: Path) -> None:
    """Damaged images that are decoded are filled like those that cannot be decoded."""
    picture = encode(np.full((16, 16, 3), 200, np.uint8))
    padding = bytes(40_000)
    size = np.full((20, 2), 16)
    path = write_slab(tmp_path / "i.slab", {"i": images([picture + padding] * 20, size)})
    flip(array_path(path, "i"), 65536 + 5)
    steps = ImageSteps([Resize(8)], fill=7)
    filled = open_damaged(path, "fill").gather(range(20), decode={"i": steps})
    bad = [failure.row for failure in filled.failures]
    assert bad
    assert len(bad) < 5
    assert (filled["i"][bad] == 7).all()
    good = np.setdiff1d(range(20), bad)
    assert (filled["i"][good] > 190).all()
    assert not filled.sizes["i"][bad].any()
    assert "i" not in filled.valid
    skipped = open_damaged(path, "skip").gather(range(20), decode={"i": steps})
    assert skipped.rows.tolist() == good.tolist()
    assert not len(open_damaged(path, "skip").gather(bad, decode={"i": steps}).rows)


def test_a_damaged_dictionary_is_damage_of_its_slab(tmp_path: Path) -> None:
    """In a union, it costs the rows of the slab that it belongs to; alone it raises, at once."""
    words = np.array(["alpha", "beta", "gamma", "training", "slab"])
    for seed, name in enumerate("ab"):
        drawn = np.random.default_rng(seed).choice(words, (2000, 20))
        texts = [" ".join(row[: number % 20]) for number, row in enumerate(drawn)]
        pq.write_table(pa.table({"text": texts}), tmp_path / f"{name}.parquet")
        pack(tmp_path / f"{name}.parquet", tmp_path / f"{name}.slab", compress=["text"])
    flip(next((tmp_path / "b.slab" / "tables").glob("*.dictionary.npy")))
    for policy, rows in (("skip", 0), ("fill", 3)):
        with case(policy):
            union = open_damaged([tmp_path / "a.slab", tmp_path / "b.slab"], policy)
            batch = union.gather([2000, 3000, 3999])
            assert len(batch.rows) == rows
            assert [failure.row for failure in batch.failures] == [2000, 3000, 3999]
            assert not union.gather(range(2000)).failures
            with pytest.raises(DamagedArray):
                open_damaged(tmp_path / "b.slab", policy, max_damaged=1).gather([5])


def test_what_cannot_be_left_out_raises(damaged: Path) -> None:
    """Rows, columns and addresses have no batch to be left out of."""
    slab = open_damaged(damaged, "skip")
    for read in (
        lambda: slab[BAD[0]],
        lambda: slab["x"][BAD[0]],
        lambda: slab.addresses(BAD, "x"),
    ):
        with pytest.raises(DamagedArray):
            read()


def test_options(whole: Path) -> None:
    """Other words, and limits that are no share, are refused; without damage, nothing changes."""
    for options in ({"on_damage": "ignore"}, {"max_damaged": 1.5}, {"max_damaged": True}):
        with case(options), pytest.raises(UsageError, match=next(iter(options))):
            open_slab(whole, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not open_damaged(whole, "skip").gather(range(ROWS)).failures


def test_orders_and_conditions_need_all_rows(damaged: Path) -> None:
    """What is computed of all rows raises: without some of them, it would be of others."""
    flip(array_path(damaged, "kind", shard=1))
    slab = open_damaged(damaged, "skip", max_damaged=1)
    with pytest.raises(DamagedArray, match="kind"):
        slab.where("kind == 'a'")
    with pytest.raises(DamagedArray, match="kind"):
        Loader(slab, 10, Mixed({"a": 0.5, "b": 0.5}, by="kind"))
