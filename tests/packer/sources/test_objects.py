"""Datasets, columns and rows in memory as sources, and streams that were read before."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import torch
from tests.packer.readback import Readback
from tests.packer.sources.parquet.thrift import group, int64, write

from fieldslab.packer import pack, verify
from fieldslab.schemas.errors import (
    FieldslabError,
    NullsFound,
    SourceInconsistent,
    SourceUnreadable,
    SourceUnsupported,
    UsageError,
)

TABLE = pa.table(
    {
        "n": list(range(3000)),
        "t": [f"row {index}" for index in range(3000)],
        "l": [[index] * (index % 3) for index in range(3000)],
    }
)


def test_datasets_of_arrow(tmp_path: Path) -> None:
    """A dataset of pyarrow, and a scan of it, make the slab of their table; filters hold."""
    pq.write_table(TABLE, tmp_path / "a.parquet", row_group_size=700)
    dataset = ds.dataset(tmp_path / "a.parquet")
    plain = pack(TABLE, tmp_path / "plain")
    for index, source in enumerate((dataset, dataset.scanner(), ds.dataset(TABLE))):
        packed = pack(source, tmp_path / str(index))
        assert packed.manifest.id == plain.manifest.id
    assert verify(tmp_path / "plain", against=dataset).ok
    pack(dataset.filter(ds.field("n") < 10), tmp_path / "few")
    assert Readback(tmp_path / "few").values("n").tolist() == list(range(10))


def test_datasets_that_lose_rows(tmp_path: Path) -> None:
    """A dataset is held to the rows that the footers of its files promise."""
    schema = [group("schema", 1), int64("x")]
    path = write(tmp_path / "a.parquet", schema, 5, {"x": [1, 2]})
    with pytest.raises((SourceInconsistent, SourceUnreadable)):
        pack(ds.dataset(path), tmp_path / "slab")
    assert not (tmp_path / "slab").exists()


def test_columns(tmp_path: Path) -> None:
    """A dict of columns is packed: arrays of numpy with their shapes, tensors, series, lists."""
    rng = np.random.default_rng(1)
    columns: dict[str, Any] = {
        "x": rng.normal(size=(20, 2, 3)).astype("f4"),
        "b": rng.integers(0, 2, 20).astype(bool),
        "h": rng.normal(size=20).astype("f2"),
        "c": rng.normal(size=(20, 2)).astype("c8"),
        "z": np.arange(20) * (1 + 2j),
        "big": np.arange(20, dtype=">i4"),
        "strided": np.arange(80).reshape(20, 4)[:, ::2],
        "when": np.arange(20).astype("M8[s]"),
        "u": np.arange(20, dtype="u8") + 2**63,
    }
    others = {
        "tensor": torch.arange(40).reshape(20, 2),
        "series": pd.Series(range(20)),
        "list": [[index] * (index % 3) for index in range(20)],
        "text": [f"row {index}" for index in range(20)],
        "arrow": pa.array(range(20)),
        "chunked": pa.chunked_array([range(10), range(10, 20)]),
        "arrays": [np.full((2, 2), index, "f4") for index in range(20)],
        "uneven": [np.arange(index % 3) for index in range(20)],
    }
    pack(columns | others, tmp_path / "slab")
    back = Readback(tmp_path / "slab")
    assert list(back.fields) == [*columns, *others]
    for name, values in columns.items():
        stored = back.values(name)
        expected = values.astype("i8") if values.dtype.kind == "M" else values
        assert stored.dtype == expected.dtype.newbyteorder("=")
        assert stored.tobytes() == expected.astype(stored.dtype).tobytes()
        assert stored.shape == expected.shape
    assert back.values("tensor").tolist() == others["tensor"].tolist()
    for name in ("series", "arrow", "chunked"):
        assert back.values(name).tolist() == list(range(20))
    assert back.column("text") == others["text"]
    assert back.values("arrays").tolist() == [[[index, index]] * 2 for index in range(20)]
    assert [row.tolist() for row in back.column("list")] == others["list"]
    assert [row.tolist() for row in back.column("uneven")] == [
        [*range(index % 3)] for index in range(20)
    ]
    assert verify(tmp_path / "slab", against=columns | others).ok


def test_masked_arrays_have_nulls(tmp_path: Path) -> None:
    """What a masked array hides is null, and needs a word like any null."""
    masked = np.ma.array([1, 2, 3], mask=[False, True, False])
    with pytest.raises(NullsFound):
        pack({"x": masked}, tmp_path / "slab")
    pack({"x": masked}, tmp_path / "slab", nulls={"x": -1})
    assert Readback(tmp_path / "slab").values("x").tolist() == [1, -1, 3]


def test_rows(tmp_path: Path) -> None:
    """A list of dicts is packed; what one of them lacks is a null, never lost."""
    rows = [{"a": index, "x": np.full((2, 2), index), "t": f"row {index}"} for index in range(30)]
    pack(rows, tmp_path / "slab")
    back = Readback(tmp_path / "slab")
    assert back.values("a").tolist() == list(range(30))
    assert back.values("x").tolist() == [[[index, index]] * 2 for index in range(30)]
    assert back.column("t") == [f"row {index}" for index in range(30)]
    with pytest.raises(NullsFound) as caught:
        pack([*rows, {"a": 30, "x": rows[0]["x"], "t": "", "late": 1}], tmp_path / "other")
    assert caught.value.context["field"] == "late"


DATA = datasets.Dataset.from_dict({"a": [1, 2]})
WRONG: list[tuple[Any, type[FieldslabError], str]] = [
    (datasets.DatasetDict({"train": DATA, "test": DATA}), UsageError, r"pack\(dataset\['train'\]"),
    ({"train": pd.DataFrame({"a": [1]})}, UsageError, "Choose a split"),
    ({"train": pa.table({"a": [1]})}, UsageError, "Choose a split"),
    ({"a": [1], "b": [1, 2]}, UsageError, "a: 1, b: 2"),
    ({}, SourceUnsupported, "no columns"),
    ([], UsageError, "Pass paths, or rows as dicts"),
    ([{"a": 1}, 3], UsageError, "row 1, expected 'a dict', found int.*one dict for each row"),
    ({"a": "text"}, UsageError, "not a column"),
    ({"a": 1}, UsageError, "not a column"),
    ({1: [1]}, UsageError, "a column name is not text"),
    ({"a": np.array([object()])}, UsageError, "cannot make a column"),
    ({"a": np.zeros((2, 0))}, UsageError, "has length 0"),
    ({"a": np.array(1)}, UsageError, "single value"),
    ({"a": np.zeros(2, "i4,f4")}, UsageError, "cannot make a column"),
    ({"a": np.ma.zeros((2, 2))}, UsageError, "masked"),
    (iter([{"a": 1}]), UsageError, "from_pylist"),
    (np.zeros((2, 3)), UsageError, "found ndarray"),
]


@pytest.mark.parametrize(("source", "error", "message"), WRONG)
def test_what_no_column_can_be_made_of(
    tmp_path: Path, source: Any, error: type[FieldslabError], message: str
) -> None:
    """Several splits, and what is no column, are errors that say what to do; nothing is left."""
    with pytest.raises(error, match=message):
        pack(source, tmp_path / "slab")
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_was_read(tmp_path: Path) -> None:
    """A stream that was read before has no rows: pack warns, and verify says what to do."""
    pack(TABLE, tmp_path / "slab")
    reader = TABLE.to_reader()
    assert verify(tmp_path / "slab", against=reader).ok
    report = verify(tmp_path / "slab", against=reader)
    assert "make a new one" in report.problems[0].problem
    packed = pack(reader, tmp_path / "empty")
    assert packed.manifest.rows == 0
    assert "read only once" in packed.warnings[0]
    assert not pack(TABLE.slice(0, 0), tmp_path / "none").warnings
