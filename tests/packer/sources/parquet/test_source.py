"""Parquet as a source: files, globs, directories, partitions, and files that are wrong."""

import datetime
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.packer.readback import Readback
from tests.packer.sources.parquet.parquet_files import numbers, refused, write

from fieldslab.packer import pack
from fieldslab.schemas.errors import (
    FieldslabError,
    SourceInconsistent,
    UsageError,
)


def test_files_globs_and_directories(tmp_path: Path) -> None:
    """Files come in the order given, globs and directories sorted and without hidden files."""
    data = tmp_path / "data"
    for index in (2, 0, 1):
        write(data / f"part-{index}.parquet", range(10 * index, 10 * index + 3))
    write(data / "deep" / "part-3.parquet", range(30, 33))
    for hidden in (".part.parquet", "_part.parquet", ".tmp/a.parquet", "_delta/a.parquet"):
        write(data / hidden, range(99, 100))
    (data / "_SUCCESS").touch()
    (data / "notes.txt").write_text("not Parquet")
    zero, first, two, three = (list(range(10 * index, 10 * index + 3)) for index in range(4))
    expected: list[tuple[Any, list[int]]] = [
        (data / "part-1.parquet", first),
        ([str(data / "part-2.parquet"), data / "part-0.parquet"], two + zero),
        (str(data / "part-*.parquet"), zero + first + two),
        (str(data / "**" / "part-*.parquet"), three + zero + first + two),
        (data, three + zero + first + two),
        (f"{data}/part-[02].parquet", zero + two),
        ([data / "part-1.parquet", data / "part-1.parquet"], first + first),
    ]
    for source, rows in expected:
        pack(source, tmp_path / "slab", force=True)
        assert numbers(tmp_path / "slab") == rows


def test_name_with_the_signs_of_a_glob(tmp_path: Path) -> None:
    """A file that is there is meant by its name, even if it looks like a glob."""
    write(tmp_path / "a[1].parquet", range(3))
    write(tmp_path / "a1.parquet", range(9))
    pack(tmp_path / "a[1].parquet", tmp_path / "slab")
    assert numbers(tmp_path / "slab") == [0, 1, 2]


def test_file_without_a_suffix(tmp_path: Path) -> None:
    """Parquet is recognised by its first bytes as well."""
    write(tmp_path / "data.parquet", range(3)).rename(tmp_path / "data")
    pack(tmp_path / "data", tmp_path / "slab")
    assert numbers(tmp_path / "slab") == [0, 1, 2]


def test_links_to_files(tmp_path: Path) -> None:
    """Links to files are followed, as HuggingFace's cache is full of them."""
    write(tmp_path / "blobs" / "abc", range(3))
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "train.parquet").symlink_to("../blobs/abc")
    pack(tmp_path / "snapshot", tmp_path / "slab")
    assert numbers(tmp_path / "slab") == [0, 1, 2]


def test_partitions(tmp_path: Path) -> None:
    """Hive partitions become columns of the type that all of their values have."""
    data = tmp_path / "x=ignored" / "data"
    for year, name in ((2023, "a b"), (2024, "ü/v"), (2024, "w")):
        folder = f"year={year}/name={name.replace('/', '%2F')}"
        write(data / folder / "part.parquet", range(year, year + 2))
    pack(data, tmp_path / "slab")
    back = Readback(tmp_path / "slab")
    assert list(back.fields) == ["n", "t", "year", "name"]
    assert back.values("year").tolist() == [2023] * 2 + [2024] * 4
    assert (
        back.column("name") == ["a b"] * 2 + ["w"] * 2 + ["ü/v"] * 2
        or back.column("name") == ["a b"] * 2 + ["ü/v"] * 2 + ["w"] * 2
    )
    pack(data, tmp_path / "one", fields="year")
    assert Readback(tmp_path / "one").values("year").tolist() == [2023] * 2 + [2024] * 4
    pack(data, tmp_path / "cast", fields="year,n", cast="year=i2", rows="1:5")
    assert Readback(tmp_path / "cast").values("year").dtype == np.int16


