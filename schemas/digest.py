"""Digests: XXH3-64 of each 64 KiB block of data, and one SHA-256 root over a folder's digests."""

import hashlib
from collections.abc import Iterator
from typing import TypeVar

import numpy as np
import xxhash

BLOCK = 64 * 1024
"""Bytes of an array's data under one digest. Data starts behind the header."""


_Size = TypeVar("_Size", int, np.ndarray)


def count_blocks(size: _Size) -> _Size:
    """Count the blocks in `size` bytes of data, or in each of many sizes; the last may be short."""
    return -(-size // BLOCK)


def digest_blocks(data: memoryview) -> np.ndarray:
    """Digest `data` block by block: bytes in, uint64[count_blocks(len(data))] out."""
    return np.array([digest(block) for block in split_blocks(data)], np.uint64)


def split_blocks(data: memoryview) -> Iterator[memoryview]:
    """Yield the blocks of `data`, in order."""
    return (data[start : start + BLOCK] for start in range(0, len(data), BLOCK))


def digest(block: memoryview | bytes | bytearray) -> int:
    """Compute the XXH3-64 of one block, seed 0 (https://github.com/Cyan4973/xxHash)."""
    return xxhash.xxh3_64_intdigest(block)


def compute_root(digests: np.ndarray) -> str:
    """Compute the SHA-256, in hex, of the data of a folder's `digests.npy`."""
    return hashlib.sha256(np.ascontiguousarray(digests, "<u8").tobytes()).hexdigest()
