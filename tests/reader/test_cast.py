"""`Slab.cast`: numbers in other dtypes, as numpy and torch convert them."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from tests.naming import case
from tests.slabs import Column, categorical, ragged, write_slab

from fieldslab.packer import pack
from fieldslab.reader import Loader, Pad, Shuffled, Standardize, open_slab
from fieldslab.reader.torch import SlabDataset, collate
from fieldslab.schemas.errors import UnknownField, UsageError
from fieldslab.schemas.fields import Logical

ROWS, ITEMS = 200, 37
TARGETS = ("float32", "float16", "bfloat16")


def convert(values: np.ndarray, dtype: str) -> np.ndarray:
    """What values must become; bfloat16 as its bits."""
    with np.errstate(all="ignore"):
        if dtype != "bfloat16":
            return values.astype(dtype)
        tensor = torch.from_numpy(values.astype(np.float32)).to(torch.bfloat16)
        return tensor.view(torch.uint16).numpy()


def assert_same(result: Any, expected: np.ndarray) -> None:
    """The same bits, but that a NaN may be any NaN."""
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    bits = f"u{expected.dtype.itemsize}"
    nan = np.isnan(expected) if expected.dtype.kind == "f" else (expected & 0x7FFF) > 0x7F80
    also_nan = np.isnan(result) if expected.dtype.kind == "f" else (result & 0x7FFF) > 0x7F80
    assert np.array_equal(nan, also_nan)
    assert np.array_equal(result.view(bits)[~nan], expected.view(bits)[~nan])


def make_numbers() -> dict[str, np.ndarray]:
    """Numbers of every dtype: any bits, every half of what lies between two float16, and edges."""
    rng = np.random.default_rng(0)
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float64)
    finite = halves[np.isfinite(halves)]
    some = rng.choice((finite[:-1] + finite[1:]) / 2, ROWS * ITEMS)
    bits = rng.integers(0, 2**64, ROWS * ITEMS, np.uint64, endpoint=False)
    integers = bits.view(np.int64) >> rng.integers(0, 63, len(bits))
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 65519.9, 65520.0, 3.4e38, 1e-45, 6e-8, 2.98e-8]
    edges += [2.0**-25, 2.0**-133, 2.0**-134 * 3, 2.0**-134 * 1.0000001, 1e300, 5e-324]
    return {
        "middles": some,
        "beside": some * (1 + 2.0**-50),
        "edges": np.resize(edges, len(bits)),
        "float64": bits.view(np.float64),
        "float32": bits.astype(np.uint32).view(np.float32),
        "middles32": some.astype(np.float32),
        "float16": bits.astype(np.uint16).view(np.float16),
        "bool": bits % 3 == 0,
        **{f"int{size}": integers.astype(f"i{size // 8}") for size in (8, 16, 32, 64)},
        **{f"uint{size}": bits.astype(f"u{size // 8}") for size in (8, 16, 32, 64)},
    }


def test_numbers_are_rounded_as_numpy_and_torch_do(tmp_path: Path) -> None:
    """Every dtype becomes every other, to the bit: ties, overflow, subnormals, infinities, NaN."""
    numbers = {name: values.reshape(ROWS, ITEMS) for name, values in make_numbers().items()}
    columns = {
        name: Column(values, "fixed", values.dtype.name, (ITEMS,))
        for name, values in numbers.items()
    }
    slab = open_slab(write_slab(tmp_path / "n.slab", columns, (70, 130)))
    rows = np.random.default_rng(1).permutation(ROWS)
    for dtype in TARGETS:
        batch = slab.cast(dict.fromkeys(numbers, dtype)).gather(rows)
        for name, values in numbers.items():
            with case(name, dtype):
                assert_same(batch[name], convert(values, dtype)[rows])


@pytest.mark.parametrize("compress", [False, True])
def test_rows_of_every_length_are_cast(tmp_path: Path, compress: bool) -> None:
    """Ragged, single and compressed values: in batches, rows, columns and views, all the same."""
    rng = np.random.default_rng(0)
    lists = [rng.normal(size=length) for length in [*range(40), 255, 256, 257, 300, 600]]
    table = pa.table({"x": lists, "one": np.arange(len(lists)) / 3})
    options: dict[str, Any] = {"compress": {"*": 3}} if compress else {}
    path = tmp_path / "r.slab"
    pack(table, path, **options)
    slab = open_slab(path)
    for dtype in TARGETS:
        other = slab.cast({"x": dtype, "one": dtype})
        expected = [convert(row, dtype) for row in lists]
        ones = convert(np.arange(len(lists)) / 3, dtype)
        batch = other.gather(range(len(lists)))
        assert_same(batch["one"], ones)
        assert_same(batch["x"].values, np.concatenate(expected))
        for row in (0, 5, 16, -1):
            assert_same(other[row]["x"], expected[row])
            assert other[row]["one"] == ones[row]
            assert_same(other["x"][row], expected[row])
        assert_same(other[7:20]["x"][2:].values, np.concatenate(expected[9:20]))
        assert_same(np.asarray(other["one"]), ones)
        assert other["one"].dtype == ones.dtype
        assert other.lengths([3, -1], "x").tolist() == [3, 600]
        with pytest.raises(UsageError, match="addresses"):
            other.addresses([0], "x")
        padded = next(iter(Loader(other, len(lists), Shuffled(0), fields=["one"])))
        assert_same(padded["one"], ones[padded.rows])
    halves = slab.cast({"x": np.float16})
    [batch] = Loader(halves, len(lists), fields=["x"], transforms=[Pad("x", 8)])
    assert batch["x"].dtype == np.float16
    assert_same(batch["x"][:, :1], halves.gather(batch.rows)["x"].to_padded(1))


def test_a_cast_slab_is_taken_wherever_a_slab_is(tmp_path: Path) -> None:
    """Loader, dataset, `out`, pickle and states; what is not cast stays as it was."""
    values = np.random.default_rng(0).normal(size=(90, 5)).astype(np.float32)
    slab = open_slab(write_slab(tmp_path / "a.slab", {"x": values, "y": np.arange(90)}))
    cast = slab.cast({"x": torch.bfloat16})
    assert cast.fields["x"].logical == Logical("bfloat16")
    expected = torch.from_numpy(values).to(torch.bfloat16)
    loader = Loader(cast, 20, Shuffled(3), output="torch", threads=2)
    for batch in loader:
        assert batch["x"].dtype == torch.bfloat16
        assert torch.equal(batch["x"], expected[batch.rows])
        assert torch.equal(batch["y"], batch.rows)
    Loader(slab, 20, Shuffled(3)).load_state_dict(loader.state_dict())
    data = SlabDataset(cast)
    assert torch.equal(collate(data.__getitems__([4, 2]))["x"], expected[[4, 2]])
    again = pickle.loads(pickle.dumps(cast[10:]))
    assert np.array_equal(again.gather([0])["x"], cast.gather([10])["x"])
    out = cast.buffers(4)
    assert np.array_equal(cast.gather([7, 8], out=out)["x"], cast.gather([7, 8])["x"])
    with pytest.raises(UsageError, match="other fields"):
        slab.gather([7], out=out)
    assert cast.cast({"x": "float16"}).gather([1])["x"].tolist() == (
        values[[1]].astype(np.float16).tolist()
    )
    assert slab.gather([1])["x"].dtype == np.float32


def test_stored_bfloat16_is_cast_as_numbers(tmp_path: Path) -> None:
    """Not its bits are converted, but what they stand for."""
    tensor = torch.randn(50, 3).to(torch.bfloat16)
    bits = tensor.view(torch.uint16).numpy()
    column = Column(bits, "fixed", "uint16", (3,), logical=Logical("bfloat16"))
    slab = open_slab(write_slab(tmp_path / "b.slab", {"x": column}))
    assert np.array_equal(slab.cast({"x": "float32"}).gather(range(50))["x"], tensor.float())
    assert np.array_equal(slab.cast({"x": "bfloat16"}).gather(range(50))["x"], bits)


def test_what_cannot_be_cast_is_refused(tmp_path: Path) -> None:
    """Other dtypes, fields without numbers, unknown fields, and arrays of bfloat16 as numbers."""
    columns: dict[str, Any] = {
        "x": np.arange(4.0),
        "t": ["a"] * 4,
        "c": categorical([0] * 4, ["a"]),
        "when": Column(np.arange(4), "fixed", "int64", logical=Logical("timestamp", "us")),
        "z": np.arange(4) * 1j,
        "r": ragged([[1]] * 4, "int32"),
    }
    slab = open_slab(write_slab(tmp_path / "a.slab", columns))
    for dtype in ("float64", "int8", "float8", None, 3):
        with case(dtype), pytest.raises(UsageError, match=rf"cast .*found '?{dtype}"):
            slab.cast({"x": dtype})
    for name in ("t", "c", "when", "z"):
        with case(name), pytest.raises(UsageError, match="no numbers"):
            slab.cast({name: "float16"})
    with pytest.raises(UnknownField):
        slab.cast({"nothing": "float16"})
    with pytest.raises(UsageError, match="map"):
        slab.cast("float16")  # type: ignore[arg-type]
    halves = slab.cast({"x": "bfloat16", "r": "float16"})
    with pytest.raises(UsageError, match="bfloat16"):
        Loader(halves, 2, fields=["x"], transforms=[Standardize("x", 0, 1)])