@pytest.mark.parametrize("source", [".", "year=*/*.parquet", "**/*.parquet"])
def test_partitions_from_here(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions count for the current directory and below a wildcard too."""
    for year in (2023, 2024):
        write(tmp_path / "data" / f"year={year}" / "a.parquet", range(2))
    monkeypatch.chdir(tmp_path / "data")
    pack(source, tmp_path / "slab")
    assert Readback(tmp_path / "slab").values("year").tolist() == [2023, 2023, 2024, 2024]


def test_partitions_with_nulls_and_text(tmp_path: Path) -> None:
    """A partition without a value is null; numbers beside words are text."""
    for value in ("7", "__HIVE_DEFAULT_PARTITION__"):
        write(tmp_path / "a" / f"k={value}" / "p.parquet", range(2))
    pack(tmp_path / "a", tmp_path / "slab", nulls="k=mask")
    assert sorted(Readback(tmp_path / "slab").column("k"), key=str) == [7, 7, None, None]
    for value in ("7", "seven"):
        write(tmp_path / "b" / f"k={value}" / "p.parquet", range(2))
    pack(tmp_path / "b", tmp_path / "text")
    assert Readback(tmp_path / "text").column("k") == ["7", "7", "seven", "seven"]


def test_partition_that_the_file_holds_as_well(tmp_path: Path) -> None:
    """A column of the file wins over a partition of the same name."""
    write(tmp_path / "a" / "n=5" / "p.parquet", range(2))
    pack(tmp_path / "a", tmp_path / "slab")
    assert list(Readback(tmp_path / "slab").fields) == ["n", "t"]
    assert numbers(tmp_path / "slab") == [0, 1]


def test_order_of_columns_may_differ(tmp_path: Path) -> None:
    """Columns of several files are matched by name: values, sizes and null counts."""
    first = pa.table({"a": [1, 2], "b": ["x", "y"], "c": pa.array([1.0, 2.0])})
    second = pa.table({"c": pa.array([3.0, None]), "a": [3, 4], "b": ["z", "w"]})
    pq.write_table(first, tmp_path / "1.parquet")
    pq.write_table(second, tmp_path / "2.parquet")
    pack(tmp_path, tmp_path / "slab", nulls="c=mask")
    back = Readback(tmp_path / "slab")
    assert back.values("a").tolist() == [1, 2, 3, 4]
    assert back.column("b") == ["x", "y", "z", "w"]
    assert back.column("c") == [1.0, 2.0, 3.0, None]
    with pytest.raises(FieldslabError, match=r"1 null \(field c\)"):
        pack(tmp_path, tmp_path / "other")


DIFFERENT = [
    (pa.table({"a": [1.0], "b": ["x"]}), ["a: int64 there, double here"]),
    (pa.table({"a": [1]}), ["b: string there, missing here"]),
    (pa.table({"a": [1], "b": ["x"], "c": [1]}), ["c: only here"]),
    (pa.table({"A": [1], "b": ["x"]}), ["a: int64 there, missing here", "A: only here"]),
    (pa.table({"a": [1], "b": [b"x"]}), ["b: string there, binary here"]),
    (pa.table({"a": pa.array([1], pa.int32()), "b": [1]}), ["a: int64", "b: string"]),
]


# In the first file, columns that are sampled before files are compared, or have several leaves.
SAMPLED = [
    ({"image": [b"x"], "b": ["x"]}, {"c": [1]}, ["image: binary there, missing", "b: string"]),
    ({"image": [b"x"], "b": ["x"]}, {"image": [7]}, ["image: binary there, int64", "b: string"]),
    ({"a": [[[1]]], "b": ["x"]}, {"b": ["x"]}, ["a: list<element: list<element: int64>>"]),
    ({"a": [{"x": 1, "y": 2}]}, {"a": [1]}, ["a: struct<x: int64, y: int64> there, int64 here"]),
]


def assert_different(folder: Path, first: pa.Table, other: pa.Table, lines: list[str]) -> None:
    """The second file is refused, with these differences."""
    pq.write_table(first, folder / "1.parquet")
    pq.write_table(other, folder / "2.parquet")
    error = refused(folder, folder)
    assert isinstance(error, SourceInconsistent)
    assert error.context["file"] == str(folder / "2.parquet")
    assert "1.parquet" in str(error)
    assert all(line in str(error) for line in lines), error


@pytest.mark.parametrize(("other", "lines"), DIFFERENT)
def test_different_columns(tmp_path: Path, other: pa.Table, lines: list[str]) -> None:
    """Files whose columns differ are refused; the message shows every difference."""
    assert_different(tmp_path, pa.table({"a": [1], "b": ["x"]}), other, lines)


@pytest.mark.parametrize(("first", "other", "lines"), SAMPLED)
def test_different_columns_that_are_sampled(
    tmp_path: Path, first: dict[str, Any], other: dict[str, Any], lines: list[str]
) -> None:
    """So they are where the first file's columns are sampled before, or have several leaves."""
    assert_different(tmp_path, pa.table(first), pa.table(other), lines)


def test_common_columns_can_be_chosen(tmp_path: Path) -> None:
    """`--fields` packs the columns that all files have."""
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"b": [2.0], "a": [2], "c": [1]}), tmp_path / "2.parquet")
    pack(tmp_path, tmp_path / "slab", fields="a")
    assert Readback(tmp_path / "slab").values("a").tolist() == [1, 2]


