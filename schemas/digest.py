"""Digests of each 64 KiB block of data, and one SHA-256 root over those of a folder.

What depends on the kind of digest, and on its width, stands in `BlockDigest` alone.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import xxhash

BLOCK = 64 * 1024
"""Bytes of an array's data under one digest. Data starts behind the header."""

DigestName = Literal["xxh3", "sha256"]
"""The kinds of digests, as manifests name them."""

DigestValue = int | bytes
"""One digest, as an item of a table becomes by `item()`."""

Buffer = memoryview | bytes | bytearray

_Size = TypeVar("_Size", int, np.ndarray)


def count_blocks(size: _Size) -> _Size:
    """Count the blocks in `size` bytes of data, or in each of many sizes; the last may be short."""
    return -(-size // BLOCK)


def split_blocks(data: memoryview) -> Iterator[memoryview]:
    """Yield the blocks of `data`, in order."""
    return (data[start : start + BLOCK] for start in range(0, len(data), BLOCK))


@dataclass(frozen=True)
class BlockDigest:
    """A kind of digest: how one is computed, and how tables hold many.

    Attributes
    ----------
    name
        What manifests call it.
    dtype
        Dtype of one digest. A table is an array of it, (blocks,).
    compute
        Computes the digest of one block.
    in_kernels
        Whether kernels can compute it, and read tables in memory: those of XXH3.
    """

    name: DigestName
    dtype: np.dtype[Any]
    compute: Callable[[Buffer], DigestValue]
    in_kernels: bool = False

    def compute_blocks(self, data: memoryview) -> np.ndarray:
        """Digest `data` block by block: bytes in, the table (count_blocks(len(data)),) out."""
        return np.array([self.compute(block) for block in split_blocks(data)], self.dtype)

    def compute_root(self, table: np.ndarray) -> str:
        """Compute the SHA-256, in hex, of the data of a folder's `digests.npy`."""
        return hashlib.sha256(np.ascontiguousarray(table, self.dtype).tobytes()).hexdigest()

    def describe_file(self, blocks: int) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Return the dtype and shape of the array in `digests.npy`, for so many blocks."""
        if self.dtype.kind == "V":
            return np.dtype("|u1"), (blocks, self.dtype.itemsize)
        return self.dtype, (blocks,)

    def count_bytes(self, blocks: int) -> int:
        """Count the data bytes of the table of so many blocks."""
        return self.dtype.itemsize * blocks

    def view_table(self, data: np.ndarray | bytes | memoryview) -> np.ndarray:
        """View the data of a table, as bytes or as the array in `digests.npy`, as (blocks,)."""
        array = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
        return array.reshape(-1).view(self.dtype)

    def join_tables(self, tables: Iterable[np.ndarray]) -> np.ndarray:
        """Join the tables of several arrays: (blocks,), also of none."""
        return np.concatenate([np.empty(0, self.dtype), *tables])

    def make_zeros(self, blocks: int) -> np.ndarray:
        """Make a table of zeros, which no block digests to: (blocks,)."""
        return np.zeros(blocks, self.dtype)

    def format(self, digest: DigestValue) -> str:
        """Format a digest for messages, in hex."""
        if isinstance(digest, bytes):
            return digest.hex()
        return f"{digest:0{2 * self.dtype.itemsize}x}"


XXH3 = BlockDigest("xxh3", np.dtype("<u8"), xxhash.xxh3_64_intdigest, in_kernels=True)
"""XXH3-64, seed 0 (https://github.com/Cyan4973/xxHash)."""


def _compute_sha256(block: Buffer) -> bytes:
    return hashlib.sha256(block).digest()  # without the interpreter lock


SHA256 = BlockDigest("sha256", np.dtype("V32"), _compute_sha256)
"""SHA-256 (FIPS 180-4), for data from strangers: nobody knows how to make two blocks of one."""

BLOCK_DIGESTS = {digest.name: digest for digest in (XXH3, SHA256)}
"""Every kind, by name."""
