"""`--tensor`: raw bytes, hexadecimal text and lists as arrays of a given dtype and shape."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.packer.readback import Readback, difference

from fieldslab.packer import pack
from fieldslab.packer.options import parse_shape
from fieldslab.schemas.errors import (
    FieldslabError,
    NullsFound,
    SourceInconsistent,
    UnknownField,
    UsageError,
)

ROWS = 9
RANDOM = np.random.default_rng(11)


def packed(path: Path, columns: dict[str, Any], tensor: str, **options: Any) -> Readback:
    """Pack columns, the first of which is `a`, with `--tensor a=...`."""
    pack(pa.table(columns), path / "slab", tensor={"a": tensor}, force=True, **options)
    return Readback(path / "slab")


def refused(path: Path, columns: dict[str, Any], tensor: str, **options: Any) -> FieldslabError:
    """The error of such a pack, which must leave nothing behind."""
    with pytest.raises(FieldslabError) as caught:
        pack(pa.table(columns), path / "slab", tensor={"a": tensor}, **options)
    assert list(path.iterdir()) == []
    return caught.value


def values(dtype: str, *shape: int) -> np.ndarray:
    """Arrays of random bits; complex and float ones may hold any NaN."""
    if np.dtype(dtype).kind == "b":
        return RANDOM.integers(0, 2, (ROWS, *shape)).astype(bool)
    size = np.dtype(dtype).itemsize * ROWS * int(np.prod(shape))
    return np.frombuffer(RANDOM.bytes(size), dtype).reshape(ROWS, *shape)


DTYPES = ["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
SPELLINGS = {
    "bytes": lambda rows: pa.array([row.tobytes() for row in rows]),
    "large": lambda rows: pa.array([row.tobytes() for row in rows], pa.large_binary()),
    "views": lambda rows: pa.array([row.tobytes() for row in rows], pa.binary_view()),
    "fixed": lambda rows: pa.array([row.tobytes() for row in rows], pa.binary(rows[0].nbytes)),
    "hex": lambda rows: pa.array([row.tobytes().hex() for row in rows]),
    "HEX": lambda rows: pa.array([row.tobytes().hex().upper() for row in rows], pa.string_view()),
    "hex bytes": lambda rows: pa.array([row.tobytes().hex().encode() for row in rows]),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_raw(tmp_path: Path, spelling: str) -> None:
    """Raw bytes and hexadecimal digits of every dtype come out bit for bit."""
    for dtype in DTYPES:
        expected = values(dtype, 2, 3)
        array = SPELLINGS[spelling](expected)
        back = packed(tmp_path, {"a": array.slice(1)}, f"{dtype}[2,3]")
        assert difference(back.column("a"), list(expected[1:])) is None, dtype
        assert back.fields["a"]["kind"] == "fixed"


def test_bfloat16(tmp_path: Path) -> None:
    """bfloat16 stays the bits it is."""
    expected = values("u2", 4)
    back = packed(tmp_path, {"a": SPELLINGS["bytes"](expected)}, "bf16[4]")
    assert back.fields["a"]["logical"] == {"type": "bfloat16"}
    assert difference(back.column("a"), list(expected)) is None


@pytest.mark.parametrize("dtype", ["i2", "u8", "f4", "c16", "bf16", "u1"])
def test_big_endian(tmp_path: Path, dtype: str) -> None:
    """`>` in front turns the bytes of each number around."""
    expected = values("u2" if dtype == "bf16" else dtype, 3)
    swapped = expected.astype(expected.dtype.newbyteorder(">"))
    back = packed(tmp_path, {"a": SPELLINGS["bytes"](swapped)}, f">{dtype}[3]")
    assert difference(back.column("a"), list(expected)) is None


def test_nulls(tmp_path: Path) -> None:
    """A null row is masked, or filled with a value; lengths are checked for the others."""
    array = pa.array([b"\1\0", None, b"\2\0"])
    assert packed(tmp_path, {"a": array}, "i2[1]", nulls="a=mask").column("a") == [[1], None, [2]]
    back = packed(tmp_path, {"a": array}, "i2[1]", nulls="a=-3")
    assert back.values("a").tolist() == [[1], [-3], [2]]
    (tmp_path / "x").mkdir()
    assert isinstance(refused(tmp_path / "x", {"a": array}, "i2[1]"), NullsFound)


def test_any_length(tmp_path: Path) -> None:
    """`[*]` and `[*,3]` take rows of any whole length, empty ones too."""
    rows = [RANDOM.integers(-9, 9, (n, 3)).astype("i4") for n in (2, 0, 5, 1)]
    for spelling in ("bytes", "hex"):
        array = SPELLINGS[spelling](rows)
        back = packed(tmp_path, {"a": array}, "i4[*,3]")
        assert difference(back.column("a"), rows) is None
        assert back.fields["a"]["kind"] == "ragged"
        flat = packed(tmp_path, {"a": array}, "i4[*]").column("a")
        assert difference(flat, [row.reshape(-1) for row in rows]) is None


def test_scalars(tmp_path: Path) -> None:
    """An empty shape is a scalar a row."""
    expected = values("f8")
    back = packed(tmp_path, {"a": SPELLINGS["bytes"](expected)}, "f8[]")
    assert difference(back.column("a"), list(expected)) is None


def test_lists(tmp_path: Path) -> None:
    """Flat lists take any shape of their length, nested lists the shape they have."""
    cube = values("i2", 2, 3, 2)
    flat = [row.reshape(-1).tolist() for row in cube]
    for kind in (pa.list_(pa.int16()), pa.list_(pa.int16(), 12), pa.list_view(pa.int16())):
        array = pa.array(flat, kind)
        back = packed(tmp_path, {"a": array}, "i2[2,3,2]")
        assert difference(back.column("a"), list(cube)) is None
        back = packed(tmp_path, {"a": array}, "i2[*,2]")
        assert difference(back.column("a"), [row.reshape(-1, 2) for row in cube]) is None
    nested = pa.array(cube.tolist(), pa.list_(pa.list_(pa.list_(pa.int16()))))
    for shape in ("2,3,2", "*,3,2"):
        back = packed(tmp_path, {"a": nested}, f"i2[{shape}]")
        assert difference(back.column("a"), list(cube)) is None
    back = packed(tmp_path, {"a": nested}, "f4[2,3,2]", cast="a=f4")
    assert difference(back.column("a"), list(cube.astype("f4"))) is None


SHAPES = [
    ["(2, 3)"] * ROWS,
    ["torch.Size([2, 3])"] * ROWS,
    ["[2,3]", " (2, 3) "] * 4 + ["2x3"],
    [b"(2, 3)"] * ROWS,
    [[2, 3]] * ROWS,
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("in_memory", [True, False], ids=["arrow", "parquet"])
def test_shape_from(tmp_path: Path, shapes: list[Any], in_memory: bool) -> None:
    """The shape can stand in another column, as text or as a list."""
    if shapes[0] == b"(2, 3)":
        shapes = [shape.decode() for shape in shapes]
    expected = values("f4", 2, 3)
    table = pa.table({"a": SPELLINGS["bytes"](expected), "s": pa.array(shapes)})
    source: Any = table if in_memory else tmp_path / "a.parquet"
    if not in_memory:
        pq.write_table(table, source, row_group_size=4)
    pack(source, tmp_path / "slab", tensor="a=f4,shape_from=s", exclude="s")
    back = Readback(tmp_path / "slab")
    assert list(back.fields) == ["a"]
    assert difference(back.column("a"), list(expected)) is None


def test_shape_from_a_struct_with_nulls(tmp_path: Path) -> None:
    """The column of shapes may be inside a struct; what stands beside a null does not count."""
    rows = [
        {"data": bytes(8), "shape": "(2,)"},
        {"data": None, "shape": "(7,)"},
        {"data": bytes(8), "shape": "(2,)"},
        None,
    ]
    pack(
        pa.table({"a": pa.array(rows)}),
        tmp_path / "slab",
        tensor={"a.data": "f4,shape_from=a.shape"},
        fields="a.data",
        nulls="a=mask",
    )
    back = Readback(tmp_path / "slab")
    assert [row is None for row in back.column("a.data")] == [False, True, False, True]


@pytest.mark.parametrize("shapes", [["(2,)", "(2,)", "(1, 2)"], [[2], [2], [1]]], ids=str)
def test_another_shape_later(tmp_path: Path, shapes: list[Any]) -> None:
    """A row whose shape is not the first row's is an error that names it."""
    columns = {"a": [bytes(8), bytes(8), bytes(8)], "s": shapes}
    error = refused(tmp_path, columns, "f4,shape_from=s")
    assert isinstance(error, SourceInconsistent)
    assert error.context["row"] == 2
    assert (error.context["expected"], error.context["found"]) == ([2], shapes[2])