SAME = [
    (pa.string(), pa.large_string()),
    (pa.string(), pa.string_view()),
    (pa.list_(pa.int8()), pa.large_list(pa.field("element", pa.int8(), nullable=False))),
    (pa.struct([("x", pa.int8())]), pa.struct([pa.field("x", pa.int8(), nullable=False)])),
    (pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.string())),
]


@pytest.mark.parametrize(("first", "two"), SAME)
def test_types_that_go_together(tmp_path: Path, first: pa.DataType, two: pa.DataType) -> None:
    """Widths of offsets and indices, and nullability inside, may differ between files."""
    value: Any = "x"
    if not pa.types.is_dictionary(first) and pa.types.is_nested(first):
        value = [1] if pa.types.is_list(first) else {"x": 1}
    for name, kind in (("1", first), ("2", two)):
        pq.write_table(pa.table({"a": pa.array([value], kind)}), tmp_path / f"{name}.parquet")
    pack(tmp_path, tmp_path / "slab")
    back = Readback(tmp_path / "slab")
    column = back.column(next(iter(back.fields)))
    assert len(column) == 2
    assert np.array_equal(column[0], column[1])


DAYS = [datetime.datetime(1999, 12, 31), None, datetime.datetime(2020, 2, 29, 1, 2, 3, 456789)]


LATER = [*DAYS, datetime.datetime(9999, 12, 31)]


TINY = [np.datetime64("2020-01-01T00:00:00.000000001", "ns")]


def int96(path: Path, values: list[Any], unit: str, *, spark: bool) -> Path:
    """A file with INT96 timestamps, by pyarrow or, as the footer has it, by Spark."""
    table = pa.table({"t": pa.array(values, pa.timestamp(unit)), "n": list(range(len(values)))})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, row_group_size=2)
    if spark:
        data = path.read_bytes()
        (writer,) = set(re.findall(rb"parquet-cpp-arrow version [0-9.]+", data))
        path.write_bytes(data.replace(writer, b"parquet-mr version 1.12.3".ljust(len(writer))))
    return path


@pytest.mark.parametrize("spark", [False, True])
def test_int96(tmp_path: Path, spark: bool) -> None:
    """Timestamps of Spark and Hive are right: nanoseconds, or microseconds if Spark wrote them."""
    path = int96(tmp_path / "a.parquet", LATER if spark else DAYS, "us", spark=spark)
    pack(path, tmp_path / "slab", nulls="t=mask")
    back = Readback(tmp_path / "slab")
    unit: Any = "us" if spark else "ns"
    assert back.fields["t"]["logical"] == {"type": "timestamp", "unit": unit}
    column = [None if t is None else np.datetime64(int(t), unit) for t in back.column("t")]
    expected = LATER if spark else DAYS
    assert column == [None if t is None else np.datetime64(t) for t in expected]


