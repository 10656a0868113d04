"""Digests of blocks: by libraries, or XXH3 by code without the lock once much was digested.

By that code, two threads verify about 1.6 times as fast what is in memory: the xxhash library has
them take turns. To make it takes as long as it saves over 1.5 GB, and commands are to start at
once.
"""

from collections.abc import Callable

import numpy as np

from fieldslab.schemas.digest import XXH3, BlockDigest

WORTH = 1024**3
"""Bytes of a slab that are digested before the code is made: then there are likely many more."""


def compute_digests(digest: BlockDigest, data: np.ndarray) -> np.ndarray:
    """Digest uint8[size] block by block: (blocks,)."""
    return _digests(data) if digest is XXH3 else digest.compute_blocks(data.data)


def digest_file(
    digest: BlockDigest, fd: int, offset: int, blocks: int, buffer: np.ndarray
) -> np.ndarray:
    """Digest blocks of a file from `offset` on, by way of `buffer`: (up to `blocks`,).

    They are fewer where one cannot be read, and none before `switch_to_native_digests`, or
    of another kind than XXH3.
    """
    if digest is not XXH3 or _digests is _digest_by_library:
        return digest.make_zeros(0)
    from fieldslab.schemas import native

    digests = np.empty(blocks, np.uint64)
    return digests[: native.digest_file_blocks(fd, offset, buffer, digests)]


def switch_to_native_digests() -> None:
    """Compute XXH3 without the interpreter lock from now on, in every thread."""
    global _digests
    if _digests is not _digest_by_library:
        return
    from fieldslab.schemas import native

    native.digest_blocks(np.zeros(0, np.uint8))  # compiles
    _digests = native.digest_blocks


def _digest_by_library(data: np.ndarray) -> np.ndarray:
    return XXH3.compute_blocks(data.data)


_digests: Callable[[np.ndarray], np.ndarray] = _digest_by_library
