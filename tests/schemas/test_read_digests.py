"""Digests of a file's blocks by one call: those of the library, as far as the file can be read."""

import os
from pathlib import Path

import numpy as np

from fieldslab.schemas.digest import BLOCK, XXH3
from fieldslab.schemas.mapping import allocate_aligned
from fieldslab.schemas.native import digest_file_blocks


def test_digests_are_those_of_the_library(tmp_path: Path) -> None:
    """Whatever the buffer holds, blocks are digested up to the first that cannot be read whole."""
    data = np.random.default_rng(0).integers(0, 255, 7 * BLOCK + 100, np.uint8)
    path = tmp_path / "data"
    path.write_bytes(data.tobytes())
    fd = os.open(path, os.O_RDONLY)
    try:
        for offset in (0, 4096):
            whole = (len(data) - offset) // BLOCK
            expected = XXH3.compute_blocks(data[offset:].data)[:whole]
            for blocks in (1, 2, 16):
                buffer, out = allocate_aligned(blocks * BLOCK), np.zeros(whole, np.uint64)
                assert digest_file_blocks(fd, offset, buffer, out) == whole
                assert (out == expected).all()
        assert digest_file_blocks(fd, 0, allocate_aligned(BLOCK), np.zeros(9, np.uint64)) == 7
        assert digest_file_blocks(fd, 0, allocate_aligned(BLOCK), np.zeros(0, np.uint64)) == 0
    finally:
        os.close(fd)
    assert digest_file_blocks(fd, 0, allocate_aligned(BLOCK), np.zeros(1, np.uint64)) == 0


def test_aligned_memory_begins_a_page() -> None:
    """It has the size asked for, from the start of a page on."""
    for size in (0, 1, 4096, 100_000):
        data = allocate_aligned(size)
        assert len(data) == size
        assert size == 0 or data.ctypes.data % os.sysconf("SC_PAGE_SIZE") == 0
