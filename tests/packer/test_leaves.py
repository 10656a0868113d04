"""Which columns there are, what they are called, and which of them options mean."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.packer.readback import Readback

from fieldslab.packer import pack
from fieldslab.packer.column_names import make_names_unique
from fieldslab.schemas.errors import UnknownField, UsageError


def nested() -> pa.Table:
    """Structs in structs beside columns with dots in their names."""
    inner = pa.StructArray.from_arrays([pa.array([1, 2]), pa.array([3, 4])], ["x", "y"])
    outer = pa.StructArray.from_arrays([inner, pa.array([5, 6])], ["in", "z"])
    columns = [outer, pa.array([7, 8]), pa.array([9, 10]), pa.array([11, 12])]
    return pa.Table.from_arrays(columns, ["s", "s.in.x", "s.in", "other.column"])


def source(table: pa.Table, folder: Path, in_memory: bool) -> Any:
    """A table as it is, or as a Parquet file."""
    if in_memory:
        return table
    pq.write_table(table, folder / "a.parquet", row_group_size=1)
    return folder / "a.parquet"


both = pytest.mark.parametrize("in_memory", [True, False], ids=["arrow", "parquet"])


@both
def test_dots_in_names(tmp_path: Path, in_memory: bool) -> None:
    """A column `s.in.x` and the child x of a struct s.in stay two fields."""
    pack(source(nested(), tmp_path, in_memory), tmp_path / "slab")
    back = Readback(tmp_path / "slab")
    assert {name: back.values(name).tolist() for name in back.fields} == {
        "s.in.x": [1, 2],
        "s.in.y": [3, 4],
        "s.z": [5, 6],
        "s.in.x#2": [7, 8],
        "s.in": [9, 10],
        "other.column": [11, 12],
    }


@both
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"fields": "s"}, ["s.in.x", "s.in.y", "s.z", "s.in.x#2", "s.in"]),
        ({"fields": "s.in"}, ["s.in.x", "s.in.y", "s.in.x#2", "s.in"]),
        ({"fields": "s.in.x"}, ["s.in.x"]),
        ({"fields": "s.in.x#2"}, ["s.in.x#2"]),
        ({"fields": "other.column,s.z"}, ["s.z", "other.column"]),
        ({"fields": ["other.column", "s.z"]}, ["s.z", "other.column"]),
        ({"fields": "*.?"}, ["s.in.x", "s.in.y", "s.z"]),
        ({"exclude": "s"}, ["other.column"]),
        ({"fields": "s", "exclude": "s.in"}, ["s.z"]),
        ({"exclude": "*x*, s.z"}, ["s.in.y", "s.in", "other.column"]),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_choice(
    tmp_path: Path, in_memory: bool, options: dict[str, Any], expected: list[str]
) -> None:
    """Names, structs, patterns and lists of them choose fields, in the order of the source."""
    pack(source(nested(), tmp_path, in_memory), tmp_path / "slab", **options)
    back = Readback(tmp_path / "slab")
    assert list(back.fields) == expected
    everything = tmp_path / "all"
    pack(source(nested(), tmp_path, in_memory), everything)
    for name in expected:
        assert (back.values(name) == Readback(everything).values(name)).all()


HARD = [
    "a",
    "a",
    "a#2",
    "a",
    "A",
    "á",
    "",
    " ",
    "名前",
    "🙂",
    "x" * 300,
    "x" * 299 + "y",
    "a/b",
    "a\\b",
    "../up",
    "a b",
    "a_b",
    "a,b",
    "a=b",
    "con",
    "a\nb",
    "'",
    '"',
    "[x]",
    "*",
    "huggingface",
    "00-a",
]


@both
def test_hard_names(tmp_path: Path, in_memory: bool) -> None:
    """Any name is kept: repeated ones are numbered, files get names of their own."""
    table = pa.Table.from_arrays([pa.array([index]) for index in range(len(HARD))], HARD)
    pack(source(table, tmp_path, in_memory), tmp_path / "slab")
    back = Readback(tmp_path / "slab")
    expected = ["a", "a#3", "a#2", "a#4", *HARD[4:]]
    assert list(back.fields) == expected
    assert [back.values(name).item() for name in expected] == list(range(len(HARD)))
    stems = [field["stem"].casefold() for field in back.fields.values()]
    assert len(set(stems)) == len(HARD)
    assert all(stem.replace("-", "").replace("_", "").isalnum() for stem in stems)


@both
@pytest.mark.parametrize("name", ["a#3", "", "x" * 300, "名前", "a,b", "[x]", "*", "'"])
def test_hard_names_in_options(tmp_path: Path, in_memory: bool, name: str) -> None:
    """A name that is there means that column alone, even if it looks like a pattern or a list."""
    table = pa.Table.from_arrays([pa.array([index]) for index in range(len(HARD))], HARD)
    offset = 1 if name == "a#3" else HARD.index(name)
    pack(
        source(table, tmp_path, in_memory),
        tmp_path / "slab",
        fields=[name],
        cast={name: "f4"},
        rename={name: "new"},
        nulls={name: "mask"},
    )
    back = Readback(tmp_path / "slab")
    assert list(back.fields) == ["new"]
    assert back.values("new").tolist() == [float(offset)]


def test_unique_names() -> None:
    """Numbering repeated names never makes another repeated name."""
    assert make_names_unique(["a", "a", "a"]) == ["a", "a#2", "a#3"]
    assert make_names_unique(["a", "a", "a#2", "a#2"]) == ["a", "a#3", "a#2", "a#2#2"]
    assert make_names_unique(["a#2", "a", "a"]) == ["a#2", "a", "a#3"]


@both
def test_parts_of_structs_with_one_name(tmp_path: Path, in_memory: bool) -> None:
    """A struct may repeat a name as well."""
    struct = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["n", "n"])
    if not in_memory:
        struct = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["n", "m"])
    pack(source(pa.table({"s": struct}), tmp_path, in_memory), tmp_path / "slab")
    back = Readback(tmp_path / "slab")
    assert list(back.fields) == (["s.n", "s.n#2"] if in_memory else ["s.n", "s.m"])
    assert [back.values(name).item() for name in back.fields] == [1, 2]


@pytest.mark.parametrize(
    "options",
    [
        {"fields": "lable"},
        {"exclude": "lable"},
        {"rename": "lable=x"},
        {"cast": "lable=f4"},
        {"tensor": "lable=f4[1]"},
        {"image": "lable"},
        {"nulls": "lable=0"},
        {"stack": "x=lable"},
        {"fields": "label,lable"},
        {"fields": "LABEL"},
        {"cast": {"label": "f4", "lable": "f4"}},
    ],
    ids=repr,
)
def test_misspelt(tmp_path: Path, options: dict[str, Any]) -> None:
    """Every option that names a column which is not there says what may have been meant."""
    table = pa.table({"label": [1], "other": [2]})
    with pytest.raises(UnknownField, match=r"^\w+: no such column.*Did you mean 'label'\?"):
        pack(table, tmp_path / "slab", **options)
    assert not (tmp_path / "slab").exists()


def test_misspelt_beyond_recognition(tmp_path: Path) -> None:
    """Where nothing is close, the columns are listed, twenty at most."""
    table = pa.table({f"c{index}": [index] for index in range(99)})
    with pytest.raises(UnknownField, match=r"The columns are: c0, c1, .*, c19, \.\.\."):
        pack(table, tmp_path / "slab", fields="something")
    struct = pa.table({"s": pa.array([{"x": 1, "y": 2}])})
    with pytest.raises(UnknownField, match=r"its parts are s\.x, s\.y"):
        pack(struct, tmp_path / "slab", rename="s=t")
    with pytest.raises(UsageError, match="no field is left"):
        pack(struct, tmp_path / "slab", exclude="*")


@pytest.mark.parametrize(
    ("rename", "expected"),
    [
        ("s.x=b", None),
        ("s.x=c", ["c", "b"]),
        ({"s.x": "b", "b": "s.x"}, ["b", "s.x"]),
        ({"s.x": ""}, ["", "b"]),
        ({"s.x": "c", "b": "c"}, None),
    ],
    ids=repr,
)
def test_rename(tmp_path: Path, rename: Any, expected: list[str] | None) -> None:
    """Fields are renamed at once; two of one name are refused."""
    table = pa.table({"s": pa.array([{"x": 1}]), "b": [2]})
    if expected is None:
        with pytest.raises(UsageError, match="two fields would have this name"):
            pack(table, tmp_path / "slab", rename=rename)
        return
    pack(table, tmp_path / "slab", rename=rename)
    back = Readback(tmp_path / "slab")
    assert list(back.fields) == expected
    assert [back.values(name).item() for name in expected] == [1, 2]


def test_wide_structs_keep_their_nulls(tmp_path: Path) -> None:
    """Nulls of a struct reach each of its children, however many there are."""
    values = np.arange(400)
    mask = pa.array([False, True, False])
    children = [pa.array([value, value, value]) for value in values]
    struct = pa.StructArray.from_arrays(children, [f"c{index}" for index in values], mask=mask)
    pack(pa.table({"s": struct}), tmp_path / "slab", nulls="s=mask")
    back = Readback(tmp_path / "slab")
    assert all(back.column(f"s.c{index}") == [index, None, index] for index in values)
