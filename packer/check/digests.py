"""Digests of blocks: by the xxhash library, or by code without the lock once much was digested.

By that code, two threads verify about 1.6 times as fast what is in memory: the library has them
take turns. To make it takes as long as it saves over 1.5 GB, and commands are to start at once.
"""

from collections.abc import Callable

import numpy as np

from fieldslab.schemas.digest import digest_blocks

WORTH = 1024**3
"""Bytes of a slab that are digested before the code is made: then there are likely many more."""


def compute_digests(data: np.ndarray) -> np.ndarray:
    """Digest uint8[size] block by block: uint64[blocks]."""
    return _digests(data)


def digest_file(fd: int, offset: int, blocks: int, buffer: np.ndarray) -> np.ndarray:
    """Digest blocks of a file from `offset` on, by way of `buffer`: uint64[up to `blocks`].

    They are fewer where one cannot be read, and none before `switch_to_native_digests`.
    """
    if _digests is _digest_by_library:
        return np.empty(0, np.uint64)
    from fieldslab.schemas import native

    digests = np.empty(blocks, np.uint64)
    return digests[: native.digest_file_blocks(fd, offset, buffer, digests)]


def switch_to_native_digests() -> None:
    """Digest without the interpreter lock from now on, in every thread; calls after do nothing."""
    global _digests
    if _digests is not _digest_by_library:
        return
    from fieldslab.schemas import native

    native.digest_blocks(np.zeros(0, np.uint8))  # compiles
    _digests = native.digest_blocks


def _digest_by_library(data: np.ndarray) -> np.ndarray:
    return digest_blocks(data.data)


_digests: Callable[[np.ndarray], np.ndarray] = _digest_by_library
