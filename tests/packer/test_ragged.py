"""`--ragged`: rows padded to one length are stored without their padding, and padded again."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.naming import case

from fieldslab.packer import pack, verify
from fieldslab.packer.convert.padding import cut_padding, make_padding
from fieldslab.packer.options import parse_options
from fieldslab.reader import Ragged, open_slab
from fieldslab.schemas.errors import FieldslabError, SourceInconsistent, UnknownField, UsageError
from fieldslab.schemas.fields import Field

RANDOM = np.random.default_rng(3)
ATTRIBUTE = "fieldslab.padding"


def write(path: Path, **columns: Any) -> Path:
    """An HDF5 file with these datasets."""
    with h5py.File(path / "x.h5", "w") as file:
        file.update(columns)
    return path / "x.h5"


def gathered(path: Path, source: Any, ragged: Any, **options: Any) -> Ragged:
    """Pack a source and gather every row of the field `x`."""
    pack(source, path / "slab", ragged=ragged, force=True, **options)
    slab = open_slab(path / "slab")
    values = slab.gather(range(len(slab)))["x"]
    assert isinstance(values, Ragged)
    return values


def error_of(path: Path, source: Any, ragged: Any, **options: Any) -> FieldslabError:
    """The error of a pack, which leaves nothing behind."""
    with pytest.raises(FieldslabError) as caught:
        pack(source, path / "slab", ragged=ragged, **options)
    assert not (path / "slab").exists()
    return caught.value


def padded(dtype: str, fill: Any, lengths: list[int], length: int, *shape: int) -> np.ndarray:
    """Random bits up to a length, which differ from the padding, and padding behind it."""
    size = len(lengths) * length * int(np.prod(shape)) * np.dtype(dtype).itemsize
    values = np.frombuffer(RANDOM.bytes(size), dtype).reshape(len(lengths), length, *shape).copy()
    if np.dtype(dtype).kind == "b":
        values[...] = not fill
    for row, real in enumerate(lengths):
        values[row, real:] = fill
    return values


LENGTHS = [0, 1, 2, 7, 3, 7]


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        ("<f4", -1000),
        ("<f4", 0),
        ("<f8", float("nan")),
        ("<f2", float("inf")),
        ("<i8", 2**62),
        ("<u1", 255),
        ("<i2", -5),
        ("?", True),
        ("<c8", 0),
        ("<c16", complex(1, -2)),
    ],
)
def test_pad(tmp_path: Path, dtype: str, fill: Any) -> None:
    """Padding is cut by its value, and `to_padded` gives back every bit of the source."""
    shapes: list[tuple[int, ...]] = [(), (3,), (2, 2)]
    for shape in shapes:
        values = padded(dtype, fill, LENGTHS, 7, *shape)
        source = write(tmp_path, x=values)
        with case(shape):
            rows = gathered(tmp_path, source, [f"x:pad={fill}"])
            assert rows.lengths.tolist() == LENGTHS
            assert rows.values.shape[1:] == shape
            assert rows.to_padded(7, fill).tobytes() == values.tobytes()
            assert verify(tmp_path / "slab", against=source).ok


@pytest.mark.parametrize("dtype", ["i1", ">i2", "u4", "i8", "u8"])
def test_len(tmp_path: Path, dtype: str) -> None:
    """Rows are cut to the lengths of another column of integers, which need not be packed."""
    values = padded("<f4", 0, LENGTHS, 7, 2)
    values[3, 5:] = 0  # what looks like padding and is not
    source = write(tmp_path, x=values, n=np.array(LENGTHS, dtype))
    for options in ({}, {"exclude": "n"}, {"fields": "x"}):
        actual = gathered(tmp_path, source, "x:len=n", **options)
        assert actual.lengths.tolist() == LENGTHS
        assert actual.to_padded(7, 0).tobytes() == values.tobytes()


def test_len_and_pad(tmp_path: Path) -> None:
    """Lengths of a column go with padding of any value."""
    values = padded("<i4", -7, LENGTHS, 9)
    source = write(tmp_path, x=values, n=np.array(LENGTHS))
    actual = gathered(tmp_path, source, {"x": "len=n,pad=-7"})
    assert actual.to_padded(9, -7).tobytes() == values.tobytes()


def test_attribute(tmp_path: Path) -> None:
    """What it takes to pad again stands in the field's attributes, beside those of the source."""
    with h5py.File(write(tmp_path, x=padded("<f4", 0, LENGTHS, 7), y=np.ones((6, 4))), "a") as file:
        file["x"].attrs["unit"] = "GeV"
    for text, fill in {
        "-1000": -1000.0,
        "nan": "NaN",
        "-inf": "-inf",
        "0.1": float(np.float32(0.1)),
    }.items():
        packed = pack(tmp_path / "x.h5", tmp_path / "slab", ragged=[f"x:pad={text}"], force=True)
        field = packed.manifest.fields[0]
        assert field.attributes == {"unit": "GeV", ATTRIBUTE: {"length": 7, "fill": fill}}
        assert np.array(fill, "f4").tobytes() == np.array(text, "f4").tobytes()
        assert packed.manifest.fields[1].attributes == {}


