"""Gather rows: find their shards, verify what they touch, copy them into one batch."""

from collections.abc import Callable, Mapping
from ctypes import addressof, c_char
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fieldslab.reader import kernels
from fieldslab.reader.batch import VAR_LEN_CLASSES, Binary, Padding, Ragged, Text, Values
from fieldslab.reader.buffers import Allocator, Pool
from fieldslab.reader.conversion import Conversion
from fieldslab.reader.processor_cache import get_cache_budget
from fieldslab.reader.rows import ShardDirectory, make_out_of_range_error
from fieldslab.reader.stored.array import StoredArray
from fieldslab.reader.stored.field import StoredField
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.frames import FrameReader

_ONE = np.ones(1, np.int64)
_TWO = np.full(1, 2, np.int64)
_NONE = np.empty(0, np.int64)
_INT64 = np.dtype(np.int64)
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


class GatheredFields(NamedTuple):
    """What a gather yields, each by field name: see `Batch`."""

    values: dict[str, Values]
    valid: dict[str, np.ndarray]
    sizes: dict[str, np.ndarray]


class ElementRanges(NamedTuple):
    """Elements of variable-length rows: first and number (int64[n]), offsets, and their sum."""

    starts: np.ndarray
    counts: np.ndarray
    offsets: np.ndarray
    total: int


def locate_rows(
    directory: ShardDirectory, pool: Pool, view: range, rows: np.ndarray
) -> RowLocations:
    """Find rows of a view; negative ones in `rows` (int64[n]) are made positive.

    Raises RowOutOfRange.
    """
    numbers = pool.allocate_array(None, (2, len(rows)), _INT64)
    length = len(view)
    wrong = kernels.find_shards(rows, length, view.start, view.step, *directory.lookup, numbers)
    if wrong >= 0:
        raise make_out_of_range_error(int(rows[wrong]), length, wrong)
    return RowLocations(numbers[0], numbers[1])


def gather_fields(
    pool: Pool,
    fields: list[StoredField],
    locations: RowLocations,
    memory: Allocator,
    batches_in_turn: int = 1,
    paddings: Mapping[str, Padding] | None = None,
) -> GatheredFields:
    """Gather rows of some fields; results go to `memory`, intermediate arrays to `pool`.

    `batches_in_turn` is how many batches are written before this one is read: if they do not fit
    into the processor's cache, this one is written past it. `paddings` are of uncompressed fields
    of variable length, by name; their masks come last among the values. Raises DamagedArray.
    """
    paddings = paddings or {}
    masks: dict[str, np.ndarray] = {}
    columns = GatheredFields({}, {}, {})
    for stored in fields:
        name = stored.field.name
        if stored.frames is not None:
            columns.values[name] = _gather_compressed(
                stored, stored.frames, locations, memory, pool
            )
        elif stored.offsets is None:
            columns.values[name] = gather_items(
                stored.values, locations, memory, name, batches_in_turn, stored.conversion
            )
        elif name in paddings:
            values, mask = _gather_padded(
                stored, paddings[name], locations, memory, pool, batches_in_turn
            )
            columns.values[name] = values
            masks |= mask
        else:
            columns.values[name] = _gather_var_len(stored, locations, memory, pool, batches_in_turn)
        if stored.size is not None:
            columns.sizes[name] = gather_items(stored.size, locations, memory, name)
        if stored.valid is not None:
            columns.valid[name] = gather_validity(stored.valid, locations, memory, name)
    for padding in paddings.values():
        if padding.mask is not None:
            columns.values[padding.mask] = masks[padding.mask]
    return columns


def find_addresses(
    stored: StoredField, locations: RowLocations, pool: Pool
) -> tuple[np.ndarray, np.ndarray]:
    """Find where rows lie in memory, uint64[n], and their bytes, int64[n]. Raises DamagedArray."""
    if stored.frames is not None:
        raise UsageError(
            "compressed rows have no addresses",
            field=stored.field.name,
            hint="Gather them, or pack the field uncompressed.",
        )
    values, item = stored.values, stored.values.item_bytes
    if stored.offsets is None:
        _verify_blocks(values, locations, _ONE)
        starts, lengths = (
            locations.in_shard * item,
            np.full(len(locations.in_shard), item, np.int64),
        )
    else:
        rows = locate_elements(stored, locations, pool, pool)
        _verify_blocks(values, RowLocations(locations.shards, rows.starts), rows.counts)
        starts, lengths = rows.starts * item, rows.counts * item
    return (values.addresses[locations.shards] + starts).astype(np.uint64), lengths


def locate_elements(
    stored: StoredField, locations: RowLocations, memory: Allocator, pool: Pool
) -> ElementRanges:
    """Find the elements of each row; `offsets` is allocated in `memory`.

    Of a compressed field they are the bytes of frames. Raises DamagedArray.
    """
    array = stored.offsets
    assert array is not None
    offsets = memory.allocate_array(
        (stored.field.name, array.role), (len(locations.in_shard) + 1,), _INT64
    )
    return _read_ranges(array, stored.values, locations, offsets, pool)


