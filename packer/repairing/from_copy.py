"""Blocks from another copy of the slab, in a directory or at a URL: only those that are damaged."""

from contextlib import suppress

import numpy as np

from fieldslab.packer.check.block_check import REMOTE_CHUNK
from fieldslab.packer.check.digests import compute_digests
from fieldslab.packer.check.threads import REMOTE_THREADS, THREADS, open_thread_pool
from fieldslab.packer.repairing.damage import count_blocks_there, find_runs, read_blocks
from fieldslab.packer.repairing.patch import Patch
from fieldslab.schemas.access import Folder
from fieldslab.schemas.digest import BLOCK, BlockDigest
from fieldslab.schemas.errors import DamagedArray, Unreadable
from fieldslab.schemas.files import RemoteDescriptor

_STEP = REMOTE_CHUNK // BLOCK
_ATTEMPTS = 3
"""How often bytes of another machine are read: some are damaged on their way."""


def find_table(folder: Folder) -> np.ndarray | None:
    """Load the digest table of the same folder of a copy; None where that is damaged, too."""
    with suppress(DamagedArray, Unreadable):
        return folder.load_digests()
    return None


def fill_from_copy(folder: Folder, patch: Patch, expected: np.ndarray) -> None:
    """Fill what is left of a patch from the same folder of a copy; `expected` is (blocks,).

    What is damaged there, too, is left. Raises OutputError, and RemoteUnreadable of stores.
    """
    file = patch.file
    try:
        with folder.open() as opened, opened.open_file(file.name) as (fd, size):
            remote = isinstance(fd, RemoteDescriptor)
            copied_blocks = count_blocks_there(file, size)

            def fill(run: tuple[int, int]) -> None:
                for _ in range(_ATTEMPTS if remote else 1):
                    missing = patch.left[run[0] : run[1]]
                    for first, stop in find_runs(missing):
                        a, b = run[0] + first, run[0] + stop
                        for start, data in read_blocks(fd, patch.path, file, a, b, REMOTE_CHUNK):
                            _take(folder.digest, patch, expected, start, data)

            runs = [
                (first, min(first + _STEP, stop))
                for begin, stop in find_runs(patch.left)
                for first in range(begin, min(stop, copied_blocks), _STEP)
            ]
            runs = [(first, min(stop, copied_blocks)) for first, stop in runs]
            with open_thread_pool(REMOTE_THREADS if remote else THREADS) as run:
                list(run(fill, runs))
    except DamagedArray:
        return


def _take(
    digest: BlockDigest, patch: Patch, expected: np.ndarray, first: int, data: np.ndarray
) -> None:
    """Write those of some blocks that have the right digests."""
    same = compute_digests(digest, data) == expected[first : first + -(-len(data) // BLOCK)]
    for start, stop in find_runs(same):
        patch.write((first + start) * BLOCK, data[start * BLOCK : stop * BLOCK])
        patch.left[first + start : first + stop] = False