@pytest.mark.parametrize(
    ("values", "unit", "spark", "message"),
    [(LATER, "us", False, "1678 to 2262"), (DAYS + TINY, "ns", True, "below a microsecond")],
)
def test_int96_without_loss(
    tmp_path: Path, values: list[Any], unit: Any, spark: bool, message: str
) -> None:
    """A timestamp that the unit cannot hold is an error, where others wrap it or cut it off."""
    values = [None if value is None else np.datetime64(value, unit) for value in values]
    path = int96(tmp_path / "a.parquet", values, unit, spark=spark)
    error = refused(tmp_path, path, nulls="t=mask")
    assert message in str(error)
    assert error.context["field"] == "t"
    assert error.context["row"] == "1 of its row group"
    pack(path, tmp_path / "slab", exclude="t")
    assert numbers(tmp_path / "slab") == [0, 1, 2, 3]


def test_pandas(tmp_path: Path) -> None:
    """Frames that pandas wrote: a named index is a column, a range is not."""
    letters = pd.Categorical(["b", "a"], ["a", "b"], ordered=True)
    frame = pd.DataFrame({"x": [1.5, 2.5], "c": letters}, pd.Index(["r1", "r2"], name="key"))
    frame.to_parquet(tmp_path / "named.parquet")
    frame.reset_index(drop=True).to_parquet(tmp_path / "range.parquet")
    pack(tmp_path / "named.parquet", tmp_path / "slab")
    back = Readback(tmp_path / "slab")
    assert list(back.fields) == ["x", "c", "key"]
    assert (back.column("c"), back.categories("c")) == (["b", "a"], ["a", "b"])
    assert back.fields["c"]["attributes"] == {"ordered": True}
    pack(tmp_path / "range.parquet", tmp_path / "other")
    assert list(Readback(tmp_path / "other").fields) == ["x", "c"]
    pack(frame, tmp_path / "memory")
    assert Readback(tmp_path / "memory").column("c") == ["b", "a"]


def test_metadata_of_the_file(tmp_path: Path) -> None:
    """The file's own key-value metadata is kept; Arrow's, pandas' and HuggingFace's is not."""
    field = pa.field("a", pa.int8(), metadata={"unit": "m"})
    schema = pa.schema([field], {"origin": "é", "pandas": "{}"})
    pq.write_table(pa.table({"a": [1]}).cast(schema), tmp_path / "a.parquet")
    pack(tmp_path / "a.parquet", tmp_path / "slab")
    back = Readback(tmp_path / "slab")
    assert back.manifest["attributes"] == {"origin": "é"}
    assert back.fields["a"]["attributes"] == {"unit": "m"}


def test_rows_and_limit(tmp_path: Path) -> None:
    """`--rows` and `--limit` count over row groups and files."""
    for index in range(3):
        write(tmp_path / f"{index}.parquet", range(10 * index, 10 * index + 10), row_group_size=4)
    every = list(range(30))
    for rows, limit in (
        ("0:30", None),
        ("3:5", None),
        ("9:11", None),
        ("4:8", None),
        (":7", None),
        ("27:", None),
        ("5:100", None),
        (None, 0),
        (None, 1),
        (None, 13),
        ("8:20", 5),
        ("8:10", 5),
        ("7:7", None),
    ):
        first, last = (rows or ":").split(":")
        expected = every[int(first or 0) : int(last) if last else None][:limit]
        pack(tmp_path, tmp_path / "slab", rows=rows, limit=limit, force=True, shard_size=1)
        assert numbers(tmp_path / "slab") == expected
    with pytest.raises(UsageError, match="after the last row"):
        pack(tmp_path, tmp_path / "other", rows="31:40")


def test_wide_tables(tmp_path: Path) -> None:
    """Two thousand columns, some of them text and some nested, are packed without ado."""
    columns: dict[str, Any] = {f"n{index}": [index, index + 1, index + 2] for index in range(1700)}
    columns |= {f"t{index}": ["a", f"{index}", "c"] for index in range(200)}
    columns |= {f"l{index}": [[[index]], [[1]], [[2]]] for index in range(100)}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=2)
    pack(tmp_path / "a.parquet", tmp_path / "slab")
    back = Readback(tmp_path / "slab")
    assert list(back.fields) == list(columns)
    for name in ("n0", "n1699", "t7", "l99"):
        column = back.column(name)
        assert [row.tolist() if name[0] != "t" else row for row in column] == columns[name]
