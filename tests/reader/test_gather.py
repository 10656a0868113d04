"""Batches: gathered rows are those that were written, wherever they go."""

from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.naming import case
from tests.reader.conftest import ROWS, Example
from tests.slabs import Column, ragged, write_slab

from fieldslab.reader import Batch, Slab, open_slab
from fieldslab.reader.processor_cache import get_cache_budget
from fieldslab.schemas.errors import RowOutOfRange, UsageError
from fieldslab.schemas.fields import DtypeName, Logical

DTYPES = get_args(DtypeName)


def assert_holds(batch: Batch, example: Example, rows: list[int]) -> None:
    """Every field of a batch has exactly the values written for these rows."""
    assert batch.rows.tolist() == rows
    for name in batch:
        actual, wanted = batch[name], example.values(name, rows)
        assert len(actual) == len(wanted)
        for row_values, other in zip(actual, wanted, strict=True):
            if isinstance(row_values, np.datetime64):
                row_values = row_values.astype(np.int64)
            assert np.array_equal(row_values, other)
            assert getattr(row_values, "dtype", None) == getattr(other, "dtype", None)


@given(rows=st.lists(st.integers(-ROWS, ROWS - 1), max_size=40))
def test_a_batch_holds_the_rows_asked_for(example: Example, rows: list[int]) -> None:
    """Any rows in any order, repeated and negative ones too, come back byte for byte."""
    batch = open_slab(example.path).gather(rows)
    assert_holds(batch, example, [row % ROWS for row in rows])


@pytest.mark.parametrize("verify", [True, False])
def test_a_batch_of_all_rows(example: Example, verify: bool) -> None:
    """The whole slab in random order is one batch like any other."""
    rows = np.random.default_rng(3).permutation(ROWS)
    batch = open_slab(example.path, verify=verify).gather(rows)
    assert_holds(batch, example, rows.tolist())


def test_validity_and_sizes(slab: Slab, example: Example) -> None:
    """Nullable fields have a mask, in shards with and without nulls; images have their sizes."""
    rows = np.random.default_rng(4).permutation(ROWS)
    batch = slab.gather(rows)
    assert set(batch.valid) == {"score", "remark"}
    for name, valid in batch.valid.items():
        assert valid.dtype == np.bool_
        assert valid.tolist() == [example.value(name, row) is not None for row in rows]
    assert list(batch.sizes) == ["photo"]
    assert batch.sizes["photo"].dtype == np.uint32
    assert np.array_equal(batch.sizes["photo"], np.stack([rows, rows + 1], 1))


def test_validity_where_no_row_asked_for_has_a_mask(slab: Slab) -> None:
    """In shards without nulls every row is valid."""
    assert slab.gather([0, 7, 3]).valid["remark"].tolist() == [True, True, True]


def test_chosen_fields_come_in_the_order_asked(slab: Slab) -> None:
    """`fields` chooses and orders; a name given twice counts once."""
    batch = slab.gather([1, 2], ["tokens", "label", "tokens"])
    assert list(batch) == ["tokens", "label"]
    assert batch.valid == {}


def test_a_single_name_is_no_list(slab: Slab) -> None:
    """A bare string for `fields` would be taken apart; it is refused with the right spelling."""
    with pytest.raises(UsageError, match=r"\['label'\]"):
        slab.gather([0], "label")


def test_no_rows_give_empty_arrays_of_the_right_kind(slab: Slab) -> None:
    """An empty batch has the dtypes, shapes and classes of a full one."""
    empty, full = slab.gather([]), slab.gather([0])
    for name in slab.fields:
        assert type(empty[name]) is type(full[name])
        assert len(empty[name]) == 0
    assert empty["box"].shape == (0, 2, 3)
    assert empty["points"].values.shape == (0, 2)
    assert empty["points"].offsets.tolist() == [0]
    assert empty.valid["score"].shape == (0,)


@pytest.mark.parametrize("bad", [ROWS, -ROWS - 1, 2**62])
def test_a_row_out_of_range_stops_the_gather_before_it_writes(slab: Slab, bad: int) -> None:
    """RowOutOfRange names position and row, and `out` still holds the batch before."""
    out = slab.buffers(4, ["label"])
    slab.gather([5, 6, 7], out=out)
    with pytest.raises(RowOutOfRange, match=f"position 2 .*found {bad}"):
        slab.gather([1, 2, bad, 3], out=out)
    assert out["label"].tolist() == [5, 6, 7]


