"""One array of a field, over all shards."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fieldslab.reader.stored.maps import map_keeper
from fieldslab.reader.stored.mirrors import MirroredArray
from fieldslab.reader.stored.shards import Shards
from fieldslab.schemas.access import ArrayReader
from fieldslab.schemas.digest import BLOCK, count_blocks
from fieldslab.schemas.errors import DamagedArray
from fieldslab.schemas.fields import ArraySpec, Field
from fieldslab.schemas.mapping import (
    advise_random_access,
    get_address,
    get_populate_call,
    map_zeros,
)
from fieldslab.schemas.sigbus import guard

if TYPE_CHECKING:
    from fieldslab.schemas.mirror.mirror import Mirror

_MUCH = 2**16
"""Bytes of an item from which zeros stand for it only if a file shows that items are as large."""


class _MappedArray:
    """The array of one shard, its reader (None for zeros), and its digests once they are needed."""

    __slots__ = ("array", "digests", "reader")

    def __init__(self, reader: ArrayReader | None, array: np.ndarray) -> None:
        self.reader = reader
        self.array = array
        self.digests: np.ndarray | None = None


class StoredArray:
    """One array of a field: in every shard that has it, mapped and verified as it is touched.

    A flipped bit on a disk or in a cable would otherwise reach the training unseen: a block is
    digested when something in it is first asked for. No memory access depends on the outcome;
    damage may as well come later.

    Kernels use addresses, and must not lose the memory there: take `map_keeper.lease`, call
    `map_shards` unless `all_mapped`, and hold the lease to the end. `array[shard]` needs none.

    Attributes
    ----------
    present
        Which shards store it: bool[shards]; of `valid`, also those where all rows are null.
    absent
        Which shards lack it, where others have it: their items are zeros. None where all have it.
    items, sizes
        Items of each shard's array, uint64[shards], and bytes of its data, int64[shards].
    addresses
        Where the data of each shard's array begins in memory, if it is mapped: int64[shards].
    mapped
        The same, and 0 for what is not mapped: int64[shards].
    pinned
        The same, of those that stay mapped as long as the slab is open: int64[shards].
    all_mapped
        Whether all are mapped.
    rows_at_once
        Rows of it that may be gathered under one lease, unless `all_mapped`.
    item_bytes
        Bytes of one item along axis 0.
    spec, role, dtype, shape
        What the manifest says of it; `shape` is that of one item.
    marks
        Which blocks were found right, shared with forked processes; None where nothing is verified.
    mirrored
        What brings blocks here of slabs that lie elsewhere; None without any.
    """

    def __init__(self, spec: ArraySpec, dtype: np.dtype[Any], field: Field, shards: Shards) -> None:
        """Map nothing yet; `dtype` is what its items are seen as."""
        self.spec = spec
        self.role = spec.role
        self.dtype = dtype
        self.shape = spec.shape
        self.item_bytes = spec.item_bytes
        self._field = field
        self._shards = shards
        items = shards.items[field.name, spec.role]
        self.items = items.astype(np.uint64)
        self.sizes = items * spec.item_bytes
        self.absent = absent = shards.members.find_absent(field.name, spec.role)
        mapped = items > 0 if spec.role == "valid" else np.ones(len(items), np.bool_)
        self.present = mapped if absent is None or spec.role == "valid" else ~absent
        self.addresses, self.mapped, self.pinned, self._tables, self._ticks = (
            np.zeros(len(items), np.int64) for _ in range(5)
        )
        self._arrays: dict[int, _MappedArray] = {}
        self._missing = int(np.count_nonzero(mapped))
        self.all_mapped = not self._missing
        self.rows_at_once = map_keeper.count_rows_at_once(self._missing)
        self._random = False
        self.marks = None
        if shards.marks is not None:
            blocks = count_blocks(self.sizes)
            self.marks = shards.marks.create_marks(field.name, spec.role, blocks)
            for shard in [] if absent is None else np.flatnonzero(absent).tolist():
                self.marks.mark_shard(shard, count_blocks(int(self.sizes[shard])))
        self.mirrored = None
        if shards.mirrors is not None and self.marks is not None:
            count = int(blocks.sum())
            self.mirrored = MirroredArray(
                shards.mirrors, field, spec.role, self.marks.firsts, count
            )
        map_keeper.add(self)

    def __getitem__(self, shard: int) -> np.ndarray:
        """The array of a shard that has it: (items, *shape), read-only.

        Raises what `ArrayReader.map` raises.
        """
        mapped = self._arrays.get(shard)
        return (self._map_array(shard) if mapped is None else mapped).array

    def check_item_size(self) -> None:
        """Compare a file with the manifest: that alone must not decide what memory is taken.

        Raises what `ArrayReader.map` raises.
        """
        filled = np.flatnonzero(self.present & (self.items > 0))
        if len(filled):
            self[int(filled[0])]

    def get_reader(self, shard: int) -> ArrayReader:
        """Return the reader of a shard's array."""
        reader = self._shards.get_folder(shard).get_array(self._field, self.role)
        if reader is None:
            raise KeyError(shard)
        return reader

    def get_path(self, shard: int) -> Path:
        """Return the path of a shard's array."""
        return self.get_reader(shard).path

    def map_shards(self, shards: np.ndarray) -> None:
        """Map the arrays of shards, int64[n], that are not mapped: each has one.

        Raises what `ArrayReader.map` raises.
        """
        from fieldslab.reader.kernels import find_unmapped_shards  # numba: see `verify_blocks`

        missing = np.empty(len(shards), np.int64)
        tick = next(map_keeper.ticks)
        count = find_unmapped_shards(shards, self.mapped, self._ticks, tick, missing)
        for shard in missing[:count].tolist():
            self._map_array(shard)

    def pin_shards(self, shards: np.ndarray) -> None:
        """Keep the arrays of shards, int64[n], mapped as long as the slab is open."""
        for shard in np.unique(shards[self.pinned[shards] == 0]).tolist():
            with map_keeper.lock:
                self.pinned[shard] = self.mapped[shard]
            if not self.pinned[shard]:
                self._map_array(shard, pin=True)

    def advise_random_access(self) -> None:
        """Tell the system that what lies behind a page that is read is not needed next."""
        self._random = True
        with map_keeper.lock:
            for mapped in self._arrays.values():
                advise_random_access(mapped.array)

    def list_cold(self) -> tuple[np.ndarray, np.ndarray]:
        """See `MappedArrays`."""
        shards = np.flatnonzero((self.mapped != 0) & (self.pinned == 0))
        return shards, self._ticks[shards]

    def unmap(self, shards: Sequence[int]) -> list[_MappedArray]:
        """See `MappedArrays`. `addresses` stay: kernels of others may be reading them."""
        self.all_mapped = False
        self._missing += len(shards)
        self.mapped[shards] = 0
        self._tables[shards] = 0
        return [self._arrays.pop(shard) for shard in shards]

    def verify_items(self, shard: int, start: int, stop: int) -> None:
        """Verify what lies under items `start` up to `stop` of a shard, unless it was before."""
        marks = self.marks
        if marks is None or marks.complete:
            return
        missing = marks.find_unmarked(shard, start * self.item_bytes, stop * self.item_bytes)
        if missing and self.mirrored is not None:
            first = int(marks.firsts[shard])
            blocks = np.array(missing, np.int64) + first
            self.mirrored.verify(
                blocks, lambda some: self._verify_shard_blocks(shard, (some - first).tolist())
            )
        elif missing:
            self._verify_shard_blocks(shard, missing)

    def verify_blocks(self, blocks: np.ndarray) -> None:
        """Verify blocks given by their indexes over all shards, ascending and none twice.

        The lock is free meanwhile: threads verify side by side.
        """
        if self.mirrored is None:
            self._verify_present_blocks(blocks)
        else:
            self.mirrored.verify(blocks, self._verify_present_blocks)

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
                self.sizes,
                self._tables,
                table,
                *get_populate_call(),
            )
            if position == len(blocks):
                break
            shards, places = marks.locate_blocks(blocks[position : position + 1])
            self._verify_block(int(shards[0]), int(places[0]))
            position += 1
        marks.update_complete()

    def forget_marks(self) -> None:
        """Have all blocks verified again."""
        if self.marks is not None:
            for shard in np.flatnonzero(self.present).tolist():
                self.marks.clear_blocks(shard, count_blocks(int(self.sizes[shard])))

    def forget_units(self, mirror: "Mirror", units: np.ndarray) -> None:
        """Take the marks from all blocks of those shards whose array was evicted from a mirror."""
        if self.mirrored is not None and self.marks is not None:
            for shard in self.mirrored.find_shards(mirror, units):
                self.marks.clear_blocks(shard, count_blocks(int(self.sizes[shard])))

    def make_damaged_offsets_error(self, shard: int, index: int, limit: int) -> DamagedArray:
        """Make the error for a damaged offset at `index` or after it."""
        start, stop = self[shard][index : index + 2].tolist()
        return self.get_reader(shard).make_damaged_offsets_error(index, start, stop, limit)

    def _map_array(self, shard: int, *, pin: bool = False) -> _MappedArray:
        if self.absent is not None and self.absent[shard]:
            shape = int(self.items[shard]), *self.shape
            if self.item_bytes > _MUCH:
                self.check_item_size()
            mapped = _MappedArray(None, map_zeros(shape, self.dtype))
        else:
            reader = self.get_reader(shard)
            mapped = _MappedArray(reader, reader.map().view(self.dtype))
            guard.arm()
        if self._random:
            advise_random_access(mapped.array)
        with map_keeper.lock:
            array = self._arrays.setdefault(shard, mapped)
            if array is mapped:  # else another thread was faster
                self._ticks[shard] = next(map_keeper.ticks)
                self.addresses[shard] = self.mapped[shard] = get_address(mapped.array)
                self._missing -= 1
                self.all_mapped = not self._missing
            if pin:
                self.pinned[shard] = self.mapped[shard]
        map_keeper.make_room()
        return array

    def _verify_shard_blocks(self, shard: int, blocks: Sequence[int]) -> None:
        assert self.marks is not None
        for block in blocks:
            self._verify_block(shard, block)
        self.marks.update_complete()

    def _verify_block(self, shard: int, block: int) -> None:
        assert self.marks is not None
        mapped = self._arrays.get(shard) or self._map_array(shard)
        data = mapped.array.reshape(-1).view(np.uint8)[block * BLOCK : (block + 1) * BLOCK]
        reader = mapped.reader or self.get_reader(shard)
        reader.populate(data, block)
        digests, kind = mapped.digests, reader.folder.digest
        if digests is None:
            digests = mapped.digests = reader.load_digests()
            with map_keeper.lock:
                if kind.in_kernels and self._arrays.get(shard) is mapped:
                    self._tables[shard] = get_address(digests)
        if kind.compute(data.data) != digests[block].item():
            reader.check_blocks(block, data)
        self.marks.mark_block(shard, block)
