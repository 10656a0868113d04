"""One array of a field, over all shards."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fieldslab.reader.stored.marks import SharedMarks
from fieldslab.reader.stored.mirrored import MirroredArray
from fieldslab.schemas.access import ArrayReader, Folder
from fieldslab.schemas.digest import BLOCK, count_blocks, digest
from fieldslab.schemas.errors import DamagedArray
from fieldslab.schemas.fields import ArraySpec, Field
from fieldslab.schemas.mapping import get_address, get_populate_call


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
    items
        Items of each shard's array: uint64[shards].
    addresses
        Where the data of each shard's array begins in memory, 0 without: int64[shards].
    item_bytes
        Bytes of one item along axis 0.
    role, dtype, shape
        What the manifest says of it; `shape` is that of one item.
    marks
        Which blocks were found right, shared with forked processes; None where nothing is verified.
    mirrored
        What brings blocks here of a slab that lies elsewhere; None for others.
    """

    def __init__(
        self,
        spec: ArraySpec,
        dtype: np.dtype[Any],
        field: Field,
        folders: Sequence[Folder],
        marks: SharedMarks | None,
    ) -> None:
        """Map the array in every folder; `dtype` is what its items are seen as.

        Without `marks`, nothing is verified.
        """
        self.role = spec.role
        self.dtype = dtype
        self.shape = spec.shape
        self._readers = [folder.get_array(field, spec.role) for folder in folders]
        self.arrays = [
            None if reader is None else reader.map().view(dtype) for reader in self._readers
        ]
        self.present = np.array([array is not None for array in self.arrays], np.bool_)
        addresses = [0 if array is None else get_address(array) for array in self.arrays]
        self.addresses = np.array(addresses, np.int64)
        items = [0 if array is None else len(array) for array in self.arrays]
        self.items = np.array(items, np.uint64)
        sizes = [0 if array is None else array.nbytes for array in self.arrays]
        self._sizes = np.array(sizes, np.int64)
        self._digests: list[np.ndarray | None] = [None] * len(folders)  # until they are needed
        self._tables = np.zeros(len(folders), np.int64)  # where they are, 0 until then
        self.item_bytes = spec.item_bytes
        self.marks = None
        if marks is not None:
            self.marks = marks.create_marks(field.name, spec.role, count_blocks(self._sizes))
        mirror = folders[0].mirror if folders else None
        self.mirrored = None
        if mirror is not None and self.marks is not None:
            self.mirrored = MirroredArray(mirror, field, spec.role, self.marks.firsts)

    def __getitem__(self, shard: int) -> np.ndarray:
        """The array of a shard that has it."""
        array = self.arrays[shard]
        if array is None:
            raise KeyError(shard)
        return array

    def get_reader(self, shard: int) -> ArrayReader:
        """Return the reader of a shard's array."""
        reader = self._readers[shard]
        if reader is None:
            raise KeyError(shard)
        return reader

    def get_path(self, shard: int) -> Path:
        """Return the path of a shard's array."""
        return self.get_reader(shard).path

    def verify_items(self, shard: int, start: int, stop: int) -> None:
        """Verify what lies under items `start` up to `stop` of a shard, unless it was before."""
        if self.marks is None or self.marks.complete:
            return
        missing = self.marks.find_unmarked(shard, start * self.item_bytes, stop * self.item_bytes)
        if missing and self.mirrored is not None:
            blocks = np.array(missing, np.int64) + self.marks.firsts[shard]
            self.mirrored.verify(blocks, partial(self._verify_shard_blocks, shard, missing))
        elif missing:
            self._verify_shard_blocks(shard, missing)

    def verify_blocks(self, blocks: np.ndarray) -> None:
        """Verify blocks given by their indexes over all shards, ascending and none twice.

        The lock is free meanwhile: threads verify side by side.
        """
        if self.mirrored is None:
            self._verify_present_blocks(blocks)
        else:
            self.mirrored.verify(blocks, partial(self._verify_present_blocks, blocks))

    def _verify_present_blocks(self, blocks: np.ndarray) -> None:
        from fieldslab.reader.stored.verification import (
            verify_and_mark_blocks,  # numba: gathers have it anyway
        )

        marks = self.marks
        if marks is None:
            return
        table, position = get_address(marks.table), 0
        while True:
            position = verify_and_mark_blocks(
                blocks,
                position,
                marks.firsts,
                self.addresses,
                self._sizes,
                self._tables,
                table,
                *get_populate_call(),
            )
            if position == len(blocks):
                break
            [(shard, block)] = marks.locate_blocks(blocks[position : position + 1])
            self._verify_block(shard, block)
            position += 1
        marks.update_complete()

    def forget_units(self, units: np.ndarray) -> None:
        """Take the marks from all blocks of those shards whose array was evicted from a mirror."""
        if self.mirrored is not None and self.marks is not None:
            for shard in self.mirrored.find_shards(units):
                self.marks.clear_blocks(shard, count_blocks(int(self._sizes[shard])))

    def make_damaged_offsets_error(self, shard: int, index: int, limit: int) -> DamagedArray:
        """Make the error for a damaged offset at `index` or after it."""
        start, stop = self[shard][index : index + 2].tolist()
        return self.get_reader(shard).make_damaged_offsets_error(index, start, stop, limit)

    def _verify_shard_blocks(self, shard: int, blocks: Sequence[int]) -> None:
        assert self.marks is not None
        for block in blocks:
            self._verify_block(shard, block)
        self.marks.update_complete()

    def _verify_block(self, shard: int, block: int) -> None:
        assert self.marks is not None
        reader = self.get_reader(shard)
        data = self[shard].reshape(-1).view(np.uint8)[block * BLOCK : (block + 1) * BLOCK]
        reader.populate(data, block)
        digests = self._digests[shard]
        if digests is None:
            digests = self._digests[shard] = reader.load_digests()
            self._tables[shard] = get_address(digests)
        if digest(data.data) != digests[block]:
            reader.check_blocks(block, data)
        self.marks.mark_block(shard, block)