def values_of(name: DtypeName, shape: tuple[int, ...]) -> np.ndarray:
    """Twenty rows of random bytes."""
    dtype = np.dtype(name)
    size = dtype.itemsize * int(np.prod(shape))
    if size == 0:
        return np.empty((20, *shape), dtype)
    rng = np.random.default_rng(len(shape))
    raw = rng.integers(0, 2 if name == "bool" else 256, (20, size), np.uint8)
    return np.frombuffer(raw.tobytes(), dtype).reshape(20, *shape)


def test_every_dtype_and_shape(tmp_path: Path) -> None:
    """Fixed rows of every dtype and shape keep both, and every byte."""
    rows = np.random.default_rng(7).integers(0, 20, 50)
    shapes: list[tuple[int, ...]] = [(), (1,), (3,), (0,), (2, 0, 3), (2, 3, 4, 1)]
    for name, shape in product(DTYPES, shapes):
        values = values_of(name, shape)
        path = write_slab(tmp_path / f"{name}-{shape}.slab", {"x": values}, [3, 1, 16])
        with case(name, shape):
            slab = open_slab(path)
            batch = slab.gather(rows)
            assert batch["x"].dtype == values.dtype
            assert batch["x"].shape == (50, *shape)
            assert batch["x"].tobytes() == values[rows].tobytes()
            assert np.asarray(slab[4]["x"]).tobytes() == values[4].tobytes()


def test_ragged_rows_of_every_dtype(tmp_path: Path) -> None:
    """Ragged rows keep dtype, trailing shape and length, empty ones too."""
    shapes: list[tuple[int, ...]] = [(), (2,), (0,)]
    for name, shape in product(DTYPES, shapes):
        rows = [np.ones((length, *shape), name) for length in (0, 3, 1, 0, 7)]
        path = write_slab(
            tmp_path / f"{name}-{shape}.slab", {"x": ragged(rows, name, shape)}, [2, 3]
        )
        with case(name, shape):
            batch = open_slab(path).gather([4, 0, 1, 4])
            assert batch["x"].lengths.tolist() == [7, 0, 3, 7]
            assert batch["x"].values.dtype == np.dtype(name)
            assert batch["x"].values.shape == (17, *shape)


@pytest.mark.parametrize(
    ("logical", "dtype"),
    [
        (Logical("timestamp", "ns", "Europe/Zurich"), "<M8[ns]"),
        (Logical("timestamp", "s"), "<M8[s]"),
        (Logical("duration", "ms"), "<m8[ms]"),
        (Logical("time", "us"), "<i8"),
    ],
)
def test_times_are_gathered_as_numpy_has_them(tmp_path: Path, logical: Logical, dtype: str) -> None:
    """Timestamps and durations come as datetime64 and timedelta64, in rows, columns, batches."""
    numbers = np.arange(50_000)
    path = write_slab(
        tmp_path / "t.slab",
        {
            "t": Column(numbers, "fixed", "int64", logical=logical),
            "r": Column(list(numbers.reshape(-1, 10)) * 10, "ragged", "int64", logical=logical),
        },
    )
    slab = open_slab(path)
    batch = slab.gather(range(50_000))
    assert slab["t"].dtype == slab[3]["t"].dtype == batch["t"].dtype == dtype
    assert batch["t"].view("i8").tolist() == numbers.tolist()
    assert slab[7]["r"].dtype == batch["r"].values.dtype == dtype


def test_bfloat16_stays_what_it_is_stored_as(tmp_path: Path) -> None:
    """numpy has no bfloat16: its bits come as uint16."""
    bits = np.arange(9, dtype=np.uint16)
    column = Column(bits, "fixed", "uint16", logical=Logical("bfloat16"))
    batch = open_slab(write_slab(tmp_path / "b.slab", {"x": column})).gather([8])
    assert batch["x"].dtype == np.uint16


