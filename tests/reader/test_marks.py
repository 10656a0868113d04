"""Marks of verified blocks."""

import os
import resource
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.naming import case
from tests.slabs import array_path, flip, lie, ragged, write_slab

from fieldslab.reader import open_slab
from fieldslab.reader.stored.marks import SharedMarks, VerifiedBlocks
from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.errors import DamagedManifest, Unreadable
from fieldslab.schemas.folder import load_manifest
from fieldslab.schemas.mapping import get_address


def create_marks(*blocks: int) -> VerifiedBlocks:
    """Create marks of shards with so many blocks."""
    return VerifiedBlocks(np.array(blocks, np.int64), np.zeros(sum(blocks) // 8 + 1, np.uint8))


def list_marked(marks: VerifiedBlocks, blocks: int) -> list[int]:
    """List the indexes of marked blocks."""
    bits = np.unpackbits(marks.table, bitorder="little")[:blocks]
    return [int(index) for index in np.flatnonzero(bits)]


def test_blocks_without_a_mark() -> None:
    """The blocks under a span of bytes are found, first and last included."""
    marks = create_marks(3, 0, 2)
    assert marks.find_unmarked(0, 0, 1) == [0]
    assert marks.find_unmarked(0, BLOCK - 1, BLOCK + 1) == [0, 1]
    assert marks.find_unmarked(0, BLOCK, 2 * BLOCK) == [1]
    assert marks.find_unmarked(2, 0, 2 * BLOCK) == [0, 1]
    assert marks.find_unmarked(0, 5, 5) == []
    marks.mark_block(0, 1)
    assert marks.find_unmarked(0, 0, 3 * BLOCK) == [0, 2]


def test_an_index_is_split_into_shard_and_block() -> None:
    """Every index leads back to its shard, empty shards between or not."""
    marks = create_marks(3, 0, 2, 0)
    shards, blocks = marks.locate_blocks(np.arange(5))
    assert shards.tolist() == [0, 0, 0, 2, 2]
    assert blocks.tolist() == [0, 1, 2, 0, 1]


def test_complete_once_every_block_is_marked() -> None:
    """`complete` becomes true with the last mark, in whatever order they were set."""
    for sizes in ([2, 3], [8], [9, 0, 7], [40_000, 1, 3003]):
        marks = create_marks(*sizes)
        order = [(shard, block) for shard, size in enumerate(sizes) for block in range(size)]
        np.random.default_rng(0).shuffle(order)
        with case(sizes):
            for shard, block in order:
                assert not marks.complete
                marks.mark_block(shard, block)
                marks.update_complete()
            assert marks.complete
            assert marks.find_unmarked(0, 0, BLOCK) == []
            marks.update_complete()
            assert marks.complete


def test_a_mark_is_a_bit() -> None:
    """Kernels see in `table` what `mark_block` marks: bit `k & 7` of byte `k >> 3`."""
    marks = create_marks(1, 12)
    marks.mark_block(1, 1)
    marks.mark_block(1, 8)
    assert marks.table.tolist() == [0b100, 0b11100010], "and what stands behind the last"
    assert marks.firsts.tolist() == [0, 1]


def test_marks_are_cleared_by_shard() -> None:
    """A shard loses all its marks, its neighbours none, wherever its bits begin and end."""
    for sizes in ([3, 2, 3], [8, 8, 8], [1, 30, 2], [5, 3, 9], [16, 0, 1], [5, 11, 0]):
        starts = np.cumsum([0, *sizes])
        for shard, size in enumerate(sizes):
            marks = create_marks(*sizes)
            for index in range(sum(sizes)):
                owner, block = marks.locate_blocks(np.array([index]))
                marks.mark_block(int(owner[0]), int(block[0]))
            marks.update_complete()
            marks.clear_blocks(shard, size)
            kept = [*range(starts[shard]), *range(starts[shard + 1], sum(sizes))]
            with case(sizes, shard):
                assert list_marked(marks, sum(sizes)) == kept
                assert marks.complete == (size == 0)
                marks.update_complete()
                assert marks.complete == (size == 0)
                assert marks.find_unmarked(shard, 0, size * BLOCK) == list(range(size))


def test_nothing_to_mark_is_complete() -> None:
    """Arrays without data need no marks."""
    assert create_marks().complete
    assert create_marks(0, 0).complete


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A slab of two fields and three arrays, in shards of several sizes."""
    values = np.random.default_rng(0).integers(0, 256, (90, 10_000), np.uint8)
    texts = ["x" * row for row in range(90)]
    return write_slab(tmp_path / "x.slab", {"x": values, "t": texts}, [30, 1, 59])


def test_arrays_do_not_share_marks(path: Path) -> None:
    """Each array has bytes of its own in the memory of the slab, whichever is asked for first."""
    slab = open_slab(path)
    spans = []
    for name in ("t", "x"):
        for array in slab.storage.load_field(name).arrays.values():
            assert array.marks is not None
            start = get_address(array.marks.table)
            spans.append((start, start + len(array.marks.table)))
    spans.sort()
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    manifest = load_manifest(path)
    huge = np.array([2**43, 1, 1])
    with pytest.raises(DamagedManifest, match="too large"):
        SharedMarks(manifest).create_marks("x", "values", huge)


def test_a_large_array_takes_no_memory_until_it_is_touched(path: Path) -> None:
    """Marks of petabytes are addresses only, and hold as small ones do."""
    blocks = np.array([2**34, 5, 2**33])
    marks = SharedMarks(load_manifest(path)).create_marks("x", "values", blocks)
    marks.mark_block(2, 2**33 - 1)
    marks.update_complete()
    assert marks.find_unmarked(2, (2**33 - 2) * BLOCK, 2**33 * BLOCK) == [2**33 - 2]
    assert len(marks.table) * 8 >= sum(blocks.tolist())


def test_forked_processes_share_marks(path: Path) -> None:
    """What a child verifies its parent does not read again, in a field it had not used either."""
    slab = open_slab(path)
    if os.fork() == 0:
        try:
            slab.gather(range(90))
        finally:
            os._exit(0)
    os.wait()
    flip(array_path(path, "x", "values", 0), 0)
    slab.gather(range(90))
    for array in slab.storage.load_field("x").arrays.values():
        assert array.marks is not None
        assert not len(array.marks.find_unmarked(0, 0, BLOCK))


def test_arrays_that_have_too_many_blocks_for_the_address_space(tmp_path: Path) -> None:
    """Where the marks of the blocks that a manifest names find no addresses, the error says so."""
    path = write_slab(tmp_path / "x.slab", {"x": ragged([[1], [2, 3]], "int32")})
    [shard] = load_manifest(path).shards
    lie(path, shards=(msgspec.structs.replace(shard, elements=(2**47,)),))
    slab = open_slab(path)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + 2**29, limits[1]))
    try:
        with pytest.raises(Unreadable, match=r"no memory to note.*ulimit -v"):
            slab.gather([0], ["x"])
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
