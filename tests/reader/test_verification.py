"""Many blocks verified in one call: the same marks and errors as one by one."""

import os
from pathlib import Path

import numpy as np
import pytest
from tests.slabs import array_path, flip, write_slab

from fieldslab.reader import Slab, open_slab
from fieldslab.reader.stored import changes
from fieldslab.reader.stored.array import StoredArray
from fieldslab.reader.stored.verification import verify_and_mark_blocks
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.digest import BLOCK, XXH3
from fieldslab.schemas.errors import DamagedArray
from fieldslab.schemas.mapping import get_address, get_populate_call

ROWS, WIDTH = 10_000, 1000
SHARDS = [3333, 1, 2000, 4666]
VALUES = np.random.default_rng(0).integers(0, 256, (ROWS, WIDTH), np.uint8)
BLOCKS = [-(-rows * WIDTH // BLOCK) for rows in SHARDS]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A slab of 10 MB in shards of several sizes."""
    return write_slab(tmp_path / "x.slab", {"x": VALUES}, SHARDS)


def values_of(slab: Slab) -> StoredArray:
    """The one array of the slab."""
    return slab.storage.load_field("x").values


def table_of(array: StoredArray) -> list[int]:
    """Its marks, one for each block."""
    assert array.marks is not None
    marks: list[int] = np.unpackbits(array.marks.table, bitorder="little")[: sum(BLOCKS)].tolist()
    return marks


def test_all_blocks_at_once(path: Path) -> None:
    """Blocks of all shards, more than are read in at a time and copied at a time, are marked."""
    slab = open_slab(path)
    rows = np.random.default_rng(1).permutation(ROWS)
    assert np.array_equal(slab.gather(rows)["x"], VALUES[rows])
    assert table_of(values_of(slab)) == [1] * sum(BLOCKS)


def test_only_what_is_asked_for(path: Path) -> None:
    """Runs of neighbours with gaps between are verified, and nothing beside them."""
    array = values_of(open_slab(path))
    wanted = [0, 1, 2, 9, 49, 50, 51, 52, sum(BLOCKS) - 1]
    array.verify_blocks(np.array(wanted))
    assert np.flatnonzero(table_of(array)).tolist() == wanted


@pytest.mark.parametrize("shard", [0, 1, 3])
def test_a_wrong_block_is_named(path: Path, shard: int) -> None:
    """One wrong byte in the last block of a shard: all before it are marked, it never is."""
    flip(array_path(path, "x", "values", shard), SHARDS[shard] * WIDTH - 1)
    array = values_of(open_slab(path))
    bad = sum(BLOCKS[: shard + 1]) - 1
    for _ in range(2):
        with pytest.raises(DamagedArray, match="does not match its digest") as caught:
            array.verify_blocks(np.arange(sum(BLOCKS)))
        assert caught.value.context["file"] == array_path(path, "x", "values", shard)
        assert caught.value.context["offset"] == HEADER + (BLOCKS[shard] - 1) * BLOCK
        assert table_of(array) == [1] * bad + [0] * (sum(BLOCKS) - bad)


def test_a_file_that_was_cut_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where many blocks are read in together, a file that was cut meanwhile is told by its size."""
    monkeypatch.setattr(changes, "SECONDS", 3600.0)
    slab = open_slab(path)
    slab.gather([ROWS - 1])
    if get_populate_call()[0]:  # the system can tell
        os.truncate(array_path(path, "x", "values", 3), HEADER + 9 * BLOCK)
        with pytest.raises(DamagedArray, match="wrong size") as caught:
            slab.gather(range(sum(SHARDS[:3]), ROWS))
        assert caught.value.context["file"] == array_path(path, "x", "values", 3)
        assert caught.value.context["found"] == f"{HEADER + 9 * BLOCK} bytes"


@pytest.mark.parametrize("madvise", [0, get_populate_call()[0]], ids=["without", "with"])
def test_where_the_kernel_stops(madvise: int) -> None:
    """It stops at a wrong block, a short one, and where no table is; a shard may be empty."""
    data = VALUES.reshape(-1)[: 3 * BLOCK + 100]
    digests = XXH3.compute_blocks(data.data)
    digests[1] += np.uint64(1)
    marks = np.zeros(1, np.uint8)
    firsts, sizes = np.array([0, 4, 4]), np.array([len(data), 0, len(data)])
    addresses = np.array([get_address(data), 0, get_address(data)])
    tables = np.array([get_address(digests), 0, 0])

    def stop(first_row: int) -> int:
        where = firsts, addresses, sizes, tables
        return verify_and_mark_blocks(
            np.arange(8), first_row, *where, get_address(marks), madvise, get_populate_call()[1]
        )

    assert [stop(0), stop(2), stop(4)] == [1, 3, 4]
    assert marks.tolist() == [0b101]
