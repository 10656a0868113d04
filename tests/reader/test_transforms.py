"""Transforms: what numpy would give, in recycled memory, for fixed and ragged fields."""

import pickle
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.naming import case
from tests.slabs import Column, ragged, write_slab

from fieldslab.reader import (
    Batch,
    Cast,
    Lambda,
    Loader,
    Pad,
    Ragged,
    Shift,
    Slab,
    Standardize,
    Transform,
    open_slab,
)
from fieldslab.reader.padding import pad_rows
from fieldslab.reader.transforms.transform import FRESH
from fieldslab.schemas.errors import UnknownField, UsageError
from fieldslab.schemas.fields import Logical

LENGTHS = [3, 0, 1, 7, 2]


@pytest.fixture
def slab(tmp_path: Path) -> Slab:
    """Five rows: pixels, tokens of different lengths, pairs of floats, words."""
    rng = np.random.default_rng(0)
    columns = {
        "image": rng.integers(0, 256, (5, 4, 6, 3)).astype(np.uint8),
        "tokens": ragged([100 * row + np.arange(n) for row, n in enumerate(LENGTHS)], "uint16"),
        "points": ragged([rng.random((n, 2)) for n in LENGTHS], "float64", (2,)),
        "line": np.arange(5 * 4, dtype=np.int32).reshape(5, 4),
        "word": ["a", "bcd", "", "ef", "g"],
        "half": Column(np.zeros(5, np.uint16), "fixed", "uint16", logical=Logical("bfloat16")),
        "time": Column(np.arange(5), "fixed", "int64", logical=Logical("timestamp", "s")),
    }
    return open_slab(write_slab(tmp_path / "a.slab", columns))


@pytest.fixture
def batch(slab: Slab) -> Batch:
    """All of its rows."""
    return slab.gather(range(5))


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2"])
@pytest.mark.parametrize("shape", [(), (3,), (6, 1), (4, 6, 3)])
def test_normalize_is_mean_and_deviation(batch: Batch, dtype: str, shape: tuple[int, ...]) -> None:
    """Values are `(values - mean) / std` in the dtype asked for, broadcast over a row."""
    mean = np.linspace(100, 120, int(np.prod(shape))).reshape(shape)
    standardized = Standardize("image", mean, mean / 3, dtype)(batch)["image"]
    assert isinstance(standardized, np.ndarray)
    assert standardized.dtype == dtype
    inner = np.float64 if dtype == "f8" else np.float32
    image = np.asarray(batch["image"], inner)
    expected = ((image - mean.astype(inner)) / (mean / 3).astype(inner)).astype(dtype)
    assert np.array_equal(standardized, expected)


def test_normalize_keeps_ragged_rows(batch: Batch) -> None:
    """Ragged values are normalized in place of their rows."""
    standardized = Standardize("points", [0.5, 0], [2, 1], "f8")(batch)["points"]
    assert isinstance(standardized, Ragged)
    for row, actual in zip(batch["points"], standardized, strict=True):
        assert np.array_equal(actual, (row - [0.5, 0]) / [2, 1])


@pytest.mark.parametrize("dtype", ["u1", "i8", "f4", "?"])
def test_cast_is_astype(batch: Batch, dtype: str) -> None:
    """Fixed and ragged fields are converted as `astype` does."""
    line = batch["line"]
    assert isinstance(line, np.ndarray)
    cast = Cast("line", dtype)(batch)["line"]
    assert isinstance(cast, np.ndarray)
    assert cast.dtype == dtype
    assert np.array_equal(cast, line.astype(dtype))
    tokens = Cast("tokens", "i8")(batch)["tokens"]
    assert isinstance(tokens, Ragged)
    assert tokens.values.dtype == "i8"
    assert [row.tolist() for row in tokens] == [row.tolist() for row in batch["tokens"]]


def padded(rows: Any, length: int, fill: Any, side: str) -> list[Any]:
    """What `Pad` promises, in Python lists."""
    result = []
    for row in rows:
        values = row.tolist()
        if side == "right":
            result.append((values + [fill] * length)[:length])
        else:
            result.append(([fill] * length + values)[len(values) :])
    return result


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("length", [None, 0, 1, 3, 9])
def test_pad_fills_and_cuts_on_its_side(batch: Batch, side: Any, length: int | None) -> None:
    """Rows get one length, filled or cut on the right or the left; the mask tells elements."""
    padded_batch = Pad("tokens", length, fill=9, side=side, mask="there")(batch)
    size = max(LENGTHS) if length is None else length
    assert padded_batch["tokens"].dtype == np.uint16  # type: ignore[union-attr]
    assert padded_batch["tokens"].tolist() == padded(batch["tokens"], size, 9, side)
    ones = [np.ones(n, bool) for n in LENGTHS]
    assert padded_batch["there"].tolist() == padded(ones, size, False, side)