def test_patterns_and_parquet(tmp_path: Path) -> None:
    """Any source can be cut: lists of fixed size, and lists that --tensor gives a shape."""
    values = padded("<f4", -1, LENGTHS, 4)
    columns = {
        "x": pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), 4),
        "xs": pa.array(values.tolist(), pa.list_(pa.float32())),
        "raw": pa.array([row.tobytes() for row in values]),
    }
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    tensor = {"xs": "f4[4]", "raw": "f4[2,2]"}
    packed = pack(
        tmp_path / "x.parquet", tmp_path / "slab", ragged=["x*:pad=-1", "raw:pad=-1"], tensor=tensor
    )
    assert [(f.kind, f.shape) for f in packed.manifest.fields] == [
        ("ragged", ()),
        ("ragged", ()),
        ("ragged", (2,)),
    ]
    batch = open_slab(tmp_path / "slab").gather([5, 0, 2])
    for name, shape in {"x": (4,), "xs": (4,), "raw": (2, 2)}.items():
        expected = values[[5, 0, 2]].reshape(3, *shape)
        assert batch[name].to_padded(shape[0], -1).tobytes() == expected.tobytes()


def test_rows_without_values(tmp_path: Path) -> None:
    """Rows that are null stay null, and take no part in the check of lengths."""
    table = pa.table(
        {
            "x": pa.array([[1, 0], None, [0, 0]], pa.list_(pa.int32(), 2)),
            "n": [1, None, 0],
        }
    )
    pack(table, tmp_path / "slab", ragged="x:len=n", nulls={"*": "mask"})
    batch = open_slab(tmp_path / "slab").gather([0, 1, 2])
    assert batch.valid["x"].tolist() == [True, False, True]
    assert batch["x"].lengths.tolist() == [1, 0, 0]


def test_something_behind_the_length(tmp_path: Path) -> None:
    """A row with anything but padding behind its length is an error that names it."""
    values = padded("<f4", 0, LENGTHS, 7, 2)
    values[2, 6, 1] = 0.5
    source = write(tmp_path, x=values, n=np.array(LENGTHS))
    error = error_of(tmp_path, source, "x:len=n")
    assert isinstance(error, SourceInconsistent)
    text = str(error)
    assert "after its length of 2 there is something other than padding" in text
    assert "(field x, row 2, expected 0.0, found 0.5)" in text


def test_minus_zero(tmp_path: Path) -> None:
    """Minus zero is not zero: behind a stated length it is an error, and else it is kept."""
    values = padded("<f4", 0, [2, 3], 5)
    values[1, 4] = -0.0
    source = write(tmp_path, x=values, n=np.array([2, 3]))
    assert "row 1" in str(error_of(tmp_path, source, "x:len=n"))
    actual = gathered(tmp_path, source, "x:pad=0")
    assert actual.lengths.tolist() == [2, 5]
    assert actual.to_padded(5, 0).tobytes() == values.tobytes()


def test_another_nan(tmp_path: Path) -> None:
    """Padding by a NaN of other bits could not be given back: an error names the row."""
    values = padded("<f4", float("nan"), [2, 3], 5)
    values[1, 3:].view("u4")[:] = 0xFFC00001
    error = error_of(tmp_path, write(tmp_path, x=values), "x:pad=nan")
    assert "padded with a NaN that has other bits" in str(error)
    assert "row 1, expected 7fc00000, found ffc00001" in str(error)


