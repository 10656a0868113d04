"""Rows of one array: their shards are mapped, their blocks verified, and they are copied."""

import math
from collections.abc import Callable, Iterator
from ctypes import addressof, c_char
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fieldslab.reader import kernels
from fieldslab.reader.buffers import MUCH, Allocator
from fieldslab.reader.processor_cache import get_cache_budget
from fieldslab.reader.stored.array import StoredArray
from fieldslab.reader.stored.maps import Lease, map_keeper

_NONE = np.empty(0, np.int64)
_BYTE = np.dtype(np.uint8)
_AT_A_TIME = 64
"""Blocks that are verified before their rows are copied: 4 MiB, which caches hold.

Measured on a first pass over 64 KiB rows in random order, against one without verification: 0.47
all at once, 0.48, 0.52 and 0.59 with 16, 32 and 64 blocks.
"""


class RowLocations(NamedTuple):
    """Where the rows of a batch lie: shard, and row within the shard; int64[n] each."""

    shards: np.ndarray
    in_shard: np.ndarray

    def select(self, some: slice) -> "RowLocations":
        """Select some rows."""
        return RowLocations(self.shards[some], self.in_shard[some])


def verify_and_copy(
    array: StoredArray,
    locations: RowLocations,
    counts: np.ndarray,
    out: np.ndarray,
    batches_in_turn: int = 1,
    copy: Callable[..., int] = kernels.copy_rows,
    part_bytes: int | None = None,
) -> None:
    """Verify rows and copy them; many new blocks by turns, so that they are copied from a cache.

    `copy` is `kernels.copy_rows` or takes the same arguments. With `part_bytes`, `locations`
    and `counts` are not of items, but of parts of them.
    """
    if not out.nbytes:
        return
    item, addresses = part_bytes or array.item_bytes, array.addresses
    stream = batches_in_turn * out.nbytes > get_cache_budget()
    to = addressof(c_char.from_buffer(out.view(_BYTE).data))  # `out.ctypes` takes 1 us
    step = 0
    lease = map_keeper.lease
    if not array.all_mapped:
        del lease
        if len(locations.in_shard) > array.rows_at_once:
            step = array.rows_at_once
        else:
            lease = _map_rows(array, locations)
    if not step:
        blocks = find_unmarked_blocks(array, locations, counts, item)
        if len(blocks) <= _AT_A_TIME:
            if len(blocks):
                array.verify_blocks(blocks)
            copy(*locations, counts, item, addresses, to, stream)
            return
        step = max(len(locations.in_shard) * _AT_A_TIME // len(blocks), 1)
        del lease
    for some in split_rows(len(locations.in_shard), step):
        part, items = locations.select(some), counts[some] if len(counts) > 1 else counts
        lease = map_and_verify(array, part, items, item)
        to = copy(*part, items, item, addresses, to, stream)
        del lease


def allocate_rows(
    memory: Allocator,
    name: str,
    array: StoredArray,
    locations: RowLocations,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
) -> np.ndarray:
    """Allocate memory for rows or elements, (*shape), before `verify_and_copy` fills it.

    Where that is much, files are mapped first, which compares their sizes with the manifest: that
    alone must not decide what is allocated. Raises DamagedArray.
    """
    if not array.all_mapped and math.prod(shape) * dtype.itemsize > MUCH:
        for some in split_rows(len(locations.in_shard), array.rows_at_once):
            _map_rows(array, locations.select(some))
    return memory.allocate_array((name, array.role), shape, dtype)


def split_rows(rows: int, step: int) -> Iterator[slice]:
    """Split so many rows into slices of `step`."""
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def map_and_verify(
    array: StoredArray, locations: RowLocations, counts: np.ndarray, part_bytes: int | None = None
) -> Lease:
    """Map and verify what rows lie in; addresses hold as long as what is returned."""
    lease = map_keeper.lease
    if not array.all_mapped:
        del lease
        lease = _map_rows(array, locations)
    blocks = find_unmarked_blocks(array, locations, counts, part_bytes)
    if len(blocks):
        array.verify_blocks(blocks)
    return lease


def _map_rows(array: StoredArray, locations: RowLocations) -> Lease:
    map_keeper.wait_for_room()  # waits for holders of leases, so this thread must hold none
    lease = map_keeper.lease
    array.map_shards(locations.shards)
    return lease


def find_unmarked_blocks(
    array: StoredArray, locations: RowLocations, counts: np.ndarray, part_bytes: int | None = None
) -> np.ndarray:
    """Find the unverified blocks under rows: int64[n], ascending, none twice.

    `part_bytes` is that of `verify_and_copy`.
    """
    marks = array.marks
    if marks is None or marks.complete:
        return _NONE
    find = partial(
        kernels.find_unmarked_blocks,
        *locations,
        counts,
        part_bytes or array.item_bytes,
        marks.firsts,
        marks.table,
    )
    count = find(_NONE)
    if not count:
        return _NONE
    blocks = np.empty(count, np.int64)
    count = find(blocks)  # fewer by now, if other threads read too
    return np.unique(blocks[: min(count, len(blocks))])
