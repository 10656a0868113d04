"""Gather rows: find their shards, verify what they touch, copy them into one batch."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fieldslab.reader import kernels
from fieldslab.reader.batch import Padding, Values
from fieldslab.reader.buffers import Allocator, Pool
from fieldslab.reader.conversion import Conversion
from fieldslab.reader.copying import (
    RowLocations,
    allocate_rows,
    map_and_verify,
    split_rows,
    verify_and_copy,
)
from fieldslab.reader.rows import ShardDirectory, make_out_of_range_error
from fieldslab.reader.stored.array import StoredArray
from fieldslab.reader.stored.field import StoredField
from fieldslab.reader.stored.field_frames import FieldFrames
from fieldslab.reader.var_len import Binary, Ragged, Text, VarLenValues, hold_rows
from fieldslab.reader.views import View, resolve_rows
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.inner_lists import find_inner_lists

_ONE = np.ones(1, np.int64)
_TWO = np.full(1, 2, np.int64)
_INT64 = np.dtype(np.int64)


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
    directory: ShardDirectory, pool: Pool, view: View, rows: np.ndarray
) -> RowLocations:
    """Find rows of a view; negative ones in `rows` (int64[n]) are made positive.

    Raises RowOutOfRange.
    """
    numbers = pool.allocate_array(None, (2, len(rows)), _INT64)
    if not isinstance(view, range):
        view, rows = resolve_rows(view, rows)
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
            columns.values[name] = gather_compressed(stored, stored.frames, locations, memory, pool)
        elif stored.offsets is None:
            items = gather_items(
                stored.values, locations, memory, name, batches_in_turn, stored.conversion
            )
            stored.translate_codes(items, *locations)
            columns.values[name] = items
        elif name in paddings:
            values, mask = _gather_padded(
                stored, paddings[name], locations, memory, pool, batches_in_turn
            )
            columns.values[name] = values
            masks |= mask
        else:
            columns.values[name] = _gather_var_len(stored, locations, memory, pool, batches_in_turn)
        if stored.lists is not None:
            flat: Any = columns.values[name]
            columns.values[name] = gather_lists(stored, flat, locations, memory, pool)
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
    """Find where rows lie in memory, uint64[n], and their bytes, int64[n]. Raises DamagedArray.

    Addresses hold as long as the caller is within `map_keeper.hold()`, or what is there is pinned.
    """
    if stored.frames is not None:
        raise UsageError(
            "compressed rows have no addresses",
            field=stored.field.name,
            hint="Gather them, or pack the field uncompressed.",
        )
    values, item = stored.values, stored.values.item_bytes
    if stored.offsets is None:
        map_and_verify(values, locations, _ONE)
        starts, lengths = (
            locations.in_shard * item,
            np.full(len(locations.in_shard), item, np.int64),
        )
    else:
        rows = locate_elements(stored, locations, pool, pool)
        map_and_verify(values, RowLocations(locations.shards, rows.starts), rows.counts)
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
    rows = len(locations.in_shard)
    starts, counts = _allocate_int64(pool, rows), _allocate_int64(pool, rows)
    if rows <= array.rows_at_once or array.all_mapped:
        total = _read_piece(array, elements, locations, starts, counts, offsets)
        return ElementRanges(starts, counts, offsets, total)
    total = 0
    for some in split_rows(rows, array.rows_at_once):
        part, ends = locations.select(some), offsets[some.start : some.stop + 1]
        added = _read_piece(array, elements, part, starts[some], counts[some], ends)
        ends += total
        total += added
    return ElementRanges(starts, counts, offsets, total)


def _read_piece(
    array: StoredArray,
    elements: StoredArray,
    locations: RowLocations,
    starts: np.ndarray,
    counts: np.ndarray,
    offsets: np.ndarray,
) -> int:
    """Read the ranges of elements of rows, offsets from 0 on; return their elements."""
    lease = map_and_verify(array, locations, _TWO)
    total = kernels.find_element_ranges(
        *locations, array.addresses, elements.items, starts, counts, offsets
    )
    del lease
    if total < 0:
        shard, place = int(locations.shards[~total]), int(locations.in_shard[~total])
        raise array.make_damaged_offsets_error(shard, place, int(elements.items[shard]))
    return total


def count_elements(stored: StoredField, locations: RowLocations, pool: Pool) -> np.ndarray:
    """Count the elements of rows of variable length: int64[n]. Raises DamagedArray."""
    rows = locate_elements(stored, locations, pool, pool)
    if stored.frames is None or stored.lengths is None:
        return rows.counts
    counts = gather_items(stored.lengths, locations, pool, stored.field.name)
    # Which checks them.
    stored.frames.compute_sizes(rows.offsets, counts)
    return counts.astype(np.int64)


def locate_index_points(
    stored: StoredField, locations: RowLocations, pool: Pool
) -> tuple[np.ndarray, np.ndarray]:
    """Locate the index points of images: addresses uint64[n], and their numbers int64[n].

    Raises DamagedArray. Addresses hold as those of `find_addresses`.
    """
    array, rows = stored.points, locate_point_ranges(stored, locations, pool)
    assert array is not None
    map_and_verify(array, RowLocations(locations.shards, rows.starts), rows.counts)
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
    dtype, copy = choose_copy(array, conversion)
    shape = (len(locations.in_shard), *array.shape)
    out = allocate_rows(memory, name, array, locations, shape, dtype)
    verify_and_copy(array, locations, _ONE, out, batches_in_turn, copy)
    return out


def choose_copy(
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
    dtype, copy = choose_copy(array, stored.conversion)
    starts = RowLocations(locations.shards, rows.starts)
    out = allocate_rows(memory, name, array, starts, shape, dtype)
    verify_and_copy(array, starts, rows.counts, out, batches_in_turn, copy)
    return hold_rows(stored.field, out, rows.offsets)


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
    length = padding.length
    counts = np.minimum(rows.counts, length)
    starts = rows.starts + (rows.counts - counts) if padding.left else rows.starts
    shape = (len(counts), length, *array.shape)
    out = allocate_rows(memory, name, array, locations, shape, array.dtype)
    copy = prepare_copy(out, padding.fill, padding.left)
    verify_and_copy(
        array, RowLocations(locations.shards, starts), counts, out, batches_in_turn, copy
    )
    if padding.mask is None:
        return out, {}
    return out, {
        padding.mask: make_padding_mask(counts, length, padding.left, memory, padding.mask)
    }


def gather_compressed(
    stored: StoredField, frames: FieldFrames, locations: RowLocations, memory: Allocator, pool: Pool
) -> Values:
    """Gather frames, then decompress them all at once."""
    field = stored.field
    rows = locate_elements(stored, locations, pool, pool)
    frame_locations = RowLocations(locations.shards, rows.starts)
    values, size = stored.values, (rows.total,)
    packed = allocate_rows(pool, field.name, values, frame_locations, size, np.dtype(np.uint8))
    verify_and_copy(stored.values, frame_locations, rows.counts, packed, batches_in_turn=0)
    counts = None
    if stored.lengths is not None:
        counts = gather_items(stored.lengths, locations, pool, field.name)
    sizes = frames.compute_sizes(rows.offsets, counts)
    total = len(locations.in_shard)
    if field.variable:  # elements of no bytes count, too
        total = int((sizes if counts is None else counts).sum())
    shape, key = (total, *field.shape), (field.name, "values")
    first = memory if stored.conversion is None else pool
    out = first.allocate_array(key, shape, field.view)
    to = out.reshape(-1).view(np.uint8)
    frames.decompress(packed, rows.offsets, sizes, to, locations.shards)
    if stored.conversion is not None:
        out = stored.conversion.convert(out, memory.allocate_array(key, shape, stored.dtype))
    if counts is None:
        return out
    offsets = memory.allocate_array((field.name, "offsets"), (len(locations.in_shard) + 1,), _INT64)
    offsets[0] = 0
    np.cumsum(counts, out=offsets[1:], dtype=np.int64)
    return hold_rows(field, out, offsets)


def gather_lists(
    stored: StoredField,
    rows: VarLenValues[Any],
    locations: RowLocations,
    memory: Allocator,
    pool: Pool,
) -> Ragged:
    """Gather the lists inside the rows of a nested field, of which `rows` has the elements.

    Raises DamagedArray where they do not have as many elements as the rows.
    """
    name = stored.field.name
    ranges = locate_list_ranges(stored, locations, memory, pool)
    array = stored.lists
    assert array is not None
    places = RowLocations(locations.shards, ranges.starts)
    lengths = allocate_rows(pool, name, array, places, (ranges.total,), array.dtype)
    verify_and_copy(array, places, ranges.counts, lengths)
    ends = memory.allocate_array((name, array.role), (ranges.total + 1,), _INT64)
    inner = find_inner_lists(lengths, ranges.offsets, rows.offsets, ends)
    if (wrong := inner.wrong_row) is not None:
        raise stored.make_lists_error(int(locations.shards[wrong]), int(locations.in_shard[wrong]))
    lists = type(rows)(rows.values, inner.offsets, name, inner.valid)
    return Ragged(lists, ranges.offsets, name)


def locate_list_ranges(
    stored: StoredField, locations: RowLocations, memory: Allocator, pool: Pool
) -> ElementRanges:
    """Locate the lists inside the rows of a nested field. Raises DamagedArray."""
    array, ends = stored.lists, stored.list_offsets
    assert array is not None
    assert ends is not None
    key = stored.field.name, ends.role
    offsets = memory.allocate_array(key, (len(locations.in_shard) + 1,), _INT64)
    return _read_ranges(ends, array, locations, offsets, pool)


def gather_validity(
    array: StoredArray, locations: RowLocations, memory: Allocator, name: str
) -> np.ndarray:
    """Gather the validity of rows; a shard without nulls has no such array."""
    out = memory.allocate_array((name, array.role), locations.in_shard.shape, array.dtype)
    if array.present.all():
        verify_and_copy(array, locations, _ONE, out)
        return out
    out[:] = True
    stored = np.flatnonzero(array.present[locations.shards])
    part = np.empty(len(stored), np.bool_)
    verify_and_copy(
        array, RowLocations(locations.shards[stored], locations.in_shard[stored]), _ONE, part
    )
    out[stored] = part
    return out


def _allocate_int64(pool: Pool, count: int) -> np.ndarray:
    return pool.allocate_array(None, (count,), _INT64)