def _read_ranges(
    array: StoredArray,
    elements: StoredArray,
    locations: RowLocations,
    offsets: np.ndarray,
    pool: Pool,
) -> ElementRanges:
    """Read the ranges of elements of rows from their offsets. Raises DamagedArray."""
    _verify_blocks(array, locations, _TWO)
    starts, counts = (
        _allocate_int64(pool, len(locations.in_shard)),
        _allocate_int64(pool, len(locations.in_shard)),
    )
    total = kernels.find_element_ranges(
        *locations, array.addresses, elements.items, starts, counts, offsets
    )
    if total < 0:
        shard, place = int(locations.shards[~total]), int(locations.in_shard[~total])
        raise array.make_damaged_offsets_error(shard, place, int(elements.items[shard]))
    return ElementRanges(starts, counts, offsets, total)


def count_elements(stored: StoredField, locations: RowLocations, pool: Pool) -> np.ndarray:
    """Count the elements of rows of variable length: int64[n]. Raises DamagedArray."""
    rows = locate_elements(stored, locations, pool, pool)
    if stored.frames is None or stored.lengths is None:
        return rows.counts
    counts = gather_items(stored.lengths, locations, pool, stored.field.name)
    # Which checks them.
    stored.frames.compute_sizes(rows.offsets, counts, stored.field.item_bytes)
    return counts.astype(np.int64)


def locate_index_points(
    stored: StoredField, locations: RowLocations, pool: Pool
) -> tuple[np.ndarray, np.ndarray]:
    """Locate the index points of images: addresses uint64[n], and their numbers int64[n].

    Raises DamagedArray.
    """
    array, rows = stored.points, locate_point_ranges(stored, locations, pool)
    assert array is not None
    _verify_blocks(array, RowLocations(locations.shards, rows.starts), rows.counts)
    starts = array.addresses[locations.shards] + rows.starts * array.item_bytes
    return starts.astype(np.uint64), rows.counts


def locate_point_ranges(stored: StoredField, locations: RowLocations, pool: Pool) -> ElementRanges:
    """Locate the index points of images in the array that holds them. Raises DamagedArray."""
    array, ends = stored.points, stored.point_offsets
    assert array is not None
    assert ends is not None
    offsets = _allocate_int64(pool, len(locations.in_shard) + 1)
    return _read_ranges(ends, array, locations, offsets, pool)


def gather_items(
    array: StoredArray,
    locations: RowLocations,
    memory: Allocator,
    name: str,
    batches_in_turn: int = 1,
    conversion: Conversion | None = None,
) -> np.ndarray:
    """Gather the items of an array with one item per row. Raises DamagedArray.

    `batches_in_turn` is as in `gather_fields`.
    """
    dtype, copy = _choose_copy(array, conversion)
    shape = (len(locations.in_shard), *array.shape)
    out = memory.allocate_array((name, array.role), shape, dtype)
    _verify_and_copy(array, locations, _ONE, out, batches_in_turn, copy)
    return out


def _choose_copy(
    array: StoredArray, conversion: Conversion | None
) -> tuple[np.dtype[Any], Callable[..., int]]:
    """The dtype that values get, and what copies them."""
    if conversion is None:
        return array.dtype, kernels.copy_rows
    return conversion.dtype, conversion.copy_rows


def _gather_var_len(
    stored: StoredField,
    locations: RowLocations,
    memory: Allocator,
    pool: Pool,
    batches_in_turn: int,
) -> Ragged | Text | Binary:
    rows = locate_elements(stored, locations, memory, pool)
    array, name = stored.values, stored.field.name
    shape = (rows.total, *array.shape)
    dtype, copy = _choose_copy(array, stored.conversion)
    out = memory.allocate_array((name, array.role), shape, dtype)
    _verify_and_copy(
        array, RowLocations(locations.shards, rows.starts), rows.counts, out, batches_in_turn, copy
    )
    return VAR_LEN_CLASSES[stored.field.kind](out, rows.offsets, name)


