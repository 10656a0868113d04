"""Digests: a flipped bit is never handed out, whichever way it is asked for."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.naming import case
from tests.reader.conftest import SHARDS, make_columns
from tests.slabs import array_path, flip, write_slab

from fieldslab.reader import Slab, open_slab
from fieldslab.schemas import layout
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.errors import DamagedArray
from fieldslab.schemas.fields import Role
from fieldslab.schemas.folder import load_manifest

READS: dict[str, Callable[[Slab, str, int], Any]] = {
    "row": lambda slab, name, row: slab[row],
    "column": lambda slab, name, row: slab[name][row],
    "slice": lambda slab, name, row: slab[name][row : row + 1],
    "chosen": lambda slab, name, row: slab[name][[row, row]],
    "gather": lambda slab, name, row: slab.gather([row]),
    "field": lambda slab, name, row: slab.gather([0, row], [name]),
    "addresses": lambda slab, name, row: slab.addresses([row], name),
}
ROW = 61  # in the third shard, a row with something in every field
SHARD, FIRST = 2, 8


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A slab with every kind of field, to be damaged."""
    return write_slab(tmp_path / "all.slab", make_columns(), SHARDS)


@pytest.mark.parametrize("name", [name for name in make_columns() if name != "place"])
def test_a_flipped_bit_is_found(path: Path, name: str) -> None:
    """One wrong bit in the values of a row raises DamagedArray, and again at each later touch."""
    file = array_path(path, name, "values", SHARD)
    flip(file, file.stat().st_size - HEADER - 1)
    named = f"{re.escape(str(file))}.*field {name}"
    for read in READS:
        slab = open_slab(path)
        for touch in range(3):
            with case(read, touch):
                with pytest.raises(DamagedArray, match=named) as caught:
                    READS[read](slab, name, ROW)
                first, last = map(int, caught.value.context["row"].split(".."))
                assert FIRST <= first <= ROW <= last < FIRST + SHARDS[SHARD]  # some rows are empty
                assert caught.value.context["offset"] == HEADER
        assert slab["label"][0] == 0, read


@pytest.mark.parametrize(
    ("name", "role"), [("caption", "offsets"), ("tokens", "offsets"), ("photo", "offsets")]
)
def test_a_flipped_bit_in_offsets_is_found(path: Path, name: str, role: Role) -> None:
    """Offsets are verified before they are followed."""
    flip(array_path(path, name, role, SHARD), 8 * 190)
    for read in READS:
        with case(read), pytest.raises(DamagedArray, match="does not match its digest"):
            READS[read](open_slab(path), name, ROW)


@pytest.mark.parametrize(("name", "role"), [("score", "valid"), ("photo", "size")])
def test_a_flipped_bit_beside_the_values_is_found(path: Path, name: str, role: Role) -> None:
    """Validity and image sizes are verified as values are."""
    flip(array_path(path, name, role, SHARD), 7)
    with pytest.raises(DamagedArray, match=role):
        open_slab(path).gather([ROW], [name])


@pytest.mark.parametrize("role", ["points.values", "points.offsets", "codec"])
def test_a_flipped_bit_in_an_index_is_found(path: Path, role: Role) -> None:
    """Index points and codes are verified when they are first touched, row by row named."""
    flip(array_path(path, "photo", role, SHARD), 8)
    slab = open_slab(path)
    assert slab.gather([ROW], ["photo"])["photo"][0] == slab[ROW]["photo"]  # does without them
    stored = slab.storage.load_field("photo")
    assert stored.points is not None
    assert stored.point_offsets is not None
    assert stored.codec is not None
    actual = {
        "points.values": stored.points,
        "points.offsets": stored.point_offsets,
        "codec": stored.codec,
    }
    with pytest.raises(DamagedArray, match=f"{role}.*does not match") as caught:
        actual[role].verify_items(SHARD, 1, 2)
    assert caught.value.context["row"].split("..")[0] == str(FIRST + (role == "points.values"))


@pytest.mark.parametrize("role", ["categories.values", "categories.offsets"])
def test_a_flipped_bit_in_a_table_is_found(path: Path, role: Role) -> None:
    """A category table is verified before a name is taken from it; codes do not need it."""
    flip(array_path(path, "place", role, None), 3)
    slab = open_slab(path)
    for _ in range(2):
        with pytest.raises(DamagedArray, match=role):
            slab.categories("place")
        with pytest.raises(DamagedArray, match=role):
            slab[ROW]
    assert slab.gather([ROW], ["place"])["place"].tolist() == [ROW % 5]


