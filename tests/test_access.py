"""Stored arrays as both halves reach them: read by the packer, mapped by the reader."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.slabs import Column, array_path, categorical, flip, poke, redigest, write_slab

from fieldslab.packer.check.stored import StoredSlab
from fieldslab.reader import open_slab
from fieldslab.schemas import layout
from fieldslab.schemas.access import find_shard_folder, find_table_folder, iterate_folders
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.errors import DamagedArray
from fieldslab.schemas.fields import Role
from fieldslab.schemas.folder import open_slab_files

ROWS, SHARDS = 40_000, (15_000, 5_000, 20_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Rows of one size, of several, with nulls in one shard, and of a category table."""
    numbers = np.arange(ROWS)
    columns = {
        "pair": np.stack([numbers, -numbers], 1),
        "word": [str(number) * (number % 5) for number in range(ROWS)],
        "maybe": Column(numbers, "fixed", "int64", valid=numbers != 16_000),
        "place": categorical(numbers % 3, ["here", "there", "é"], table=True),
    }
    return write_slab(tmp_path / "x.slab", columns, SHARDS)


def read_by_packer(path: Path, name: str, row: int) -> Any:
    """One row, as `head` reads it."""
    with open_slab_files(path) as files:
        slab = StoredSlab(files)
        field = next(field for field in files.manifest.fields if field.name == name)
        return slab.read(field, row, row + 1)


def read_by_reader(path: Path, name: str, row: int) -> Any:
    """One row, by its number."""
    return open_slab(path)[name][row]


def gather_by_reader(path: Path, name: str, row: int) -> Any:
    """One row, in a batch."""
    return open_slab(path).gather([row], [name])


WAYS = [read_by_packer, read_by_reader, gather_by_reader]


@pytest.mark.parametrize("checked", [False, True])
def test_arrays_are_the_same_read_and_mapped(path: Path, checked: bool) -> None:
    """Every array of every folder, and any part of it, is what the map shows."""
    with open_slab_files(path) as files:
        for folder in iterate_folders(files):
            if checked:
                folder.load_digests()
            for file in folder.files:
                array = folder.get_required_array(file.field, file.role)
                mapped = array.map()
                assert mapped.shape == file.shape == (len(array), *mapped.shape[1:])
                assert not mapped.flags.writeable
                assert np.array_equal(array.read(), mapped)
                for start, stop in ((0, 0), (1, 3), (len(array) - 1, len(array))):
                    assert np.array_equal(array.read(start, stop), mapped[start:stop])


def test_a_folder_knows_its_arrays(path: Path) -> None:
    """Each array is found by field and role; a shard without nulls has no validity."""
    with open_slab_files(path) as files:
        fields = {field.name: field for field in files.manifest.fields}
        folders = [find_shard_folder(files, index, 0) for index in range(len(SHARDS))]
        valid = [folder.get_array(fields["maybe"], "valid") is not None for folder in folders]
        assert valid == [False, True, False]
        assert folders[0].get_array(fields["pair"], "offsets") is None
        assert len(folders[2].get_required_array(fields["pair"], "values")) == SHARDS[2]
        tables = find_table_folder(files)
        assert tables is not None
        assert len(tables.get_required_array(fields["place"], "categories.offsets")) == 4


@pytest.mark.parametrize(
    ("name", "role", "offset", "row"),
    [
        ("pair", "values", 16 * 7_000, 27_000),
        ("word", "values", 90_000, 29_001),
        ("word", "offsets", 70_000, 28_749),
    ],
)
def test_damage_is_told_in_the_same_words(
    path: Path, name: str, role: Role, offset: int, row: int
) -> None:
    """Whoever touches a damaged block names the same file, rows, offset and digests."""
    flip(array_path(path, name, role, 2), offset)
    errors = []
    for read in WAYS:
        with pytest.raises(DamagedArray, match="does not match its digest") as caught:
            read(path, name, row)
        errors.append(str(caught.value))
        first, last = map(int, caught.value.context["row"].split(".."))
        assert 20_000 <= first <= row <= last < ROWS
        assert caught.value.context["offset"] == HEADER + offset // 65_536 * 65_536
    assert errors == errors[:1] * len(WAYS)


@pytest.mark.parametrize("read", WAYS)
def test_offsets_that_decrease(path: Path, read: Callable[[Path, str, int], Any]) -> None:
    """Offsets that were wrong before they were digested are named with row and offset."""
    file = array_path(path, "word", "offsets", 1)
    poke(file, np.array([2**63], np.uint64), 8 * 5)
    redigest(path)
    with pytest.raises(DamagedArray, match=r"offsets are damaged.*rising numbers up to") as caught:
        read(path, "word", 15_004)
    assert caught.value.context["row"] == 15_004
    assert (caught.value.context["file"], caught.value.context["offset"]) == (file, HEADER + 32)


@pytest.mark.parametrize("ends", [[1, 1, 2, 3], [0, 6, 4, 11], [0, 4, 9, 2**64 - 1]])
def test_hostile_category_tables(path: Path, ends: list[int]) -> None:
    """No name is cut from a category table by offsets that do not rise to its end."""
    poke(array_path(path, "place", "categories.offsets", None), np.array(ends, np.uint64))
    redigest(path)
    with open_slab_files(path) as files, pytest.raises(DamagedArray, match="category table"):
        StoredSlab(files).read_categories(files.manifest.fields[3])
    with pytest.raises(DamagedArray, match="category table"):
        open_slab(path).categories("place")


@pytest.mark.parametrize("read", WAYS)
def test_a_digest_table_with_a_hole(path: Path, read: Callable[[Path, str, int], Any]) -> None:
    """A digest table of which a part was never written is refused before it is read."""
    table = path / layout.name_shard(0) / layout.DIGESTS
    size = table.stat().st_size
    with table.open("r+b") as file:
        file.truncate(HEADER)
        file.truncate(size)
    if hasattr(os, "SEEK_HOLE"):
        with pytest.raises(DamagedArray, match="digest table is damaged"):
            read(path, "pair", 3)