def _gather_padded(
    stored: StoredField,
    padding: Padding,
    locations: RowLocations,
    memory: Allocator,
    pool: Pool,
    batches_in_turn: int,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Gather rows where they are padded, and the mask by its name, if there is to be one."""
    from fieldslab.reader.padding import make_padding_mask, prepare_copy  # compiles a kernel

    array, name = stored.values, stored.field.name
    rows = locate_elements(stored, locations, pool, pool)
    length = padding.choose_length(rows.counts)
    counts = np.minimum(rows.counts, length)
    starts = rows.starts + (rows.counts - counts) if padding.left else rows.starts
    out = memory.allocate_array(
        (name, array.role), (len(counts), length, *array.shape), array.dtype
    )
    copy = prepare_copy(out, padding.fill, padding.left)
    _verify_and_copy(
        array, RowLocations(locations.shards, starts), counts, out, batches_in_turn, copy
    )
    if padding.mask is None:
        return out, {}
    return out, {
        padding.mask: make_padding_mask(counts, length, padding.left, memory, padding.mask)
    }


def _gather_compressed(
    stored: StoredField, frames: FrameReader, locations: RowLocations, memory: Allocator, pool: Pool
) -> Values:
    """Gather frames, then decompress them all at once."""
    field = stored.field
    rows = locate_elements(stored, locations, pool, pool)
    packed = pool.allocate_array(None, (rows.total,), np.dtype(np.uint8))
    frame_locations = RowLocations(locations.shards, rows.starts)
    _verify_and_copy(stored.values, frame_locations, rows.counts, packed, batches_in_turn=0)
    counts = None
    if stored.lengths is not None:
        counts = gather_items(stored.lengths, locations, pool, field.name)
    sizes = frames.compute_sizes(rows.offsets, counts, field.item_bytes)
    total = (
        int(sizes.sum()) // max(field.item_bytes, 1) if field.variable else len(locations.in_shard)
    )
    shape, key = (total, *field.shape), (field.name, "values")
    first = memory if stored.conversion is None else pool
    out = first.allocate_array(key, shape, field.view)
    frames.decompress(packed, rows.offsets, sizes, out.reshape(-1).view(np.uint8))
    if stored.conversion is not None:
        out = stored.conversion.convert(out, memory.allocate_array(key, shape, stored.dtype))
    if counts is None:
        return out
    offsets = memory.allocate_array((field.name, "offsets"), (len(locations.in_shard) + 1,), _INT64)
    offsets[0] = 0
    np.cumsum(counts, out=offsets[1:], dtype=np.int64)
    return VAR_LEN_CLASSES[field.kind](out, offsets, field.name)


def gather_validity(
    array: StoredArray, locations: RowLocations, memory: Allocator, name: str
) -> np.ndarray:
    """Validity of rows; a shard without nulls has no such array."""
    out = memory.allocate_array((name, array.role), locations.in_shard.shape, array.dtype)
    if array.present.all():
        _verify_and_copy(array, locations, _ONE, out)
        return out
    out[:] = True
    stored = np.flatnonzero(array.present[locations.shards])
    part = np.empty(len(stored), np.bool_)
    _verify_and_copy(
        array, RowLocations(locations.shards[stored], locations.in_shard[stored]), _ONE, part
    )
    out[stored] = part
    return out


def _verify_and_copy(
    array: StoredArray,
    locations: RowLocations,
    counts: np.ndarray,
    out: np.ndarray,
    batches_in_turn: int = 1,
    copy: Callable[..., int] = kernels.copy_rows,
) -> None:
    """Verify rows and copy them; many new blocks by turns, so that they are copied from a cache.

    `copy` is `kernels.copy_rows` or takes the same arguments.
    """
    if not out.nbytes:
        return
    item, addresses = array.item_bytes, array.addresses
    stream = batches_in_turn * out.nbytes > get_cache_budget()
    to = addressof(c_char.from_buffer(out.view(_BYTE).data))  # `out.ctypes` takes 1 us
    blocks = find_unmarked_blocks(array, locations, counts)
    if len(blocks) <= _AT_A_TIME:
        if len(blocks):
            array.verify_blocks(blocks)
        copy(*locations, counts, item, addresses, to, stream)
        return
    step = max(len(locations.in_shard) * _AT_A_TIME // len(blocks), 1)
    for start in range(0, len(locations.in_shard), step):
        some = slice(start, start + step)
        part, items = RowLocations(locations.shards[some], locations.in_shard[some]), counts
        if len(counts) > 1:
            items = counts[some]
        _verify_blocks(array, part, items)
        to = copy(*part, items, item, addresses, to, stream)


def _verify_blocks(array: StoredArray, locations: RowLocations, counts: np.ndarray) -> None:
    blocks = find_unmarked_blocks(array, locations, counts)
    if len(blocks):
        array.verify_blocks(blocks)


def find_unmarked_blocks(
    array: StoredArray, locations: RowLocations, counts: np.ndarray
) -> np.ndarray:
    """Find the unverified blocks under rows: int64[n], ascending, none twice."""
    marks = array.marks
    if marks is None or marks.complete:
        return _NONE
    find = partial(
        kernels.find_unmarked_blocks,
        *locations,
        counts,
        array.item_bytes,
        marks.firsts,
        marks.table,
    )
    count = find(_NONE)
    if not count:
        return _NONE
    blocks = np.empty(count, np.int64)
    count = find(blocks)  # fewer by now, if other threads read too
    return np.unique(blocks[: min(count, len(blocks))])


def _allocate_int64(pool: Pool, count: int) -> np.ndarray:
    return pool.allocate_array(None, (count,), _INT64)