@pytest.mark.parametrize("length", [-1, 8, 2**40])
def test_lengths_out_of_range(tmp_path: Path, length: int) -> None:
    """A length that no row has is an error that names the row."""
    source = write(tmp_path, x=padded("<f4", 0, LENGTHS, 7), n=np.array([0, 1, 2, 7, length, 7]))
    error = error_of(tmp_path, source, "x:len=n")
    assert f"out of range (field x, row 4, expected 0..7, found {length})" in str(error)


@pytest.mark.parametrize(
    ("ragged", "problem"),
    [
        ("x", "ragged: is not valid"),
        ("x:pad=", "ragged: is not valid"),
        ("x:cut=3", "ragged: is not valid"),
        ("x:pad=1,len=n", "ragged: is not valid"),
        (["x:pad=1", "x:pad=2"], "ragged: given twice"),
        ("x:pad=many", "ragged: the value does not fit the column"),
        ("s:pad=0", "ragged: its rows are not arrays of one length"),
        ("n:pad=0", "ragged: its rows are not arrays of one length"),
        ("x:len=s", "ragged len: not a column of integers"),
        ("x:len=x", "ragged len: not a column of integers"),
    ],
)
def test_contradictions(tmp_path: Path, ragged: Any, problem: str) -> None:
    """What cannot be understood, or is no row of arrays, is told before anything is read."""
    source = write(tmp_path, x=np.ones((3, 2)), n=np.ones(3, int), s=np.array([b"a", b"b", b"c"]))
    error = error_of(tmp_path, source, ragged)
    assert isinstance(error, UsageError)
    assert problem in str(error)


@pytest.mark.parametrize("ragged", ["y:pad=0", "x:len=m"])
def test_unknown_columns(tmp_path: Path, ragged: str) -> None:
    """A column that is not there is named."""
    source = write(tmp_path, x=np.ones((3, 2)), n=np.ones(3, int))
    assert isinstance(error_of(tmp_path, source, ragged), UnknownField)


def test_compressed_with_lengths_of_another_column(tmp_path: Path) -> None:
    """Rows that are cut to the lengths of a column can be compressed as well."""
    lengths = np.arange(200) % 5
    source = write(tmp_path, x=padded("i4", 0, lengths.tolist(), 4), n=lengths.clip(max=4))
    pack(source, tmp_path / "slab", ragged=["x:len=n"], compress="x")
    assert verify(tmp_path / "slab", against=source).ok
    rows = open_slab(tmp_path / "slab").gather(range(200))["x"]
    assert isinstance(rows, Ragged)
    assert rows.lengths.tolist() == lengths.tolist()


def test_not_in_a_stack(tmp_path: Path) -> None:
    """Columns of arrays are not stacked, cut or not."""
    source = write(tmp_path, x=np.ones((3, 2)), y=np.ones((3, 2)))
    error = error_of(tmp_path, source, "*:pad=0", stack={"both": "*"})
    assert "stack" in str(error)


@given(
    st.integers(0, 6),
    st.integers(1, 5),
    st.sampled_from([(), (1,), (3,)]),
    st.sampled_from(["u1", "<i4", "<f4", "<c16"]),
    st.randoms(use_true_random=False),
)
def test_any_array(rows: int, length: int, shape: tuple[int, ...], dtype: str, random: Any) -> None:
    """Whatever the values, padding again what was cut gives back every bit."""
    size = rows * length * int(np.prod(shape))
    values = np.array([random.choice([0, 0, 0, 1, 7]) for _ in range(size)], dtype)
    values = values.reshape(rows, length, *shape)
    field = Field(
        name="x",
        stem="00-x",
        kind="fixed",
        dtype=np.dtype(dtype).name,  # type: ignore[arg-type]
        shape=(length, *shape),
    )
    asked = parse_options(ragged="x:pad=0").ragged["x"]
    elements, lengths = cut_padding(make_padding(field, asked, "x", None), values, None)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    assert Ragged(elements, offsets).to_padded(length, 0).tobytes() == values.tobytes()
    for row, real in zip(values, lengths, strict=True):
        assert real == 0 or row[real - 1].any()