@pytest.mark.parametrize(
    "text", ["torch", "(1, 2", "eval('1')", "(-1, 2)", "(1.5,)", "", "(99999999999999999999,)"]
)
def test_not_a_shape(tmp_path: Path, text: str) -> None:
    """Text that is no shape is refused, never evaluated."""
    if parse_shape(text) is None:
        error = refused(tmp_path, {"a": [bytes(8)], "s": [text]}, "f4,shape_from=s")
        assert "not a shape" in str(error)
    else:
        assert parse_shape(text) == (1, 2)


def test_shape_from_nowhere(tmp_path: Path) -> None:
    """A column of shapes that is not there, or empty, is an error."""
    columns: dict[str, Any] = {"a": [bytes(8)], "shape": ["(2,)"]}
    error = refused(tmp_path, columns, "f4,shape_from=shapes")
    assert isinstance(error, UnknownField)
    assert "'shape'" in str(error)
    columns["shape"] = pa.nulls(1, pa.string())
    assert "no row to take the shape from" in str(refused(tmp_path, columns, "f4,shape_from=shape"))


GOOD = [bytes(8)] * 700
WRONG: list[tuple[Any, str]] = [
    (b"\0" * 7, "f4[2]"),
    (b"", "f4[2]"),
    (b"\0" * 12, "f4[2]"),
    (b"\0" * 9, "f4[*]"),
    (b"\0" * 20, "f4[*,2]"),
    ("00" * 7, "f4[2]"),
    ("0" * 15, "f4[2]"),
    ("zz" * 8, "f4[2]"),
    ("0x" + "00" * 7, "f4[2]"),
    (b"\2" + bytes(7), "b1[8]"),
    ([1, 2, 3], "i8[2]"),
    ([1, None], "i8[2]"),
    ([1], "i8[*,2]"),
]


