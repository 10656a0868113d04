"""Layout: which files a slab has, and what the manifest says about each."""

import numpy as np

from fieldslab.schemas import layout
from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.fields import CategoryTable, Field
from fieldslab.schemas.manifest import Manifest, Provenance, Shard, create_manifest

ROOT = "0" * 64
MADE = Provenance(tool="tests", time="", plan="")
FIELDS = (
    Field(name="x", stem="00-x", kind="fixed", dtype="float32", shape=(3, 2), nullable=True),
    Field(name="r", stem="01-r", kind="ragged", dtype="int16", shape=(2,)),
    Field(name="i", stem="02-i", kind="image", codec="jpeg", index=8, nullable=True),
    Field(name="c", stem="03-c", kind="categorical", dtype="int32", table=CategoryTable(4, 9)),
    Field(name="d", stem="04-d", kind="categorical", dtype="int32", table=CategoryTable(0, 0)),
)
SHARDS = (Shard(100_000, (9, 200_000), (3, 0), ROOT, (77,)), Shard(2, (0, 0), (0, 2), ROOT, (0,)))


def manifest() -> Manifest:
    """A manifest of two shards, of which one has nulls in one field, one in another."""
    return create_manifest(MADE, rows=100_002, fields=FIELDS, shards=SHARDS, tables=ROOT)


def test_names_and_shapes() -> None:
    """Files come in field order, with exact shapes; `valid` is there only for a shard's nulls."""
    actual = [
        (file.name, file.dtype.str, file.shape) for file in layout.list_shard_files(manifest(), 0)
    ]
    assert actual == [
        ("00-x.values.npy", "<f4", (100_000, 3, 2)),
        ("00-x.valid.npy", "|b1", (100_000,)),
        ("01-r.values.npy", "<i2", (9, 2)),
        ("01-r.offsets.npy", "<u8", (100_001,)),
        ("02-i.values.npy", "|u1", (200_000,)),
        ("02-i.offsets.npy", "<u8", (100_001,)),
        ("02-i.size.npy", "<u4", (100_000, 2)),
        ("02-i.points.values.npy", "<u2", (77, 5)),
        ("02-i.points.offsets.npy", "<u8", (100_001,)),
        ("03-c.values.npy", "<i4", (100_000,)),
        ("04-d.values.npy", "<i4", (100_000,)),
    ]
    other = [file.name for file in layout.list_shard_files(manifest(), 1)]
    assert "00-x.valid.npy" not in other
    assert "02-i.valid.npy" in other


def test_items_of_all_shards_at_once() -> None:
    """Counted for all shards at once, arrays have the items that each shard's list gives them."""
    counted = layout.count_shard_items(manifest())
    for index in range(len(SHARDS)):
        files = layout.list_shard_files(manifest(), index)
        assert {key: items[index] for key, items in counted.items() if items[index]} == {
            (file.field.name, file.role): file.shape[0] for file in files if file.shape[0]
        }
    empty = create_manifest(MADE, rows=0, fields=FIELDS, shards=(), tables=ROOT)
    assert list(layout.count_shard_items(empty)) == list(counted)
    assert all(len(items) == 0 for items in layout.count_shard_items(empty).values())


def test_blocks_lie_one_behind_the_other() -> None:
    """Every array's digests begin where those of the one before it end."""
    files = layout.list_shard_files(manifest(), 0)
    offset = 0
    for file in files:
        assert file.first_block == offset
        assert file.data_bytes == np.prod(file.shape) * file.dtype.itemsize
        assert file.blocks == -(-file.data_bytes // BLOCK)
        offset += file.blocks
    assert layout.count_total_blocks(files) == offset
    assert layout.count_total_blocks([]) == 0


def test_tables() -> None:
    """Only categorical fields with a table have files there; an empty table has one offset."""
    actual = [(file.name, file.shape) for file in layout.list_table_files(manifest())]
    assert actual == [
        ("03-c.categories.values.npy", (9,)),
        ("03-c.categories.offsets.npy", (5,)),
        ("04-d.categories.values.npy", (0,)),
        ("04-d.categories.offsets.npy", (1,)),
    ]


def test_shard_names_sort_as_numbers() -> None:
    """Folders have five digits, and more where that is not enough."""
    assert [layout.name_shard(n) for n in (0, 42, 123_456)] == [
        "shard-00000",
        "shard-00042",
        "shard-123456",
    ]