def test_large_rows_span_blocks(tmp_path: Path) -> None:
    """Rows larger than a block, and not aligned with blocks, are gathered whole."""
    rng = np.random.default_rng(8)
    rows = [rng.bytes(size) for size in (200_001, 0, 65_536, 1, 65_535, 131_073)]
    fixed = rng.integers(0, 256, (6, 100_003), np.uint8)
    slab = open_slab(write_slab(tmp_path / "x.slab", {"b": rows, "f": fixed}, [1, 2, 3]))
    for chosen in ([5, 3, 0], [2, 2, 4, 1]):
        batch = slab.gather(chosen)
        assert batch["b"].tolist() == [rows[row] for row in chosen]
        assert np.array_equal(batch["f"], fixed[chosen])


def test_batches_larger_than_the_caches(tmp_path: Path) -> None:
    """A batch that is written past the caches has the same bytes, fixed and ragged."""
    fixed = np.random.default_rng(0).integers(0, 256, (9, 2**16 + 9), np.uint8)
    rows = [row[: 2**15 + 1000 * i] for i, row in enumerate(fixed)]
    slab = open_slab(write_slab(tmp_path / "x.slab", {"f": fixed, "r": ragged(rows, "uint8")}))
    picks = np.random.default_rng(1).integers(0, 9, get_cache_budget() // 2**15 + 1)
    batch = slab.gather(picks)
    assert min(batch["f"].nbytes, batch["r"].nbytes) > get_cache_budget()
    assert np.array_equal(batch["f"], fixed[picks])
    assert np.array_equal(batch["r"].values, np.concatenate([rows[pick] for pick in picks]))


def test_many_shards_of_one_row(tmp_path: Path) -> None:
    """Hundreds of one-row shards beside a large one are told apart."""
    shards = [*[1] * 150, 5000, *[1] * 150]
    numbers = np.arange(sum(shards))
    slab = open_slab(write_slab(tmp_path / "x.slab", {"x": numbers}, shards))
    rows = np.random.default_rng(2).permutation(len(slab))
    assert np.array_equal(slab.gather(rows)["x"], rows)
    assert [slab[int(row)]["x"] for row in rows[:400]] == rows[:400].tolist()


def test_out_is_overwritten_and_returned(slab: Slab, example: Example) -> None:
    """`out` becomes each batch in turn, full or partial, with ragged room growing as needed."""
    out = slab.buffers(64)
    rng = np.random.default_rng(6)
    for count in (64, 3, 0, 17, 64):
        rows = rng.integers(0, ROWS, count)
        assert slab.gather(rows, out=out) is out
        assert_holds(out, example, rows.tolist())
        assert out.valid["score"].tolist() == [row % 10 != 4 for row in rows]


def test_out_keeps_its_memory(tmp_path: Path) -> None:
    """A second gather into `out` writes where the first did, as long as it fits."""
    column: dict[str, Any] = {"x": np.zeros((9, 50_000), "u1"), "b": [b"y" * 50_000] * 9}
    slab = open_slab(write_slab(tmp_path / "x.slab", column))
    out = slab.buffers(8)
    places = [
        [array.__array_interface__["data"][0] for array in (out["x"], out["b"].values)]
        for _ in range(5)
        if slab.gather(range(8), out=out)
    ]
    assert all(place == places[0] for place in places)


def test_out_must_fit(slab: Slab, tmp_path: Path) -> None:
    """Too many rows, other fields, other dtypes, or a batch from a gather are refused."""
    out = slab.buffers(4, ["label", "tokens"])
    with pytest.raises(UsageError, match="too small"):
        slab.gather(range(5), out=out)
    with pytest.raises(UsageError, match="other fields"):
        slab.gather([0], ["label"], out=out)
    with pytest.raises(UsageError, match="buffers"):
        slab.gather([0], out=slab.gather([0]))
    other = {"label": np.arange(9, dtype=np.int32), "tokens": ragged([[1]] * 9, "int32")}
    with pytest.raises(UsageError, match="fixed int32"):
        open_slab(write_slab(tmp_path / "o.slab", other)).gather([0], out=out)
    with pytest.raises(UsageError):
        slab.buffers(-1)


def test_out_serves_another_slab_of_the_same_fields(slab: Slab, tmp_path: Path) -> None:
    """Buffers made for one slab take batches of another with equal fields."""
    other = open_slab(write_slab(tmp_path / "o.slab", {"label": np.arange(50, 59)}))
    out = slab.buffers(4, ["label"])
    assert other.gather([1, 8], out=out)["label"].tolist() == [51, 58]
    assert slab[10:].gather([0], out=out)["label"].tolist() == [10]
