"""Rows of a slab as tables of Arrow, Polars and pandas, and as streams."""

from pathlib import Path

import datasets
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from tests.golden.make import FOLDER, SLABS
from tests.kinds import make_table
from tests.naming import case
from tests.slabs import array_path, flip

from fieldslab.packer import pack
from fieldslab.reader import Slab, open_slab
from fieldslab.schemas.errors import DamagedArray, RowOutOfRange, UnknownField, UsageError
from fieldslab.schemas.images import PIXELS

ROOT = Path(__file__).parents[2]
TABLE = make_table()


@pytest.fixture(scope="module")
def slab(tmp_path_factory: pytest.TempPathFactory) -> Slab:
    """A slab of several shards with fields of every kind."""
    path = tmp_path_factory.mktemp("slabs") / "x.slab"
    pack(TABLE, path, nulls="*=mask", shard_size="4K")
    return open_slab(path)


def test_a_table_is_what_was_packed(slab: Slab, tmp_path: Path) -> None:
    """Every field has the type and the values that were packed, and packs to the same slab."""
    table = slab.to_arrow()
    table.validate(full=True)
    for name in TABLE.column_names:
        with case(name):
            assert table[name].type == TABLE[name].type
            assert table[name].equals(TABLE[name])
    pack(table, tmp_path / "again.slab", nulls="*=mask", shard_size="4K")
    assert open_slab(tmp_path / "again.slab").manifest.id == slab.manifest.id


def test_rows_and_fields_are_chosen(slab: Slab) -> None:
    """Rows come in the order given, of a view as of a slab; fields, too."""
    whole = slab.to_arrow()
    table = slab.to_arrow([3, -1, 3], ["text", "int8"])
    assert table.equals(whole.take([3, len(TABLE) - 1, 3]).select(["text", "int8"]))
    assert slab[::-3].to_arrow().equals(whole.take(np.arange(len(TABLE))[::-3]))
    assert slab[:0].to_arrow().schema == whole.schema
    assert (slab + slab).to_arrow().num_rows == 2 * len(TABLE)
    assert slab.cast({"float64": "bfloat16"}).to_arrow([0], ["float64"]).schema[0].type == "float"
    with pytest.raises(RowOutOfRange):
        slab.to_arrow([len(TABLE)])
    with pytest.raises(UnknownField):
        slab.to_arrow(fields=["none"])


def test_other_libraries_read_a_slab(slab: Slab) -> None:
    """A slab is read as a stream of Arrow, and becomes frames and data sets."""
    assert pa.table(slab).equals(slab.to_arrow())
    numbers = TABLE["int64"].to_pylist()
    assert pl.DataFrame(slab)["int64"].to_list() == slab.to_polars()["int64"].to_list() == numbers
    assert slab.to_pandas()["int64"].tolist() == numbers
    plain = pa.table(slab).drop(["float16"])  # which DuckDB does not have
    counted = duckdb.from_arrow(plain).sum("int64").fetchall()
    assert counted == [(sum(numbers),)]
    dataset = datasets.Dataset(slab.to_arrow(fields=["label", "text"]))
    assert dataset.features["label"].names == ["a", "b", "c"]
    assert dataset[4]["text"] == TABLE["text"][4].as_py()


def test_images_are_their_files(tmp_path: Path) -> None:
    """Encoded images come as they are stored; images that are stored as pixels are refused."""
    photos = ROOT / "examples" / "photos.parquet"
    path = tmp_path / "encoded.slab"
    pack(photos, path, rows="0:3")
    encoded = open_slab(path)
    assert encoded.to_arrow()["image"].to_pylist() == encoded["image"][:].tolist()
    pack(photos, tmp_path / "pixels.slab", rows="0:3", image={"image": "rgb"})
    with pytest.raises(UsageError, match="stored as pixels"):
        open_slab(tmp_path / "pixels.slab").to_arrow()


@pytest.mark.parametrize("name", sorted(SLABS))
def test_released_slabs_become_tables(name: str) -> None:
    """Every released slab has a type in Arrow for all fields but pixels."""
    slab = open_slab(FOLDER / f"{name}.slab")
    fields = [
        field.name
        for field in slab.fields.values()
        if field.kind != "image" or (field.codec not in PIXELS and not field.coded)
    ]
    table = slab.to_arrow(fields=fields)
    table.validate(full=True)
    assert not fields or table.num_rows == len(slab)


def test_rows_of_one_shard_share_the_mapped_files(tmp_path: Path) -> None:
    """Plain values are in place, whole and verified, and stay when the slab is gone."""
    table = pa.table(
        {
            "x": np.arange(6000),
            "y": pa.array([None if row % 3 else row / 2 for row in range(6000)]),
            "text": [None if row % 5 == 0 else f"row {row}" for row in range(6000)],
            "moment": pa.array(range(6000), pa.timestamp("us", "UTC")),
        }
    )
    path = tmp_path / "a.slab"
    pack(table, path, nulls="*=mask", shard_size="60K")
    slab = open_slab(path)
    view = slab[10:-7]
    read = view.to_arrow()
    assert read.equals(table.slice(10, 5983).cast(read.schema))
    assert len(view.manifest.shards) == read["x"].num_chunks > 1
    low = slab.storage.load_field("x").values[0].ctypes.data
    assert read["x"].chunk(0).buffers()[1].address == low + 80
    del slab, view
    assert read.equals(table.slice(10, 5983).cast(read.schema))
    assert list(open_slab(path).where("y > 2990 and text == 'row 5997'").view) == [5997]
    flip(array_path(path, "text", shard=1), 100)
    damaged = open_slab(path)
    assert damaged[:10].to_arrow().num_rows == 10
    with pytest.raises(DamagedArray, match="digest"):
        damaged.to_arrow()
