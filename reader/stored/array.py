"""One array of a field, over all shards."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fieldslab.reader.stored.folder import Folder
from fieldslab.reader.stored.marks import Marks
from fieldslab.schemas.arrays import HEADER, have_read
from fieldslab.schemas.digest import BLOCK, block_count, digest
from fieldslab.schemas.errors import DamagedArray, Unreadable
from fieldslab.schemas.fields import Field, Role
from fieldslab.schemas.layout import ArrayFile
from fieldslab.schemas.mapping import populating


class StoredArray:
    """One array of a field: in every shard that has it, mapped, and verified as it is touched.

    A flipped bit on a disk or in a cable would otherwise reach the training unseen: a block is
    digested in each process when something in it is first asked for. No memory access depends
    on the outcome; damage may as well come later.

    Attributes
    ----------
    arrays
        The mapped array of each shard, (items, *shape), read-only; None where there is none.
    present
        Which shards have it: bool[shards].
    addresses
        Where the data of each shard's array begins in memory, 0 without: int64[shards].
    item_bytes
        Bytes of one item along axis 0.
    role, dtype, shape
        What the manifest says of it; `shape` is that of one item.
    marks
        Which blocks were found right; None where nothing is verified.
    """

    def __init__(
        self,
        field: Field,
        role: Role,
        dtype: np.dtype[Any],
        folders: Sequence[Folder],
        verify: bool,
    ) -> None:
        """Map the array in every folder; `dtype` is what its items are seen as."""
        self._field = field
        self._folders = folders
        self.role = role
        self.dtype = dtype
        shapes = (spec.shape for spec in field.arrays() if spec.role == role)
        self.shape = next(shapes, ())
        self._files = [folder.file(field, role) for folder in folders]
        self.arrays = [
            None if file is None else folder.map(file).view(dtype)
            for folder, file in zip(folders, self._files, strict=True)
        ]
        self.present = np.array([file is not None for file in self._files], np.bool_)
        addresses = [0 if array is None else address_of(array) for array in self.arrays]
        self.addresses = np.array(addresses, np.int64)
        sizes = [0 if file is None else file.data_bytes for file in self._files]
        self._sizes = np.array(sizes, np.int64)
        self._digests: list[np.ndarray | None] = [None] * len(folders)
        self._tables = np.zeros(len(folders), np.int64)  # where they are, 0 until they are needed
        self.item_bytes = max((file.item_bytes for file in self._files if file), default=0)
        self.marks = None
        if verify:
            self.marks = Marks([block_count(size) for size in sizes])

    def __getitem__(self, shard: int) -> np.ndarray:
        """The array of a shard that has it."""
        array = self.arrays[shard]
        if array is None:
            raise KeyError(shard)
        return array

    def path(self, shard: int) -> Any:
        """File of a shard's array."""
        return self._folders[shard].path / self._file(shard).name

    def verify_items(self, shard: int, start: int, stop: int) -> None:
        """Verify what lies under items `start` up to `stop` of a shard, unless it was before."""
        if self.marks is None or self.marks.complete:
            return
        missing = self.marks.missing(shard, start * self.item_bytes, stop * self.item_bytes)
        for block in missing:
            self._verify_block(shard, block)
        if missing:
            self.marks.settle()

    def verify_blocks(self, blocks: np.ndarray) -> None:
        """Verify blocks given as indexes into `marks.table`, ascending and none twice.

        The lock is free meanwhile: threads verify side by side.
        """
        from fieldslab.reader.stored.verification import verify  # numba: gathers have it anyway

        marks = self.marks
        if marks is None:
            return
        at = 0
        while True:
            at = verify(
                blocks, at, marks.firsts, self.addresses, self._sizes, self._tables, marks.table,
                *populating(),
            )  # fmt: skip
            if at == len(blocks):
                break
            [(shard, block)] = marks.split(blocks[at : at + 1])
            self._verify_block(shard, block)
            at += 1
        marks.settle()

    def suspects(self, shard: int, begin: int, end: int) -> tuple[int, int]:
        """First and last row of a shard that have something in the data bytes begin..end-1."""
        first, last = begin // self.item_bytes, (end - 1) // self.item_bytes
        return (first - 1 if self.role.endswith("offsets") else first), last

    def _verify_block(self, shard: int, block: int) -> None:
        assert self.marks is not None
        data = self[shard].reshape(-1).view(np.uint8)[block * BLOCK : (block + 1) * BLOCK]
        self._have_read(shard, block, data)
        found = digest(data.data)
        expected = int(self._digests_of(shard)[block])
        if found != expected:
            raise self._damaged(shard, block, expected, found)
        self.marks.set(shard, block)

    def _digests_of(self, shard: int) -> np.ndarray:
        digests = self._digests[shard]
        if digests is None:
            digests = self._folders[shard].digests(self._file(shard))
            self._digests[shard], self._tables[shard] = digests, address_of(digests)
        return digests

    def _have_read(self, shard: int, block: int, data: np.ndarray) -> None:
        """Where the disk fails or the file was cut off, raise before a touch ends the process."""
        try:
            have_read(data, self.path(shard), self._field.name, block * BLOCK)
        except Unreadable:
            self._folders[shard].map(self._file(shard))  # tells if the file was cut off
            raise

    def _damaged(self, shard: int, block: int, expected: int, found: int) -> DamagedArray:
        size = self._file(shard).data_bytes
        begin, end = block * BLOCK, min((block + 1) * BLOCK, size)
        folder = self._folders[shard]
        first, last = (
            folder.first_row + min(max(row, 0), folder.rows - 1)
            for row in self.suspects(shard, begin, end)
        )
        return DamagedArray(
            f"damaged: {end - begin} bytes do not match their digest",
            file=self.path(shard),
            field=self._field.name,
            row=f"{first}..{last}" if folder.rows else None,
            offset=HEADER + begin,
            expected=f"{expected:016x}",
            found=f"{found:016x}",
            hint="Restore the file from a copy, or pack the slab again.",
        )

    def _file(self, shard: int) -> ArrayFile:
        file = self._files[shard]
        if file is None:
            raise KeyError(shard)
        return file


def address_of(array: np.ndarray) -> int:
    """Where the data of an array begins in memory."""
    address: int = array.__array_interface__["data"][0]
    return address
