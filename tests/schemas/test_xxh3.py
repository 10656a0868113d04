"""XXH3-64 in the instructions of LLVM, as it is compiled without numba."""

import numpy as np
import pytest
import xxhash

from fieldslab.schemas import native
from fieldslab.schemas.digest import BLOCK, XXH3
from fieldslab.schemas.native import digest_pieces
from fieldslab.schemas.xxh3 import SHORTEST

DATA = np.random.default_rng(0).integers(0, 256, 3 * BLOCK + 100, np.uint8)


def check(start: int, size: int) -> None:
    """Compare digests of two pieces of DATA with those of the library."""
    actual = np.empty(2, np.uint64)
    digest_pieces(DATA[start:], size, actual)
    pieces = DATA[start : start + size].data, DATA[start + size : start + 2 * size].data
    assert actual.tolist() == [xxhash.xxh3_64_intdigest(piece) for piece in pieces]


def test_every_size_agrees_with_the_library() -> None:
    """Digests of all sizes from the shortest to several rounds are right, at any address."""
    for size in range(SHORTEST, 6000):
        check(size * 7 % 4096, size)


def test_sizes_up_to_a_block_agree_with_the_library() -> None:
    """Larger sizes are right too, whole blocks and those around them among them."""
    rng = np.random.default_rng(1)
    for size in (*rng.integers(SHORTEST, BLOCK, 500).tolist(), BLOCK - 1, BLOCK, BLOCK + 1):
        check(int(rng.integers(0, BLOCK)), size)


@pytest.mark.parametrize("size", [0, 1, 240, 241, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 100])
def test_blocks_have_the_same_digests_either_way(size: int) -> None:
    """Data is digested block by block as by the library, a short last block included."""
    actual = native.digest_blocks(DATA[:size])
    assert actual.dtype == np.uint64
    assert actual.tolist() == XXH3.compute_blocks(DATA[:size].data).tolist()


def test_every_word_counts() -> None:
    """A flipped bit in any word of a block gives another digest."""
    block, digests = DATA[:BLOCK].copy(), np.empty(1 + BLOCK // 8, np.uint64)
    digest_pieces(block, BLOCK, digests[:1])
    for word in range(BLOCK // 8):
        block[8 * word + word % 8] ^= 1 << word % 7
        digest_pieces(block, BLOCK, digests[1 + word : 2 + word])
        block[8 * word + word % 8] ^= 1 << word % 7
    assert len(np.unique(digests)) == len(digests)