def test_pad_keeps_the_shape_of_elements(batch: Batch) -> None:
    """Elements of any shape, text and bytes are padded too."""
    points = Pad("points", 4, fill=-1)(batch)["points"]
    assert isinstance(points, np.ndarray)
    assert points.shape == (5, 4, 2)
    assert points[2, 1:].tolist() == [[-1, -1]] * 3
    assert np.array_equal(points[3], batch["points"][3][:4])
    words = Pad("word", 3)(batch)["word"]
    assert isinstance(words, np.ndarray)
    assert [bytes(row) for row in words] == [b"a\0\0", b"bcd", b"\0\0\0", b"ef\0", b"g\0\0"]


@given(
    st.lists(st.integers(0, 9), max_size=6), st.integers(0, 10), st.booleans(), st.integers(1, 3)
)
def test_pad_is_right_for_any_rows(lengths: list[int], length: int, left: bool, width: int) -> None:
    """Any lengths, cut or filled, give what lists give."""
    offsets = np.cumsum([0, *lengths])
    values = np.arange(offsets[-1] * width, dtype=np.int16).reshape(-1, width)
    rows = Ragged(values, offsets)
    batch = Batch(np.arange(len(lengths)), {"x": rows}, {}, {})
    side: Any = "left" if left else "right"
    actual = Pad("x", length, fill=-1, side=side)(batch)["x"]
    assert actual.tolist() == padded(rows, length, [-1] * width, side)


def test_padding_checks_what_it_gets() -> None:
    """Rows that do not lie within the values are never touched."""
    arguments: dict[str, Any] = {
        "values": np.arange(5),
        "starts": np.array([0, 3]),
        "counts": np.array([2, 2]),
        "length": 2,
        "fill": 7,
        "memory": FRESH,
    }
    assert pad_rows(**arguments).tolist() == [[0, 1], [3, 4]]
    assert pad_rows(**arguments | {"length": 3}).tolist() == [[0, 1, 7], [3, 4, 7]]
    wrong: dict[str, list[Any]] = {
        "starts": [[0, 4], [-1, 0]],
        "counts": [[2, 3], [-1, 2]],
        "length": [1, -1],
    }
    for name, values in wrong.items():
        for value in values:
            with case(name, value), pytest.raises(ValueError, match="do not lie"):
                pad_rows(**arguments | {name: np.array(value) if name != "length" else value})


def test_shift_pairs_each_token_with_the_next(batch: Batch) -> None:
    """Inputs are the tokens but the last, targets those but the first, in either layout."""
    for layout, length, dtype in product(["BL", "LB"], [None, 0, 2, 9], [None, "i8"]):
        with case(layout, length, dtype):
            check_shifted(batch, layout, length, dtype)


def check_shifted(batch: Batch, layout: Any, length: int | None, dtype: Any) -> None:
    """`Shift` with these options gives what Python lists give."""
    ignore = 7 if dtype is None else -100
    shifted = Shift("tokens", length, pad=5, ignore=ignore, layout=layout, dtype=dtype)(batch)
    size = max(LENGTHS) - 1 if length is None else length
    tokens = list(batch["tokens"])
    expected = {
        "inputs": padded([row[:-1] for row in tokens], size, 5, "right"),
        "targets": padded([row[1:] for row in tokens], size, ignore, "right"),
        "mask": padded(
            [np.ones(max(len(row) - 1, 0), bool) for row in tokens], size, False, "right"
        ),
    }
    assert set(shifted) == set(expected)
    for name, rows in expected.items():
        actual = shifted[name]
        assert isinstance(actual, np.ndarray)
        assert actual.flags.c_contiguous
        assert actual.shape == ((5, size) if layout == "BL" else (size, 5))
        assert (actual if layout == "BL" else actual.T).tolist() == rows
    assert shifted["inputs"].dtype == (dtype or np.uint16)  # type: ignore[union-attr]


