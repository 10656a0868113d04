"""The compiled loops, beside plain Python."""

from typing import Any

import numpy as np
import pytest
from tests.guarded import Guarded
from tests.reader.test_rows import SHARDS

from fieldslab.reader import kernels
from fieldslab.reader.rows import ShardDirectory
from fieldslab.schemas.mapping import get_address

ONE = np.ones(1, np.int64)


@pytest.mark.parametrize("name", SHARDS)
def test_place_agrees_with_bisection(name: str) -> None:
    """Rows of a batch are found where single rows are, in shards of any size."""
    directory = ShardDirectory(SHARDS[name])
    total = int(directory.starts[-1])
    edges = np.concatenate([directory.starts[:-1], directory.starts[1:] - 1])
    rows = np.concatenate([edges, np.random.default_rng(1).integers(0, total, 1000)])
    out = np.empty((2, len(rows)), np.int64)
    assert kernels.find_shards(rows, total, 0, 1, *directory.lookup, out) == -1
    actual = list(zip(*out.tolist(), strict=True))
    assert actual == [directory.find_shard(row) for row in rows.tolist()]


@pytest.mark.parametrize("bad", [10, -11, 2**63 - 1, -(2**63)])
def test_place_returns_the_first_row_out_of_range(bad: int) -> None:
    """A row outside the slab is found at its position, even at the ends of int64."""
    directory = ShardDirectory([4, 6])
    rows = np.array([-10, 9, bad, 10])
    out = np.empty((2, 4), np.int64)
    assert kernels.find_shards(rows, 10, 0, 1, *directory.lookup, out) == 2
    assert rows.tolist() == [0, 9, bad, 10]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("counts", [ONE, np.ones(5, np.int64)], ids=["equal", "each"])
def test_copy_copies_every_byte_and_no_other(counts: np.ndarray, stream: bool) -> None:
    """Rows of every size arrive whole, and the bytes around them are left alone."""
    rows = np.array([8, 0, 3, 3, 7])
    for size in [*range(1, 140), 255, 256, *range(4090, 4230), 65_537]:
        source = np.random.default_rng(size).integers(0, 255, (9, size), np.uint8)
        out = np.full(5 * size + 128, 255, np.uint8)
        begin = get_address(out) + 64
        addresses = np.array([get_address(source)])
        end = kernels.copy_rows(np.zeros(5, np.int64), rows, counts, size, addresses, begin, stream)
        assert end - begin == 5 * size, size
        assert np.array_equal(out[64:-64].reshape(5, size), source[rows]), size
        assert (out[:64] == 255).all(), size
        assert (out[-64:] == 255).all(), size


def test_copy_stays_between_guards_at_every_alignment() -> None:
    """Streamed rows are read and written exactly, from and to any place within a cache line."""
    sources, outs = Guarded(16_384), Guarded(16_384)
    shards, places = np.zeros(2, np.int64), np.arange(2)
    for length in [*range(4096, 4161), 6144, 8000]:
        content = np.random.default_rng(length).bytes(2 * length)
        for at_end in (True, False):
            addresses = np.array([sources.put(content, at_end)])
            out = outs.take(2 * length, at_end, 0)
            end = kernels.copy_rows(shards, places, ONE, length, addresses, get_address(out), True)
            assert end == get_address(out) + 2 * length
            assert out.tobytes() == content, (length, at_end)
    rows = np.array([5000, 4096, 100, 0, 4097])
    content = np.random.default_rng(0).bytes(int(rows.sum()))
    starts = np.cumsum(rows) - rows
    for shift in range(64):
        addresses = np.array([sources.put(content + bytes(shift), True)])
        out = outs.take(len(content) + shift, True, 7)
        kernels.copy_rows(np.zeros(5, np.int64), starts, rows, 1, addresses, get_address(out), True)
        assert out.tobytes() == content + bytes([7]) * shift, shift


def test_copy_takes_rows_of_any_length() -> None:
    """Rows of different lengths, empty ones too, follow each other without a gap."""
    source = np.arange(1000, dtype=np.uint16)
    starts, counts = np.array([5, 900, 0, 7, 300]), np.array([0, 100, 1, 3, 64])
    out = np.empty(168, np.uint16)
    addresses = np.array([get_address(source)])
    kernels.copy_rows(np.zeros(5, np.int64), starts, counts, 2, addresses, get_address(out), False)
    wanted = [source[a : a + n] for a, n in zip(starts, counts, strict=True)]
    assert np.array_equal(out, np.concatenate(wanted))


def test_locate_adds_up_lengths() -> None:
    """Offsets become first elements, lengths and offsets within the batch."""
    offsets = np.array([0, 3, 3, 10], np.uint64)
    actual = [np.empty(3, np.int64), np.empty(3, np.int64), np.empty(4, np.int64)]
    shards, places = np.zeros(3, np.int64), np.array([2, 1, 0])
    elements = np.array([10], np.uint64)
    assert (
        kernels.find_element_ranges(
            shards, places, np.array([get_address(offsets)]), elements, *actual
        )
        == 10
    )
    assert [part.tolist() for part in actual] == [[3, 3, 0], [7, 0, 3], [0, 7, 7, 10]]


@pytest.mark.parametrize(
    "pair",
    [(4, 3), (0, 11), (11, 11), (2**63, 2**63), (2**64 - 1, 5), (0, 2**64 - 1), (2**63, 2**63 + 1)],
)
def test_locate_refuses_impossible_offsets(pair: tuple[int, int]) -> None:
    """Decreasing offsets and offsets beyond the elements are refused, also beyond 2^63."""
    offsets = np.array([0, 5, *pair], np.uint64)
    actual = [np.empty(2, np.int64), np.empty(2, np.int64), np.empty(3, np.int64)]
    shards, places = np.zeros(2, np.int64), np.array([0, 2])
    elements = np.array([10], np.uint64)
    addresses = np.array([get_address(offsets)])
    assert kernels.find_element_ranges(shards, places, addresses, elements, *actual) == ~1


def test_locate_refuses_a_sum_beyond_int64() -> None:
    """Many rows of giant length (of elements of no bytes) are refused before the sum wraps."""
    giant = 2**61
    offsets = np.array([0, giant], np.uint64)
    shards = np.zeros(9, np.int64)
    actual = [np.empty(9, np.int64), np.empty(9, np.int64), np.empty(10, np.int64)]
    addresses, elements = np.array([get_address(offsets)]), np.array([giant], np.uint64)
    assert kernels.find_element_ranges(shards, shards, addresses, elements, *actual) == ~2


def test_unmarked_finds_the_blocks_under_rows() -> None:
    """All blocks that a row touches are looked at, and an empty row touches none."""
    firsts, marks = np.array([0, 3]), np.array([0b100101], np.uint8)
    shards, places = np.array([0, 1, 1, 0]), np.array([65_535, 0, 65_536, 65_536])
    counts = np.array([2, 65_537, 0, 0])
    out = np.empty(8, np.int64)
    assert kernels.find_unmarked_blocks(shards, places, counts, 1, firsts, marks, out) == 3
    assert out[:3].tolist() == [1, 3, 4]
    assert kernels.find_unmarked_blocks(shards, places, counts, 1, firsts, marks, out[:1]) == 3


def test_kernels_have_one_signature_each() -> None:
    """Nothing is compiled while batches are gathered."""
    every: list[Any] = [
        kernels.find_shards,
        kernels.find_element_ranges,
        kernels.find_unmarked_blocks,
        kernels.copy_rows,
    ]
    assert [len(kernel.dispatcher.signatures) for kernel in every] == [1, 1, 1, 1]