@pytest.mark.parametrize(("bad", "tensor"), WRONG, ids=str)
def test_wrong_rows(tmp_path: Path, bad: Any, tensor: str) -> None:
    """A row of another length, or of no digits, is an error that names it."""
    fine: Any = [1, 2] if isinstance(bad, list) else bytes(8)
    fine = fine.hex() if isinstance(bad, str) else fine
    error = refused(tmp_path, {"a": pa.array([fine] * 700 + [bad] + [fine] * 9)}, tensor)
    assert error.exit_code == 4
    assert error.context["field"] == "a"
    assert error.context["row"] == 700


@pytest.mark.parametrize(
    ("column", "tensor", "options"),
    [
        ([1, 2], "i8[1]", {}),
        (["a"], "x4[1]", {}),
        ([[1.0]], "f4[1]", {}),
        ([[[1]]], "i8[1,1,1]", {}),
        ([[1]], ">i8[1]", {}),
        ([b"a"], "u1[1]", {"cast": "a=text"}),
        ([b"a"], "u1[1]", {"image": "a"}),
        ([b"a"], "u1[*,0]", {}),
        ([b"a"], "u1[2", {}),
        ([b"a"], "u1", {}),
        ([b"a"], "[2]", {}),
        ([b"a"], "u1[-1]", {}),
        ([b"a"], f"u1[{2**60}]", {}),
        ([b"a"], "u1[2,*]", {}),
        ([b"a"], f"u1[{','.join('1' * 40)}]", {}),
        ([{"x": 1}], "u1[1]", {}),
    ],
    ids=str,
)
def test_wrong_calls(
    tmp_path: Path, column: list[Any], tensor: str, options: dict[str, Any]
) -> None:
    """What the type or another option contradicts is refused before data is read."""
    error = refused(tmp_path, {"a": pa.array(column)}, tensor, **options)
    assert isinstance(error, UsageError)
    assert error.exit_code == 2


def test_a_tensor_type_has_its_shape(tmp_path: Path) -> None:
    """`--tensor` on arrow.fixed_shape_tensor would lose its permutation: refused."""
    kind = pa.fixed_shape_tensor(pa.int8(), [2, 3], permutation=[1, 0])
    array = pa.ExtensionArray.from_storage(kind, pa.array([[1] * 6], pa.list_(pa.int8(), 6)))
    assert isinstance(refused(tmp_path, {"a": array}, "i1[3,2]"), UsageError)
