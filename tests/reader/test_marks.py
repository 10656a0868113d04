"""Marks of verified blocks."""

import numpy as np

from fieldslab.reader.stored.marks import VerifiedBlocks

BLOCK = 65_536


def test_blocks_without_a_mark() -> None:
    """The blocks under a span of bytes are found, first and last included."""
    marks = VerifiedBlocks([3, 0, 2])
    assert marks.find_unmarked(0, 0, 1) == [0]
    assert marks.find_unmarked(0, BLOCK - 1, BLOCK + 1) == [0, 1]
    assert marks.find_unmarked(0, BLOCK, 2 * BLOCK) == [1]
    assert marks.find_unmarked(2, 0, 2 * BLOCK) == [0, 1]
    assert marks.find_unmarked(0, 5, 5) == []
    marks.mark_block(0, 1)
    assert marks.find_unmarked(0, 0, 3 * BLOCK) == [0, 2]


def test_an_index_is_split_into_shard_and_block() -> None:
    """Every index of the table leads back to its shard, empty shards between or not."""
    marks = VerifiedBlocks([3, 0, 2, 0])
    assert marks.locate_blocks(np.arange(5)) == [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1)]


def test_complete_once_every_block_is_marked() -> None:
    """`complete` becomes true with the last mark, in whatever order they were set."""
    marks = VerifiedBlocks([2, 3])
    order = [(1, 2), (0, 0), (1, 0), (0, 1), (1, 1)]
    for shard, block in order:
        assert not marks.complete
        marks.mark_block(shard, block)
        marks.update_complete()
    assert marks.complete
    assert marks.find_unmarked(1, 0, 3 * BLOCK) == []
    marks.update_complete()
    assert marks.complete


def test_the_table_shows_the_marks() -> None:
    """Kernels see in `table` what `mark_block` marks."""
    marks = VerifiedBlocks([1, 2])
    marks.mark_block(1, 1)
    assert marks.table.tolist() == [0, 0, 1]
    assert marks.firsts.tolist() == [0, 1]
    assert marks.table.dtype == np.uint8


def test_nothing_to_mark_is_complete() -> None:
    """Arrays without data need no marks."""
    assert VerifiedBlocks([]).complete
    assert VerifiedBlocks([0, 0]).complete
