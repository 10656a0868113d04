"""XXH3-64 by a kernel."""

from typing import Any

import numpy as np
import xxhash

from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.jit import kernel
from fieldslab.schemas.xxh3 import SHORTEST, digest_long

DATA = np.random.default_rng(0).integers(0, 256, 3 * BLOCK + 100, np.uint8)


@kernel("void(int64, int64[::1], int64[::1], uint64[::1])")
def digest_each(address: int, starts: Any, sizes: Any, out: Any) -> None:
    """Digest one span of memory after the other."""
    for i in range(len(starts)):
        out[i] = digest_long(address + starts[i], sizes[i])


def check(starts: np.ndarray, sizes: np.ndarray) -> None:
    """Compare digests of spans of DATA with those of the library."""
    found = np.empty(len(sizes), np.uint64)
    digest_each(DATA.ctypes.data, starts, sizes, found)
    spans = zip(starts.tolist(), sizes.tolist(), strict=True)
    expected = [xxhash.xxh3_64_intdigest(DATA[at : at + size].data) for at, size in spans]
    assert found.tolist() == expected


def test_every_size_agrees_with_the_library() -> None:
    """Digests of all sizes from the shortest to several rounds are right, at any address."""
    sizes = np.arange(SHORTEST, 6000)
    check(sizes * 7 % 4096, sizes)


def test_sizes_up_to_a_block_agree_with_the_library() -> None:
    """Larger sizes are right too, whole blocks and those around them among them."""
    rng = np.random.default_rng(1)
    sizes = np.append(rng.integers(SHORTEST, BLOCK, 500), [BLOCK - 1, BLOCK, BLOCK + 1])
    check(rng.integers(0, 2 * BLOCK, len(sizes)), sizes)


def test_every_word_counts() -> None:
    """A flipped bit in any word of a block gives another digest."""
    block, digests = DATA[:BLOCK].copy(), np.empty(1 + BLOCK // 8, np.uint64)
    start, size = np.zeros(1, np.int64), np.array([BLOCK])
    digest_each(block.ctypes.data, start, size, digests[:1])
    for word in range(BLOCK // 8):
        block[8 * word + word % 8] ^= 1 << word % 7
        digest_each(block.ctypes.data, start, size, digests[1 + word : 2 + word])
        block[8 * word + word % 8] ^= 1 << word % 7
    assert len(np.unique(digests)) == len(digests)
