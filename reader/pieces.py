"""Windows of neighbouring rows, each copied in one piece where one shard holds it.

A window is read as the runs of rows that it consists of: one, or several where it crosses into the
next shard or where rows at its edges are repeated.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fieldslab.reader.batch import Values
from fieldslab.reader.buffers import Allocator, Pool
from fieldslab.reader.conversion import Conversion
from fieldslab.reader.copying import (
    RowLocations,
    allocate_rows,
    map_and_verify,
    split_rows,
    verify_and_copy,
)
from fieldslab.reader.gather import (
    GatheredFields,
    choose_copy,
    gather_compressed,
    gather_lists,
    gather_validity,
)
from fieldslab.reader.kernels import MOST_ELEMENTS, find_shard, load_i64
from fieldslab.reader.rows import ShardDirectory, make_out_of_range_error
from fieldslab.reader.stored.array import StoredArray
from fieldslab.reader.stored.field import StoredField
from fieldslab.reader.var_len import hold_rows
from fieldslab.schemas.errors import RowOutOfRange
from fieldslab.schemas.jit import kernel, load_u64

_Array = np.ndarray
_INT64 = np.dtype(np.int64)


class Pieces(NamedTuple):
    """Runs of rows, one behind the other: those of the first window, then of the second.

    Attributes
    ----------
    locations
        Shard and first row of each run.
    counts
        Rows of each run: int64[runs], or int64[1] for all of them.
    shape
        Number of windows, and rows of each.
    """

    locations: RowLocations
    counts: np.ndarray
    shape: tuple[int, int]

    def locate_rows(self) -> RowLocations:
        """Locate every row of every window."""
        shards, firsts = self.locations
        if len(self.counts) == 1 and self.counts[0] == 1:
            return self.locations
        counts = np.broadcast_to(self.counts, shards.shape)
        ends = np.cumsum(counts)
        rows = np.arange(self.shape[0] * self.shape[1], dtype=np.int64)
        rows += np.repeat(firsts - (ends - counts), counts)
        return RowLocations(np.repeat(shards, counts), rows)


class Bounds(NamedTuple):
    """Between which rows of `total` windows lie: from `lows`, up to `highs`: int64[n] or [1].

    If they are `strict`, a window that goes beyond is refused; else the nearest row inside stands
    in place of each row beyond.
    """

    total: int
    lows: np.ndarray
    highs: np.ndarray
    strict: bool


def find_pieces(
    directory: ShardDirectory,
    pool: Pool,
    view_start: int,
    starts: np.ndarray,
    indices: range,
    bounds: Bounds,
) -> Pieces:
    """Find the runs of the rows `starts[i] + indices`, neighbours, for each window.

    Row `r` is row `view_start + r` of the slab. Negative `starts`, int64[n], are made positive in
    place. Raises RowOutOfRange.
    """
    windows, length = len(starts), len(indices)
    total, lows, highs, strict = bounds
    shape, room = (windows, length), windows
    while True:
        runs = pool.allocate_array(None, (3, room), _INT64)
        count = _find_pieces(
            *(starts, indices.start, length, view_start, total, lows, highs, strict),
            *directory.lookup,
            runs,
        )
        if count == windows:  # each window is one run
            return Pieces(RowLocations(runs[0], runs[1]), _make_counts(length), shape)
        if count < 0:
            raise make_bounds_error(starts, indices, bounds, ~count)
        if count <= room:
            shards, places, counts = runs[:, :count]
            return Pieces(RowLocations(shards, places), counts, shape)
        room = count


@lru_cache(8)
def _make_counts(length: int) -> np.ndarray:
    return np.full(1, length, np.int64)  # which takes 2 us


def make_bounds_error(
    starts: np.ndarray, indices: Sequence[int], bounds: Bounds, window: int
) -> RowOutOfRange:
    """Make the error for a start that is no row, or a window that goes beyond its bounds."""
    start, total = int(starts[window]), bounds.total
    if not -total <= start < total:
        return make_out_of_range_error(start, total, window)
    low, high = (int(each[window % len(each)]) for each in (bounds.lows, bounds.highs))
    return RowOutOfRange(
        "a window goes beyond the rows that it may have",
        expected=f"rows {low}..{high - 1}",
        found=f"{start + indices[0]}..{start + indices[-1]}",
        hint='Write edges="repeat" or edges="zeros" to fill it up.',
    )


@kernel(
    "int64(int64[::1], int64, int64, int64, int64, int64[::1], int64[::1], boolean, int64, int64,"
    "int64, int64[:, ::1])"
)
def _find_pieces(
    windows: _Array,
    first: int,
    length: int,
    view_start: int,
    total: int,
    lows: _Array,
    highs: _Array,
    strict: bool,
    starts: int,
    table: int,
    shift: int,
    out: _Array,
) -> int:
    """Find the runs of windows; return how many, or ~i for a wrong window i.

    Window `i` has `length` rows from `windows[i] + first` on. As many runs as have room go to
    `out`: shards, first rows in the shard, and numbers of rows. For other parameters see
    `find_pieces`, `Bounds` and `find_shard`.
    """
    count = shard = begin = end = 0
    room = out.shape[1]
    mask = 0 if len(lows) == 1 else -1
    for i in range(len(windows)):
        start = windows[i]
        if start < 0:
            start += total
        if start < 0 or start >= total:
            return ~i
        windows[i] = start
        low = lows[i & mask]
        high = highs[i & mask]
        row = start + first
        stop = row + length
        if strict and (row < low or stop > high):
            return ~i
        while row < stop:
            inside = min(max(row, low), high - 1)
            if inside < begin or inside >= end:
                shard = find_shard(view_start + inside, starts, table, shift)
                begin = load_i64(starts + 8 * shard) - view_start
                end = load_i64(starts + 8 * shard + 8) - view_start
            run: Any = np.int64(1)
            if inside == row:
                run = min(min(stop, high), end) - row
            elif count >= room:  # only counted: all rows beyond at once
                run = (min(low, stop) if row < low else stop) - row
                count += run - 1
            if count < room:
                out[0, count] = shard
                out[1, count] = inside - begin
                out[2, count] = run
            count += 1
            row += run
    return count


def gather_pieces(
    pool: Pool,
    fields: list[StoredField],
    pieces: Pieces,
    memory: Allocator,
    batches_in_turn: int = 1,
) -> GatheredFields:
    """Gather windows of some fields; results go to `memory`, intermediate arrays to `pool`.

    Rows of fixed size become (windows, rows, *shape), and so do validity and sizes. Rows of
    different lengths become those of all windows, one window behind the other.
    `batches_in_turn` is that of `gather_fields`. Raises DamagedArray.
    """
    columns = GatheredFields({}, {}, {})
    for stored in fields:
        name = stored.field.name
        if stored.frames is not None:
            rows = pieces.locate_rows()
            packed = gather_compressed(stored, stored.frames, rows, memory, pool)
            columns.values[name] = _shape_windows(packed, pieces)
        elif stored.offsets is not None:
            columns.values[name] = _gather_var_len(stored, pieces, memory, pool, batches_in_turn)
        else:
            values = gather_items(
                stored.values, pieces, memory, name, batches_in_turn, stored.conversion
            )
            if stored.codes is not None:
                stored.translate_codes(values.reshape(-1), *pieces.locate_rows())
            columns.values[name] = values
        if stored.lists is not None:
            flat: Any = columns.values[name]
            columns.values[name] = gather_lists(stored, flat, pieces.locate_rows(), memory, pool)
        if stored.size is not None:
            columns.sizes[name] = gather_items(stored.size, pieces, memory, name)
        if stored.valid is not None:
            columns.valid[name] = _gather_validity(stored.valid, pieces, memory, name)
    return columns


def gather_items(
    array: StoredArray,
    pieces: Pieces,
    memory: Allocator,
    name: str,
    batches_in_turn: int = 1,
    conversion: Conversion | None = None,
    part_shape: tuple[int, ...] | None = None,
) -> np.ndarray:
    """Gather items of an array: (windows, items, *shape). Raises DamagedArray.

    With `part_shape`, runs are not of items, but of parts of this shape that they consist of.
    """
    dtype, copy = choose_copy(array, conversion)
    shape, part_bytes = array.shape, None
    if part_shape is not None:
        shape, part_bytes = part_shape, array.dtype.itemsize * math.prod(part_shape)
    locations, counts = pieces.locations, pieces.counts
    out = allocate_rows(memory, name, array, locations, (*pieces.shape, *shape), dtype)
    verify_and_copy(array, locations, counts, out, batches_in_turn, copy, part_bytes)
    return out


def _gather_validity(
    array: StoredArray, pieces: Pieces, memory: Allocator, name: str
) -> np.ndarray:
    if array.present.all():
        return gather_items(array, pieces, memory, name)
    return gather_validity(array, pieces.locate_rows(), memory, name).reshape(pieces.shape)


def _gather_var_len(
    stored: StoredField, pieces: Pieces, memory: Allocator, pool: Pool, batches_in_turn: int
) -> Values:
    array, name = stored.values, stored.field.name
    windows, length = pieces.shape
    shards = pieces.locations.shards
    offsets = memory.allocate_array((name, "offsets"), (windows * length + 1,), _INT64)
    elements = pool.allocate_array(None, (2, len(shards)), _INT64)
    total = _find_elements(stored, pieces, offsets, elements)
    dtype, copy = choose_copy(array, stored.conversion)
    runs = RowLocations(shards, elements[0])
    out = allocate_rows(memory, name, array, runs, (total, *array.shape), dtype)
    verify_and_copy(array, runs, elements[1], out, batches_in_turn, copy)
    return hold_rows(stored.field, out, offsets)


def _find_elements(
    stored: StoredField, pieces: Pieces, offsets: np.ndarray, out: np.ndarray
) -> int:
    """Find the elements of each run, int64[2, runs]: the first, and how many; return their sum.

    `offsets`, int64[rows + 1], gets those of the batch. Raises DamagedArray.
    """
    array = stored.offsets
    assert array is not None
    runs = len(out[0])
    counts = pieces.counts if len(pieces.counts) == runs else np.repeat(pieces.counts, runs)
    ends = counts + 1
    total = row = 0
    step = max(runs, 1) if array.all_mapped else array.rows_at_once
    for some in split_rows(runs, step):
        part, rows = pieces.locations.select(some), counts[some]
        lease = map_and_verify(array, part, ends[some])
        added = _find_run_elements(
            *part,
            rows,
            array.addresses,
            stored.values.items,
            out[0, some],
            out[1, some],
            offsets[row:],
            total,
        )
        del lease
        if added < 0:
            shard, place = int(part.shards[~added]), int(part.in_shard[~added])
            stored.read_offsets(shard, place, place + int(rows[~added]))
            raise AssertionError("offsets are right")
        row += int(rows.sum())
        total = added
    offsets[0] = 0
    return total


@kernel(
    "int64(int64[::1], int64[::1], int64[::1], int64[::1], uint64[::1], int64[::1], int64[::1],"
    "int64[::1], int64)"
)
def _find_run_elements(
    shards: _Array,
    places: _Array,
    counts: _Array,
    addresses: _Array,
    elements: _Array,
    out_places: _Array,
    out_counts: _Array,
    out_offsets: _Array,
    total: Any,
) -> int:
    """Look up where the elements of runs of rows lie; return their sum, or ~i for a wrong run i.

    As `kernels.find_element_ranges`, for `counts` rows each; `total` elements come before.
    """
    row = 0
    for i in range(len(shards)):
        shard = shards[i]
        address = addresses[shard] + 8 * places[i]
        first = load_u64(address)
        before = first
        for _ in range(counts[i]):
            address += 8
            end = load_u64(address)
            if before > end or end > elements[shard]:
                return ~i
            before = end
            count = np.int64(end) - np.int64(first)
            if count > MOST_ELEMENTS - total:
                return ~i
            row += 1
            out_offsets[row] = total + count
        count = np.int64(before) - np.int64(first)
        out_places[i] = np.int64(first)
        out_counts[i] = count
        total += count
    return total


def _shape_windows(values: Any, pieces: Pieces) -> Any:
    """Give rows of fixed size the shape of windows."""
    if isinstance(values, np.ndarray):
        return values.reshape(*pieces.shape, *values.shape[1:])
    return values
