"""Where the values of rows lie in memory: one kernel call for a batch, with little around it.

At 256 rows a batch, checks and steps in numpy would take ten times as long as the search itself.
What the kernel does not answer, such as rows in blocks that are still to be verified, takes the way
of `gather`, which verifies, and raises what is to be raised.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fieldslab.reader.buffers import Pool
from fieldslab.reader.gather import count_elements, find_addresses, locate_rows
from fieldslab.reader.kernels import BLOCK_BITS, find_shard, load_i64
from fieldslab.reader.rows import ShardDirectory
from fieldslab.reader.stored.array import StoredArray
from fieldslab.reader.stored.changes import Changes
from fieldslab.reader.stored.evictions import Evictions
from fieldslab.reader.stored.field import StoredField
from fieldslab.reader.stored.maps import map_keeper
from fieldslab.reader.views import View, resolve_rows
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.jit import inlined, kernel, load_u8, load_u64, prefetch
from fieldslab.schemas.mapping import get_address

_Array = np.ndarray
_Result = TypeVar("_Result")


class _Search(NamedTuple):
    """A field, and what `_find_rows` needs of it: int64[12]."""

    stored: StoredField
    places: np.ndarray


class RowFinder:
    """Finds rows of the fields of a slab. Any thread may call it."""

    def __init__(
        self,
        directory: ShardDirectory,
        pool: Pool,
        load_field: Callable[[str], StoredField],
        evictions: Evictions | None,
        changes: Changes,
    ) -> None:
        self._evictions = evictions
        self._changes = changes
        self._directory = directory
        self._pool = pool
        self._load_field = load_field
        self._by_address: dict[str, _Search] = {}
        self._by_length: dict[str, _Search] = {}

    def find_addresses(
        self, view: View, rows: np.ndarray, name: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find where rows of a view lie, uint64[n], and their bytes, int64[n]: `Slab.addresses`."""
        search = self._by_address.get(name)
        if search is None:
            search = self._by_address[name] = self._prepare_search(name, with_values=True)
        self._changes.check()
        view, rows = resolve_rows(view, rows)
        out = np.empty((2, len(rows)), np.int64)
        lease = map_keeper.lease  # what the kernel finds mapped stays in memory
        if self._evictions is None and _find_rows(
            rows, len(view), view.start, view.step, search.places, out
        ):
            self._changes.check()  # zeros in the place of a page look like offsets
            return out[0].view(np.uint64), out[1]
        del lease
        locations = locate_rows(self._directory, self._pool, view, rows)
        if search.stored.frames is None:
            search.stored.values.pin_shards(locations.shards)
        find = partial(find_addresses, search.stored, locations, self._pool)
        if self._evictions is not None:
            self._evictions.pin([search.stored], locations.shards)
        return self._read(search.stored, locations.shards, find)

    def count_elements(self, view: View, rows: np.ndarray, name: str) -> np.ndarray:
        """Count the elements of rows of variable length: int64[n]; see `Slab.lengths`."""
        search = self._by_length.get(name)
        if search is None:
            search = self._by_length[name] = self._prepare_search(name, with_values=False)
        self._changes.check()
        view, rows = resolve_rows(view, rows)
        out = np.empty((2, len(rows)), np.int64)
        lease = map_keeper.lease  # what the kernel finds mapped stays in memory
        if self._evictions is None and _find_rows(
            rows, len(view), view.start, view.step, search.places, out
        ):
            self._changes.check()
            return out[1]
        del lease
        locations = locate_rows(self._directory, self._pool, view, rows)
        count = partial(count_elements, search.stored, locations, self._pool)
        return self._read(search.stored, locations.shards, count)

    def _read(self, stored: StoredField, shards: _Array, read: Callable[[], _Result]) -> _Result:
        """See `Storage.read`."""
        if self._evictions is None:
            return self._changes.read(read)
        return self._changes.read(partial(self._evictions.read, [stored], shards, read))

    def _prepare_search(self, name: str, *, with_values: bool) -> _Search:
        stored = self._load_field(name)
        if with_values and stored.conversion is not None:
            hint = "Ask the slab that was opened for them."
            raise UsageError("values that are cast have no addresses", field=name, hint=hint)
        if with_values and stored.codes is not None:
            hint = "Gather them: that replaces codes."
            raise UsageError("codes of slabs that differ have no addresses", field=name, hint=hint)
        item, values, offsets = 1, [0, 0, 0], [0, 0, 0]
        if with_values:
            item, values = stored.values.item_bytes, _list_places(stored.values, pinned=True)
        if stored.offsets is not None:
            offsets = _list_places(stored.offsets, pinned=False)
        elements = get_address(stored.values.items)
        lookup = self._directory.lookup
        compressed = stored.frames is not None
        places = np.array([*lookup, item, *values, *offsets, elements, compressed], np.int64)
        return _Search(stored, places)


def _list_places(array: StoredArray, *, pinned: bool) -> list[int]:
    """Addresses of the arrays that say where an array lies, and which blocks were verified."""
    marks = array.marks
    verified = [0, 0] if marks is None else [get_address(marks.firsts), get_address(marks.table)]
    return [get_address(array.pinned if pinned else array.mapped), *verified]


@inlined
def _are_verified(firsts: int, marks: int, shard: int, begin: int, end: int) -> bool:
    """Return True if the blocks of these bytes were verified, or need not be."""
    if firsts == 0 or begin >= end:
        return True
    first = load_i64(firsts + 8 * shard)
    for block in range(first + (begin >> BLOCK_BITS), first + ((end - 1) >> BLOCK_BITS) + 1):
        if (load_u8(marks + (block >> 3)) >> (block & 7)) & 1 == 0:
            return False
    return True


@kernel("boolean(int64[::1], int64, int64, int64, int64[::1], int64[:, ::1])")
def _find_rows(
    rows: _Array, length: int, first: int, step: int, places: _Array, out: _Array
) -> Any:
    """Find rows of a view, as `kernels.find_shards` has it; False where that takes more.

    `out` gets addresses, and bytes. `places` are those of `RowFinder`: the lookup of shards; bytes
    of an item; for values, and for offsets, the addresses of `StoredArray.pinned` or `mapped`, and
    of the firsts and the table of its marks, 0 for what is not there; the address of the numbers
    of elements; and whether the field is compressed.
    """
    starts, table, shift, item = places[0], places[1], places[2], places[3]
    values, offsets = places[4], places[7]
    if places[11] != 0:
        return False
    for i in range(len(rows)):
        row = rows[i]
        if row < 0:
            row += length
        if row < 0 or row >= length:
            return False
        row = first + step * row
        shard = find_shard(row, starts, table, shift)
        place = row - load_i64(starts + 8 * shard)
        out[0, i] = shard
        out[1, i] = place
        if offsets != 0:
            prefetch(load_i64(offsets + 8 * shard) + 8 * place)
    for i in range(len(rows)):
        shard, place = out[0, i], out[1, i]
        count: Any = np.int64(1)
        if offsets != 0:
            base = load_i64(offsets + 8 * shard)
            if base == 0 or not _are_verified(
                places[8], places[9], shard, 8 * place, 8 * place + 16
            ):
                return False
            address = base + 8 * place
            start = load_u64(address)
            end = load_u64(address + 8)
            if start > end or end > load_u64(places[10] + 8 * shard):
                return False
            place = np.int64(start)
            count = np.int64(end) - place
        if values != 0:
            base, begin = load_i64(values + 8 * shard), place * item
            if base == 0 or not _are_verified(
                places[5], places[6], shard, begin, begin + count * item
            ):
                return False
            out[0, i] = base + begin
        out[1, i] = count * item
    return True
