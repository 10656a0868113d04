"""Where the marks of blocks stand."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.naming import case
from tests.slabs import Column, categorical, images, ragged, store, write_slab

from fieldslab.schemas import layout
from fieldslab.schemas.errors import DamagedManifest
from fieldslab.schemas.folder import load_manifest
from fieldslab.schemas.mirror.blockmap import BlockMap


def make_slab(path: Path) -> Path:
    """A slab with arrays of every kind, of some blocks each, and nulls in one shard of three."""
    rows = 30
    valid = np.ones(rows, np.bool_)
    valid[3] = False
    columns = {
        "x": np.zeros((rows, 20_000), np.float32),
        "weight": Column(np.zeros(rows), "fixed", "float64", valid=valid),
        "text": ["text" * 9000] * rows,
        "tokens": ragged([range(row * 1000) for row in range(rows)], "int64", (1,)),
        "photo": images([b"no image" * 2000] * rows, np.zeros((rows, 2)), points=[[]] * rows),
        "city": categorical(np.zeros(rows), ["a" * 70_000, "b"], table=True),
        "empty": np.zeros((rows, 0), np.int8),
    }
    return write_slab(path, columns, [10, 19, 1])


def test_every_block_has_a_bit_of_its_own(tmp_path: Path) -> None:
    """Units agree with the layout, begin with a byte each, and none overlaps another."""
    manifest = load_manifest(make_slab(tmp_path / "x.slab"))
    blocks = BlockMap(manifest)
    taken = set[int]()
    for folder in range(len(manifest.shards) + 1):
        table = layout.TABLES if folder == len(manifest.shards) else layout.name_shard(folder)
        assert blocks.find_folder(table) == folder
        for file in [*blocks.list_folder_files(folder), None]:
            with case(table, file and file.name):
                number = blocks.find_unit(folder, file)
                unit = blocks.get_unit(number)
                assert (unit.number, unit.folder, unit.folder_name) == (number, folder, table)
                assert unit.file == file
                count = 1 if file is None else file.blocks
                assert blocks.blocks[number] == count
                start = blocks.get_first_position(number)
                positions = set(range(start, start + -(-count // 8) * 8))
                assert start % 8 == 0
                assert not positions & taken
                taken |= positions
                actual = blocks.find_units(np.arange(start, start + count))
                assert (actual == number).all()
    assert taken == set(range(blocks.mark_bytes * 8))


def test_positions_of_an_array_are_known_for_all_shards(tmp_path: Path) -> None:
    """`find_first_positions` says at once what the units of each shard say one by one."""
    manifest = load_manifest(make_slab(tmp_path / "x.slab"))
    blocks = BlockMap(manifest)
    for file in blocks.list_folder_files(0):
        column = blocks.find_column(file.field.name, file.role)
        units = [shard * blocks.width + column for shard in range(blocks.shards)]
        expected = [blocks.get_first_position(unit) for unit in units]
        assert blocks.find_first_positions(column).tolist() == expected


def test_a_slab_without_rows_has_no_marks(tmp_path: Path) -> None:
    """No shards, no units."""
    manifest = load_manifest(write_slab(tmp_path / "x.slab", {"x": np.zeros((0, 3))}))
    assert BlockMap(manifest).mark_bytes == 0


def test_sizes_that_no_disk_has_are_refused(tmp_path: Path) -> None:
    """A hostile manifest costs no memory."""
    path = write_slab(tmp_path / "x.slab", {"x": np.zeros((8, 1000))})
    manifest = load_manifest(path)
    shard = msgspec.structs.replace(manifest.shards[0], rows=2**42)
    huge = store(path, rows=2**42 * 3, fields=manifest.fields, shards=(shard,) * 3)
    with pytest.raises(DamagedManifest, match="too large to be mirrored"):
        BlockMap(huge)