def test_shift_takes_tokens_of_fixed_length(batch: Batch) -> None:
    """Fixed rows of n tokens give n - 1 pairs, under the names asked for."""
    shifted = Shift("line", inputs="a", targets="b", mask="c")(batch)
    line = batch["line"]
    assert isinstance(line, np.ndarray)
    assert np.array_equal(shifted["a"], line[:, :-1])  # type: ignore[arg-type]
    assert np.array_equal(shifted["b"], line[:, 1:])  # type: ignore[arg-type]
    assert shifted["c"].all()  # type: ignore[union-attr]


def double(values: Any) -> Any:
    """A function that has a place in a module."""
    return values * 2


@pytest.mark.parametrize(
    "transform",
    [
        Standardize("image", 100, 50),
        Cast("image", "f4"),
        Pad("tokens", 8, mask="there"),
        Shift("tokens", 8, layout="LB"),
        Lambda("line", double),
    ],
    ids=lambda transform: type(transform).__name__,
)
def test_a_loader_applies_transforms(slab: Slab, transform: Transform) -> None:
    """In a loader a transform gives what it gives alone, beside the other fields; it pickles."""
    again = pickle.loads(pickle.dumps(transform))
    for batch in Loader(slab, 2, transforms=[again]):
        alone = transform(slab.gather(batch.rows))
        assert set(batch) == set(slab.fields) | set(alone)
        for name, values in alone.items():
            assert np.array_equal(batch[name], values)  # type: ignore[arg-type]


def test_transforms_see_what_earlier_ones_made(slab: Slab) -> None:
    """Each transform works on the results of those before it."""
    chain = [Pad("tokens", 4), Cast("tokens", "i8"), Lambda("tokens", double)]
    (batch,) = Loader(slab, 5, fields=["tokens"], transforms=chain)
    rows = slab.gather(batch.rows)["tokens"]
    assert batch["tokens"].tolist() == [
        [2 * token for token in row] for row in padded(rows, 4, 0, "right")
    ]


def test_dtypes_of_torch_are_dtypes() -> None:
    """A dtype may be given as torch's, or by its name."""
    assert Cast("tokens", torch.int16).dtype == Cast("tokens", "int16").dtype == np.int16


@pytest.mark.parametrize(
    "make",
    [
        lambda: Standardize("image", 0, 0),
        lambda: Standardize("image", float("nan"), 1),
        lambda: Standardize("image", 0, 1, "i4"),
        lambda: Standardize("image", 0, 1, "bfloat16"),
        lambda: Standardize("image", "mean", "std"),
        lambda: Pad("tokens", -1),
        lambda: Pad("tokens", 1.5),  # type: ignore[arg-type]
        lambda: Cast("tokens", "f44"),
        lambda: Shift("tokens", dtype="int63"),
        lambda: Pad("tokens", side="top"),  # type: ignore[arg-type]
        lambda: Shift("tokens", -1),
        lambda: Shift("tokens", layout="XY"),  # type: ignore[arg-type]
    ],
)
def test_impossible_transforms_are_refused(make: Any) -> None:
    """A transform that cannot be is refused as it is made."""
    with pytest.raises(UsageError):
        make()


@pytest.mark.parametrize(
    "transform",
    [
        Standardize("word", 0, 1),
        Standardize("half", 0, 1),
        Standardize("time", 0, 1),
        Cast("word", "f4"),
        Cast("half", "f4"),
        Pad("line"),
        Pad("tokens", fill=-1),
        Pad("tokens", fill=0.5),
        Pad("tokens", fill=70_000),
        Shift("image"),
        Shift("points"),
        Shift("word"),
        Shift("half"),
        Shift("tokens", ignore=-100),
    ],
    ids=lambda transform: f"{type(transform).__name__} {transform.field}",
)
def test_a_field_that_does_not_fit_is_refused(slab: Slab, transform: Transform) -> None:
    """The loader compares transforms with the slab's fields before it reads anything."""
    with pytest.raises(UsageError) as caught:
        Loader(slab, 2, transforms=[transform])
    assert transform.field in str(caught.value)


def test_a_field_that_is_not_there_is_refused(slab: Slab) -> None:
    """So are fields that the slab does not have, or that are not gathered."""
    with pytest.raises(UnknownField):
        Loader(slab, 2, transforms=[Cast("no", "f4")])
    with pytest.raises(UnknownField):
        Loader(slab, 2, fields=["word"], transforms=[Cast("line", "f4")])


def test_wrong_values_at_run_time_are_named(batch: Batch) -> None:
    """A batch whose field is no array, or not ragged, is refused by name."""
    for transform in (Cast("word", "f4"), Standardize("word", 0, 1), Pad("line"), Shift("word")):
        with pytest.raises(UsageError, match=transform.field):
            transform(batch)
