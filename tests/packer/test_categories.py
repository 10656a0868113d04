"""Categories: one list for the whole slab, in order of first appearance."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.packer.readback import Readback

from fieldslab.packer import pack
from fieldslab.packer.convert.categories import CategoryIndex
from fieldslab.schemas.errors import FieldslabError, SourceInconsistent


def encoded(codes: list[int | None], words: list[Any], **options: Any) -> pa.Array:
    """A dictionary array."""
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(words), **options)


def groups(path: Path, parts: list[pa.Array]) -> Path:
    """A Parquet file with one row group for each array, which keeps its own dictionary."""
    schema = pa.schema([("c", parts[0].type)])
    with pq.ParquetWriter(path, schema) as writer:
        for part in parts:
            writer.write_table(pa.table([part], schema=schema))
    return path


DIFFERENT = [
    encoded([0, 1, 0], ["b", "a"]),
    encoded([1, 0, 2], ["c", "a", "d"]),
    encoded([0, 0], ["e"]),
]
VALUES = ["b", "a", "b", "a", "c", "d", "e", "e"]


@pytest.mark.parametrize("how", ["parquet", "files", "arrow"])
def test_dictionaries_that_differ(tmp_path: Path, how: str) -> None:
    """Row groups, files and batches with dictionaries of their own share one list of categories."""
    source: Any = groups(tmp_path / "a.parquet", DIFFERENT)
    if how == "files":
        (tmp_path / "parts").mkdir()
        for index, part in enumerate(DIFFERENT):
            groups(tmp_path / "parts" / f"{index}.parquet", [part])
        source = tmp_path / "parts"
    if how == "arrow":
        source = iter([pa.RecordBatch.from_arrays([part], ["c"]) for part in DIFFERENT])
    pack(source, tmp_path / "slab", shard_size=1)
    back = Readback(tmp_path / "slab")
    assert back.column("c") == VALUES
    assert set(back.categories("c")) == set("abcde")
    assert back.categories("c")[:2] == ["b", "a"]


def test_codes_do_not_depend_on_shards_or_processes(tmp_path: Path) -> None:
    """The same list and codes come out, however the rows are cut and packed."""
    source = groups(tmp_path / "a.parquet", DIFFERENT * 3)
    whole = pack(source, tmp_path / "whole")
    cut = pack(source, tmp_path / "cut", shard_size=1)
    jobs = pack(source, tmp_path / "jobs", shard_size=1, jobs=2)
    assert len(cut.manifest.shards) > len(whole.manifest.shards)
    assert cut.manifest.id == jobs.manifest.id
    assert (
        Readback(tmp_path / "whole").values("c") == Readback(tmp_path / "cut").values("c")
    ).all()


def test_unused_categories_are_kept(tmp_path: Path) -> None:
    """Categories that no row has are part of the type: pandas and polars rely on them."""
    pack(pa.table({"c": encoded([2, 2], ["low", "mid", "high"])}), tmp_path / "slab")
    back = Readback(tmp_path / "slab")
    assert (back.categories("c"), back.values("c").tolist()) == (["low", "mid", "high"], [2, 2])


def test_nulls_and_repeated_words_in_dictionaries(tmp_path: Path) -> None:
    """A null in the dictionary is a null; a word that stands there twice is one category."""
    array = encoded([0, 1, 2, None, 3], ["a", None, "b", "a"])
    pack(pa.table({"c": array}), tmp_path / "slab", nulls="c=mask")
    back = Readback(tmp_path / "slab")
    assert back.column("c") == ["a", None, "b", None, "a"]
    assert back.categories("c") == ["a", "b"]
    assert back.values("c").tolist() == [0, -1, 1, -1, 0]
    assert back.manifest["shards"][0]["nulls"] == [2]
    with pytest.raises(FieldslabError, match=r"at least 2 nulls .*row 1\)"):
        pack(pa.table({"c": array}), tmp_path / "other")
    with pytest.raises(FieldslabError, match="at least 1 null "):
        pack(pa.table({"c": encoded([0, 1], ["a", None])}), tmp_path / "other")


def test_many_categories(tmp_path: Path) -> None:
    """Many or long categories go to a table of their own."""
    words = [f"category {index} ä" for index in range(3000)]
    codes = np.random.default_rng(1).integers(0, 3000, 9000)
    array = pa.array([words[code] for code in codes]).dictionary_encode()
    for name, column in (("many", array), ("long", encoded([0, 1], ["x" * 70_000, "y"]))):
        pq.write_table(pa.table({"c": column}), tmp_path / f"{name}.parquet", row_group_size=1000)
        pack(tmp_path / f"{name}.parquet", tmp_path / name, shard_size=5000)
        back = Readback(tmp_path / name)
        assert "table" in back.fields["c"]
        assert back.column("c") == column.to_pylist()


ORDERED = ["low", "mid", "high"]


def test_ordered(tmp_path: Path) -> None:
    """The order of ordered categories is kept where all dictionaries agree on it."""
    parts = [encoded([1, 0], ORDERED, ordered=True), encoded([2, 0], ORDERED, ordered=True)]
    pack(pa.table({"c": pa.chunked_array(parts)}), tmp_path / "slab")
    back = Readback(tmp_path / "slab")
    assert back.categories("c") == ORDERED
    assert back.fields["c"]["attributes"] == {"ordered": True}
    growing = [encoded([0], ["low"], ordered=True), encoded([1], ["low", "mid"], ordered=True)]
    pack(pa.table({"c": pa.chunked_array(growing)}), tmp_path / "growing")
    assert Readback(tmp_path / "growing").categories("c") == ["low", "mid"]


def test_ordered_in_contradiction(tmp_path: Path) -> None:
    """Ordered categories that come in another order further down are refused, not reordered."""
    parts = [encoded([0, 1], ["low", "high"], ordered=True), encoded([0], ORDERED, ordered=True)]
    batches = [pa.RecordBatch.from_arrays([part], ["c"]) for part in parts]
    with pytest.raises(SourceInconsistent, match="order") as caught:
        pack(iter(batches), tmp_path / "slab")
    assert caught.value.context == {"field": "c", "row": 2}


def test_text_beside_dictionaries(tmp_path: Path) -> None:
    """Text that is not UTF-8 in a dictionary is an error."""
    bad = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff")]
    )
    array = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), bad)
    batch = pa.RecordBatch.from_arrays([array], ["c"])
    with pytest.raises(FieldslabError):
        pack(iter([batch]), tmp_path / "slab")


def test_index() -> None:
    """An index hands out codes in order of appearance, and remembers them."""
    index = CategoryIndex(["z"])
    assert index.encode(encoded([0, 1, 0], ["y", "z"])).tolist() == [1, 0, 1]
    assert index.encode(pa.array(["x", "y"])).tolist() == [2, 1]
    assert index.encode(encoded([], ["w"])).tolist() == []
    assert index.values.to_pylist() == ["z", "y", "x", "w"]