def test_a_damaged_digest_table_is_found(path: Path) -> None:
    """Digests are believed only if they fit the root in the manifest."""
    flip(path / layout.name_shard(SHARD) / layout.DIGESTS, 9)
    slab = open_slab(path)
    assert slab[0]["label"] == 0
    with pytest.raises(DamagedArray, match="digest table is damaged"):
        slab.gather([ROW])


def test_swapped_files_are_found(path: Path) -> None:
    """Two files of the same size and header, put in each other's place, do not pass."""
    first, other = (array_path(path, name, "values", SHARD) for name in ("label", "time"))
    flip(first, 0)
    first.rename(first.with_suffix(".x"))
    other.rename(first)
    first.with_suffix(".x").rename(other)
    with pytest.raises(DamagedArray, match="digest"):
        open_slab(path).gather([ROW])


def test_swapped_shards_are_found(tmp_path: Path) -> None:
    """Shards of equal layout, put in each other's place, do not pass."""
    path = write_slab(tmp_path / "x.slab", {"x": np.arange(20)}, [10, 10])
    first, second = (path / layout.name_shard(index) for index in range(2))
    first.rename(path / "x")
    second.rename(first)
    (path / "x").rename(second)
    with pytest.raises(DamagedArray, match="digest table"):
        open_slab(path).gather([3])


def test_only_the_blocks_of_a_row_are_read(tmp_path: Path) -> None:
    """Damage elsewhere in the array does not keep rows of other blocks from being read."""
    values = np.random.default_rng(0).integers(0, 256, (400, 1000), np.uint8)
    blobs = [row.tobytes() for row in values]
    path = write_slab(tmp_path / "x.slab", {"x": values, "b": blobs}, [100, 300])
    for name in ("x", "b"):
        flip(array_path(path, name, "values", 1), 2 * 65_536)  # rows 231 to 296
        slab = open_slab(path)
        hurt = range(100 + 2 * 65_536 // 1000, 100 + -(-3 * 65_536 // 1000))
        for row in (0, 99, 100, hurt[0] - 1, hurt[-1] + 1, 399):
            assert np.array_equal(slab.gather([row], [name])[name][0], slab[name][row])
        for row in hurt:
            with pytest.raises(DamagedArray) as caught:
                slab.gather([0, row, 399], [name])
            assert caught.value.context["row"] == f"{hurt[0]}..{hurt[-1]}"
            assert caught.value.context["offset"] == HEADER + 2 * 65_536
            with pytest.raises(DamagedArray):
                slab[name][row]
        with pytest.raises(DamagedArray):
            slab[name][hurt[-1] : 399]


def test_rows_of_a_block_of_offsets_are_named(tmp_path: Path) -> None:
    """Damage in a block of offsets names every row that uses one of them."""
    path = write_slab(tmp_path / "x.slab", {"t": ["a"] * 20_000})
    flip(array_path(path, "t", "offsets"), 65_536 + 100)
    slab = open_slab(path)
    assert slab.gather([8_190])["t"].tolist() == ["a"]
    with pytest.raises(DamagedArray) as caught:
        slab.gather([8_191])  # its end is the first offset of the second block
    assert caught.value.context["row"] == "8191..16383"


def test_without_verification_nothing_is_digested(path: Path) -> None:
    """`verify=False` hands out what is stored, and needs no digest table."""
    flip(array_path(path, "label", "values", SHARD), 0)
    (path / layout.name_shard(SHARD) / layout.DIGESTS).unlink()
    assert open_slab(path, verify=False).gather([8])["label"].tolist() == [9]


def test_a_whole_slab_becomes_complete(path: Path) -> None:
    """After every row was touched no array has blocks left to verify."""
    slab = open_slab(path)
    slab.gather(range(len(slab)))
    for name in load_manifest(path).fields:
        stored = slab.storage.load_field(name.name)
        for array in (stored.values, stored.offsets, stored.size, stored.valid):
            assert array is None or array.marks is None or array.marks.complete
