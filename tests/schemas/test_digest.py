"""Digests: blocks, their XXH3-64, and the root over a table of them."""

import hashlib

import numpy as np
import pytest
import xxhash

from fieldslab.schemas.digest import BLOCK, XXH3, count_blocks, split_blocks

SIZES = [0, 1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 5]


@pytest.mark.parametrize("size", SIZES)
def test_blocks_cover_the_data(size: int) -> None:
    """Blocks are 64 KiB, the last one may be short, and none is empty."""
    data = bytes(range(256)) * (size // 256 + 1)
    view = memoryview(data)[:size]
    parts = list(split_blocks(view))
    assert b"".join(parts) == data[:size]
    assert len(parts) == count_blocks(size) == len(XXH3.compute_blocks(view))
    assert all(len(part) == BLOCK for part in parts[:-1])
    assert all(len(part) for part in parts)


def test_digest_is_xxh3_with_seed_0() -> None:
    """A digest is XXH3-64 with seed 0, as the reference library computes it."""
    assert XXH3.compute(b"") == 0x2D06800538D394C2  # XXH3_64bits of nothing
    data = bytes(range(250)) * 700
    expected = [xxhash.xxh3_64_intdigest(data[a : a + BLOCK]) for a in (0, BLOCK, 2 * BLOCK)]
    assert XXH3.compute_blocks(memoryview(data)).tolist() == expected


def test_root_is_sha256_of_the_table() -> None:
    """A root is the SHA-256 of the little-endian table, for an empty one too."""
    table = np.array([1, 2**64 - 1], np.uint64)
    assert XXH3.compute_root(table) == hashlib.sha256(b"\1" + bytes(7) + b"\xff" * 8).hexdigest()
    assert XXH3.compute_root(table.astype(">u8")) == XXH3.compute_root(table)
    assert XXH3.compute_root(np.empty(0, np.uint64)) == hashlib.sha256(b"").hexdigest()
