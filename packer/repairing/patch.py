"""A file that takes the place of a damaged one: written beside it, synced, then renamed."""

import os
import re
import secrets
from contextlib import suppress

import numpy as np

from fieldslab.packer.check.digests import compute_digests
from fieldslab.packer.repairing.damage import FileScan, count_blocks_there, find_runs, read_blocks
from fieldslab.schemas.arrays import HEADER, make_array_header
from fieldslab.schemas.digest import BLOCK, BlockDigest
from fieldslab.schemas.errors import DamagedArray, Unreadable
from fieldslab.schemas.files import OpenFolder, close_quietly, read_bytes
from fieldslab.schemas.write_errors import name_write_errors

_NAME = re.compile(r"\..*\.[0-9a-f]{8}\.(repairing|unfinished)")


class Patch:
    """The new file of one array, for a `with` block; without `put_in_place` it is removed again.

    Attributes
    ----------
    left
        Blocks that are still to be repaired: bool[blocks].
    """

    def __init__(self, opened: OpenFolder, scan: FileScan, digest: BlockDigest) -> None:
        """Write beside the file that was scanned, in a folder that is open."""
        self.file = scan.file
        self.left = scan.damaged.copy()
        self.path = opened.path / scan.file.name
        self._opened = opened
        self._scan = scan
        self._digest = digest
        self._name = f".{scan.file.name}.{secrets.token_hex(4)}.repairing"
        self._fd = -1

    def __enter__(self) -> "Patch":
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with name_write_errors(self.path):
            self._fd = os.open(self._name, flags, 0o666, dir_fd=self._opened.fd)
            os.ftruncate(self._fd, HEADER + self.file.data_bytes)
        return self

    def __exit__(self, *_: object) -> None:
        close_quietly(self._fd)
        with suppress(OSError):
            os.unlink(self._name, dir_fd=self._opened.fd)

    def write(self, offset: int, data: np.ndarray) -> None:
        """Write bytes of the array's data from `offset` on; several threads may.

        Blocks that were not damaged come from the old file in the end, whatever is written there.
        Nothing is written behind the end: offsets of another source may lead there.
        """
        if offset > self.file.data_bytes:
            return
        view = memoryview(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data)
        with name_write_errors(self.path):
            while view:
                count = os.pwrite(self._fd, view, HEADER + offset)
                view, offset = view[count:], offset + count

    def read_item(self, index: int) -> int:
        """Read an item of offsets, as it is in the new file now."""
        size = self.file.item_bytes
        data = read_bytes(self._fd, size, HEADER + index * size, self.path)
        return int.from_bytes(data, "little")

    def compute_digests(self) -> np.ndarray:
        """Digest the blocks that are still to be repaired, as they are now: (blocks,)."""
        digests = self._digest.make_zeros(self.file.blocks)
        for first, stop in find_runs(self.left):
            for start, data in read_blocks(self._fd, self.path, self.file, first, stop):
                computed = compute_digests(self._digest, data)
                digests[start : start + len(computed)] = computed
        return digests

    def accept(self, expected: np.ndarray) -> None:
        """Take blocks for repaired that have these digests now: (blocks,)."""
        if self.left.any():
            self.left &= self.compute_digests() != expected

    def copy_good_blocks(self) -> None:
        """Copy what was not damaged from the old file; and what is left, as it was."""
        good = ~self._scan.damaged
        blocks = good | self.left
        if not blocks.any():
            return
        try:
            with self._opened.open_file(self.file.name) as (fd, size):
                blocks[count_blocks_there(self.file, size) :] = False
                for first, stop in find_runs(blocks):
                    for start, data in read_blocks(fd, self.path, self.file, first, stop):
                        self.write(start * BLOCK, data)
        except (DamagedArray, Unreadable):
            return  # there is nothing to copy

    def put_in_place(self, expected: np.ndarray) -> None:
        """Have the new file take the place of the old one, durably.

        Raises Unreadable where a block that was good cannot be read any more, and OutputError.
        """
        self.copy_good_blocks()
        self._check_good_blocks(expected)
        with name_write_errors(self.path):
            header = np.frombuffer(make_array_header(self.file.dtype, self.file.shape), np.uint8)
            self.write(-HEADER, header)
            os.ftruncate(self._fd, HEADER + self.file.data_bytes)
            with suppress(OSError):
                os.fchmod(self._fd, os.stat(self.file.name, dir_fd=self._opened.fd).st_mode & 0o777)
            os.fsync(self._fd)
            os.rename(
                self._name,
                self.file.name,
                src_dir_fd=self._opened.fd,
                dst_dir_fd=self._opened.fd,
            )
            os.fsync(self._opened.fd)

    def _check_good_blocks(self, expected: np.ndarray) -> None:
        left, self.left = self.left, ~self.left
        damaged = (self.compute_digests() != expected) & self.left
        self.left = left
        if damaged.any():
            raise Unreadable(
                "blocks that were good a moment ago are not any more",
                file=self.path,
                field=self.file.field.name,
                offset=HEADER + int(np.argmax(damaged)) * BLOCK,
                hint="The disk or the memory of this machine fails: copy the slab elsewhere.",
            )


def remove_unfinished(opened: OpenFolder) -> None:
    """Remove what repairs that were killed have left in a folder."""
    for name in opened.list_names():
        if _NAME.fullmatch(name):
            with suppress(OSError):
                os.unlink(name, dir_fd=opened.fd)
