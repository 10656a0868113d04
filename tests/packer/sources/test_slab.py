"""An open slab as a source."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from tests.packer.readback import Readback

from fieldslab.packer import pack, verify
from fieldslab.reader import open_slab
from fieldslab.schemas.errors import NullsFound, UsageError

ROWS = 40


def table(folder: Path) -> pa.Table:
    """Every kind of field, with nulls and shapes."""
    rng = np.random.default_rng(2)
    Image.fromarray(rng.integers(0, 255, (16, 16, 3), np.uint8)).save(folder / "a.jpg")
    numbers = rng.normal(size=(ROWS, 2, 3)).astype("f4")
    return pa.table(
        {
            "n": pa.array(range(ROWS), pa.uint16()),
            "flag": [row % 3 == 0 for row in range(ROWS)],
            "grid": pa.FixedShapeTensorArray.from_numpy_ndarray(numbers),
            "text": [f"row {row}" * (row % 4) for row in range(ROWS)],
            "raw": [b"\1" * (row % 5) for row in range(ROWS)],
            "list": [[row] * (row % 3) for row in range(ROWS)],
            "class": pa.array(["cat", "dog", "ox", "dog"] * (ROWS // 4)).dictionary_encode(),
            "when": pa.array(range(ROWS), pa.timestamp("us", "UTC")),
            "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(["[1]"] * ROWS)),
            "image": [(folder / "a.jpg").read_bytes()] * ROWS,
            **{
                f"null {name}": [None if row % 7 == 0 else value for row in range(ROWS)]
                for name, value in {"n": 5, "text": "x", "list": [1, 2]}.items()
            },
            "null class": pa.array([None, "a"] * (ROWS // 2)).dictionary_encode(),
        }
    )


def test_a_slab_is_packed_again(tmp_path: Path) -> None:
    """A slab packed from an open slab has the same fields and values, and agrees with it."""
    options: Any = {"nulls": {"null *": "mask"}, "shard_size": 1000}
    first = pack(table(tmp_path), tmp_path / "one", **options)
    assert len(first.manifest.shards) > 2
    slab = open_slab(tmp_path / "one")
    second = pack(slab, tmp_path / "two", **options)
    for field, two in zip(first.manifest.fields, second.manifest.fields, strict=True):
        same = ("name", "kind", "dtype", "shape", "nullable", "logical", "categories", "codec")
        assert [getattr(field, name) for name in same] == [getattr(two, name) for name in same]
    again = open_slab(tmp_path / "two")
    for row in range(ROWS):
        assert {name: str(value) for name, value in again[row].items()} == {
            name: str(value) for name, value in slab[row].items()
        }
    assert verify(tmp_path / "two", against=slab).ok
    assert pack(slab, tmp_path / "three", jobs=2, **options).manifest.id == second.manifest.id


def test_nulls_of_a_slab_stay_masked(tmp_path: Path) -> None:
    """Fields with a validity array keep it unless an option speaks of them; the manifest says so.

    So the copy agrees with what the first slab was packed from, too.
    """
    source = {"x": [1, None, 3, 4], "y": [None, "b", "c", "d"]}
    pack(source, tmp_path / "one", nulls={"*": "mask"})
    slab = open_slab(tmp_path / "one")
    pack(slab, tmp_path / "two")
    assert [row["x"] for row in open_slab(tmp_path / "two")] == [1, None, 3, 4]
    assert verify(tmp_path / "two", against=source).ok
    pack(slab[:2], tmp_path / "part", fields=["y"], nulls={"y": "none"})
    assert [row["y"] for row in open_slab(tmp_path / "part")] == ["none", "b"]
    pack(slab[1:], tmp_path / "x", fields=["x"])
    assert verify(tmp_path / "x", against={"x": [None, 3, 4]}).ok
    with pytest.raises(NullsFound):
        pack(slab, tmp_path / "three", nulls={"x": "error"})


def test_parts_of_a_slab(tmp_path: Path) -> None:
    """A slice, and some of the fields, are packed alone; a slice with a step is refused."""
    pack({"x": np.arange(ROWS), "y": np.arange(ROWS)}, tmp_path / "one", shard_size=100)
    slab = open_slab(tmp_path / "one")
    pack(slab[7:31], tmp_path / "two", fields="x", rows="2:9")
    back = Readback(tmp_path / "two")
    assert list(back.fields) == ["x"]
    assert back.values("x").tolist() == list(range(9, 16))
    for view in (slab[::2], slab.where("x > 50")):
        with pytest.raises(UsageError, match=r"not consecutive.*repack"):
            pack(view, tmp_path / "three")
    with pytest.raises(UsageError, match=r"one slab.*repack"):
        pack(slab + slab, tmp_path / "three")
