"""`--stack`: many columns of numbers become one field."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.packer.readback import Readback

from fieldslab.packer import pack
from fieldslab.schemas.errors import (
    FieldslabError,
    NullsFound,
    SourceInconsistent,
    SourceUnsupported,
    UnknownField,
    UsageError,
)

VALUES = np.random.default_rng(5).normal(size=(50, 7)).astype(np.float32)
VALUES[3, 2] = np.nan
NAMES = ["f10", "f2", "f1", "g", "f3", "f20", "f0"]


def table() -> pa.Table:
    """Columns of floats whose names do not sort as they stand."""
    return pa.table({name: VALUES[:, index] for index, name in enumerate(NAMES)})


def refused(tmp_path: Path, source: Any, **options: Any) -> FieldslabError:
    """The error of a pack."""
    with pytest.raises(FieldslabError) as caught:
        pack(source, tmp_path / "slab", **options)
    assert not (tmp_path / "slab").exists()
    return caught.value


@pytest.mark.parametrize("in_memory", [True, False], ids=["arrow", "parquet"])
def test_order_is_that_of_the_source(tmp_path: Path, in_memory: bool) -> None:
    """Columns are stacked as they stand in the source, and the field takes the first's place."""
    source: Any = table() if in_memory else tmp_path / "a.parquet"
    if not in_memory:
        pq.write_table(table(), source, row_group_size=13)
    pack(source, tmp_path / "slab", stack="x=f*")
    back = Readback(tmp_path / "slab")
    assert list(back.fields) == ["x", "g"]
    assert back.fields["x"]["shape"] == [6]
    assert back.values("x").tobytes() == np.delete(VALUES, 3, axis=1).tobytes()


def test_many_columns(tmp_path: Path) -> None:
    """Blocks of rows and columns of any size come out right."""
    for rows, columns in ((1, 1), (1, 300), (300, 1), (257, 129), (64, 64), (2500, 3)):
        values = np.arange(rows * columns, dtype=np.int32).reshape(rows, columns)
        table = pa.table({f"c{index}": values[:, index] for index in range(columns)})
        pack(table, tmp_path / "slab", stack="x=c*", force=True)
        assert (Readback(tmp_path / "slab").values("x") == values).all()


def test_casts_and_values(tmp_path: Path) -> None:
    """`--cast` and `--nulls` with the pattern of the stack go for every column."""
    table = pa.table({"f1": [1, None], "f2": [0.5, 1.5], "g": [True, False]})
    pack(table, tmp_path / "slab", stack="x=[fg]*", cast="[fg]*=f4", nulls="[fg]*=-1")
    back = Readback(tmp_path / "slab")
    assert back.values("x").tolist() == [[1, 0.5, 1], [-1, 1.5, 0]]
    assert back.values("x").dtype == np.float32


@pytest.mark.parametrize(
    ("columns", "dtype"),
    [
        ({"a": pa.array([1], pa.int8()), "b": pa.array([2], pa.int8())}, "int8"),
        ({"a": [True], "b": [False]}, "bool"),
        ({"a": pa.array([1], pa.timestamp("ms")), "b": pa.array([2], pa.timestamp("ms"))}, "int64"),
        ({"a": pa.array([1, 1]).dictionary_encode(), "b": pa.array([2, 2])}, "int64"),
        ({"a": pa.RunEndEncodedArray.from_arrays([2], [7]), "b": pa.array([2, 2])}, "int64"),
        ({"s": pa.array([{"x": 1, "y": 2}])}, "int64"),
    ],
)
def test_kinds_of_numbers(tmp_path: Path, columns: dict[str, Any], dtype: str) -> None:
    """Whatever is one number a row can be stacked."""
    pack(pa.table(columns), tmp_path / "slab", stack="x=*")
    back = Readback(tmp_path / "slab")
    assert (back.fields["x"]["dtype"], back.fields["x"]["shape"]) == (dtype, [2])


def test_two_stacks(tmp_path: Path) -> None:
    """Several stacks stand side by side."""
    pack(table(), tmp_path / "slab", stack={"low": "f[0-3]", "high": "f?0"})
    back = Readback(tmp_path / "slab")
    assert list(back.fields) == ["high", "low", "g"]
    assert (back.values("high") == VALUES[:, [0, 5]]).all()


@pytest.mark.parametrize(
    ("columns", "options", "error"),
    [
        ({"a": [1], "b": [1.0]}, {"stack": "x=*"}, SourceInconsistent),
        (
            {"a": pa.array([1], pa.timestamp("s")), "b": pa.array([1], pa.timestamp("ms"))},
            {"stack": "x=*"},
            SourceInconsistent,
        ),
        ({"a": ["t"], "b": [1]}, {"stack": "x=*"}, SourceUnsupported),
        ({"a": [[1]], "b": [1]}, {"stack": "x=*"}, SourceUnsupported),
        ({"a": [b"t"], "b": [1]}, {"stack": "x=*"}, SourceUnsupported),
        ({"a": pa.array([b"ab"], pa.binary(2))}, {"stack": "x=*"}, SourceUnsupported),
        ({"a": [1], "b": [1]}, {"stack": "x=c*"}, UnknownField),
        ({"a": [1], "b": [1]}, {"stack": {"x": "*", "y": "b"}}, UsageError),
        ({"a": [1], "b": [1]}, {"stack": "a=b"}, UsageError),
        ({"a": [1], "b": [1]}, {"stack": "x=*", "cast": "a=f4"}, UsageError),
        ({"a": [1], "b": [1]}, {"stack": "x=*", "nulls": "a=0"}, UsageError),
        ({"a": [1], "b": [1]}, {"stack": "x=*", "rename": "a=c"}, UsageError),
        ({"a": [1], "b": [1]}, {"stack": "x=*", "tensor": "a=i8[1]"}, SourceUnsupported),
    ],
)
def test_what_does_not_stack(
    tmp_path: Path, columns: dict[str, Any], options: dict[str, Any], error: type[Exception]
) -> None:
    """Columns of different types, or asked for twice, are refused."""
    actual = refused(tmp_path, pa.table(columns), **options)
    assert type(actual) is error
    assert "stack" in str(actual) or error is not SourceUnsupported


@pytest.mark.parametrize("in_memory", [True, False], ids=["arrow", "parquet"])
@pytest.mark.parametrize("nulls", [{}, {"*": "mask"}], ids=["default", "mask"])
def test_nulls(tmp_path: Path, in_memory: bool, nulls: dict[str, str]) -> None:
    """A null in a stack is an error that names its column; a mask cannot help."""
    rows = pa.table({"a": [1, 2, 3], "b": [1, None, 3], "c": [1, 2, 3]})
    source: Any = rows if in_memory else tmp_path / "a.parquet"
    if not in_memory:
        pq.write_table(rows, source)
    error = refused(tmp_path, source, stack="x=*", nulls=nulls)
    assert isinstance(error, NullsFound)
    assert error.context["field"] == "b"
    assert "=mask" not in str(error)
    if in_memory:
        assert error.context["row"] == 1
    pack(table(), tmp_path / "other", stack="x=*", nulls="*=mask")
