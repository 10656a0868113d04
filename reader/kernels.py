"""The hot loops of the reader.

Common arguments, all int64 unless said otherwise:

    shards     [n]       shard of each row of the batch
    places     [n]       where the row's item stands in the shard's array: an index along axis 0
    counts     [n] or [1]  items of each row, or of every row
    item       bytes of one item
    addresses  [shards]  where the array's data begins in memory
    out        where results go: an array, or an address

`place` checks every row and `locate` every pair of offsets; what they accept lies inside the
mapped arrays, and the other kernels rely on that. Compare before you subtract, convert once,
and never mix uint64 with int64: the result would be float64. Numba's cache notices changes of
this file but not of `jit.py`: after a change there, touch this file.
"""

from typing import Any

import numpy as np

from fieldslab.schemas.jit import fence, inlined, kernel, load_u64, memcpy, prefetch, stream_line

AHEAD = 12
"""Rows between the one that is copied and the one whose first cache lines are fetched.

Measured on random rows of a large array against copying without: 1.2 to 1.4 times as fast at 256
bytes to 4 KiB a row, and as fast from 16 KiB on. 8 and 16 do about as well.
"""
STREAMED_ROW = 4096
"""Bytes from which rows may be written past the caches; shorter ones gained nothing."""
MOST_ELEMENTS = 2**62
"""A batch of more elements is refused, so that no sum leaves int64."""
BLOCK_BITS = 16
"""log2 of the bytes under one digest."""

_Array = np.ndarray


@inlined
def load_i64(address: int) -> Any:
    """Load an int64 at an address that is a multiple of 8."""
    return np.int64(load_u64(address))


@inlined
def find_shard(row: int, starts: int, table: int, shift: int) -> int:
    """Find the shard of a row of the slab, by what `ShardDirectory.lookup` says.

    Shard `s` holds the slab's rows from `starts[s]` up to `starts[s + 1]`; row `k` lies in a shard
    from `table[k >> shift]` to `table[(k >> shift) + 1]`.
    """
    bucket = table + 8 * (row >> shift)
    low = load_i64(bucket)
    high = load_i64(bucket + 8)
    while low < high:
        middle = (low + high + 1) >> 1
        if load_i64(starts + 8 * middle) <= row:
            low = middle
        else:
            high = middle - 1
    return low


@kernel("int64(int64[::1], int64, int64, int64, int64, int64, int64, int64[:, ::1])")
def find_shards(
    rows: _Array,
    length: int,
    first: int,
    step: int,
    starts: int,
    table: int,
    shift: int,
    out: _Array,
) -> int:
    """Find the shard of each row of a view; return -1, or the position of a row out of range.

    Row `r` of the view is row `first + step * r` of the slab, for `r` in 0..length-1. Negative
    rows count from the end and are made positive in `rows`. `starts`, `table` and `shift` are those
    of `find_shard`. `out` gets the shards, and the rows within them.
    """
    for i in range(len(rows)):
        row = rows[i]
        if row < 0:
            row += length
        if row < 0 or row >= length:
            return i
        rows[i] = row
        row = first + step * row
        shard = find_shard(row, starts, table, shift)
        out[0, i] = shard
        out[1, i] = row - load_i64(starts + 8 * shard)
    return -1


@kernel(
    "int64(int64[::1], int64[::1], int64[::1], uint64[::1], int64[::1], int64[::1], int64[::1])"
)
def find_element_ranges(
    shards: _Array,
    places: _Array,
    addresses: _Array,
    elements: _Array,
    out_places: _Array,
    out_counts: _Array,
    out_offsets: _Array,
) -> int:
    """Look up where variable-length rows lie; return their elements, or ~i for a wrong row i.

    `addresses` are those of the offsets arrays, `elements` (uint64) how many elements each shard
    holds. Gives the first element and the number of elements of each row, and int64[n + 1] offsets
    into the packed batch.
    """
    total: Any = np.int64(0)
    out_offsets[0] = 0
    last = len(shards) - 1
    for i in range(len(shards)):
        coming = min(i + AHEAD, last)
        prefetch(addresses[shards[coming]] + 8 * places[coming])
        shard = shards[i]
        address = addresses[shard] + 8 * places[i]
        start = load_u64(address)
        end = load_u64(address + 8)
        if start > end or end > elements[shard]:
            return ~i
        count = np.int64(end) - np.int64(start)
        if count > MOST_ELEMENTS - total:
            return ~i
        total += count
        out_places[i] = np.int64(start)
        out_counts[i] = count
        out_offsets[i + 1] = total
    return total


@kernel("int64(int64[::1], int64[::1], int64[::1], int64, int64[::1], uint8[::1], int64[::1])")
def find_unmarked_blocks(
    shards: _Array,
    places: _Array,
    counts: _Array,
    item: int,
    firsts: _Array,
    marks: _Array,
    out: _Array,
) -> int:
    """Find the blocks under these rows that carry no mark; return how many there are.

    `marks` (uint8) has one bit a block over all shards, those of shard `s` from `firsts[s]` on; see
    `VerifiedBlocks.table`.
    As many of the blocks found as have room go to `out`, the same one perhaps several times.
    """
    count_unmarked = 0
    for i in range(len(shards)):
        count = counts[i] if len(counts) > 1 else counts[0]
        begin = places[i] * item
        end = begin + count * item
        first = firsts[shards[i]]
        for block in range(first + (begin >> BLOCK_BITS), first + ((end - 1) >> BLOCK_BITS) + 1):
            if begin < end and (marks[block >> 3] >> (block & 7)) & 1 == 0:
                if count_unmarked < len(out):
                    out[count_unmarked] = block
                count_unmarked += 1
    return count_unmarked


@kernel("int64(int64[::1], int64[::1], int64[::1], int64, int64[::1])")
def find_unmapped_shards(
    shards: _Array, mapped: _Array, ticks: _Array, tick: int, out: _Array
) -> int:
    """Find which of these shards are not mapped; return how many, and give them in `out`.

    `mapped` and `ticks` are those of `StoredArray`. All get the `tick`, which nobody else has: a
    shard that comes several times is found once, or again if another thread was there in between.
    """
    count = 0
    for i in range(len(shards)):
        shard = shards[i]
        if mapped[shard] == 0 and ticks[shard] != tick:
            out[count] = shard
            count += 1
        ticks[shard] = tick
    return count


@inlined
def _copy_short_row(out: int, source: int, size: int) -> None:
    """Copy up to 128 bytes as two halves that may overlap, which spares a call.

    No more bytes are copied twice than need be: with 64 as two halves of 32, instead of 64 twice,
    rows of 64 bytes are copied 1.3 times as fast.
    """
    if size > 64:
        memcpy(out, source, 64)
        memcpy(out + size - 64, source + size - 64, 64)
    elif size > 32:
        memcpy(out, source, 32)
        memcpy(out + size - 32, source + size - 32, 32)
    elif size > 16:
        memcpy(out, source, 16)
        memcpy(out + size - 16, source + size - 16, 16)
    elif size >= 8:
        memcpy(out, source, 8)
        memcpy(out + size - 8, source + size - 8, 8)
    elif size >= 4:
        memcpy(out, source, 4)
        memcpy(out + size - 4, source + size - 4, 4)
    elif size >= 2:
        memcpy(out, source, 2)
        memcpy(out + size - 2, source + size - 2, 2)
    elif size >= 1:
        memcpy(out, source, 1)


@inlined
def _copy_past_caches(out: int, source: int, size: int) -> None:
    """Copy 64 bytes or more past the caches: whole lines of `out` are not read before."""
    head = -out & 63
    _copy_short_row(out, source, head)
    line, end = out + head, out + size
    while line <= end - 64:
        stream_line(line, source + (line - out))
        line += 64
    _copy_short_row(line, source + (line - out), end - line)


@inlined
def copy_row(out: int, source: int, size: int, stream: bool) -> None:
    """Copy one row; see `copy_rows`."""
    if size <= 128:
        _copy_short_row(out, source, size)
    elif stream and size >= STREAMED_ROW:
        _copy_past_caches(out, source, size)
    else:
        memcpy(out, source, size)


@kernel("int64(int64[::1], int64[::1], int64[::1], int64, int64[::1], int64, boolean)")
def copy_rows(
    shards: _Array,
    places: _Array,
    counts: _Array,
    item: int,
    addresses: _Array,
    out: int,
    stream: bool,
) -> int:
    """Copy rows one behind the other to the address `out`; return the address behind the last.

    The memory at `out` must have room for all of them. `stream` writes rows of STREAMED_ROW bytes
    or more past the caches: faster, unless somebody reads them before other data fills the caches.
    """
    last = len(shards) - 1
    count_mask = 0 if len(counts) == 1 else -1
    for i in range(len(shards)):
        coming = min(i + AHEAD, last)
        source = addresses[shards[coming]] + places[coming] * item
        size = counts[i & count_mask] * item
        prefetch(source)
        if size > 128:
            prefetch(source + 64)
            prefetch(source + 128)
            prefetch(source + 192)
        copy_row(out, addresses[shards[i]] + places[i] * item, size, stream)
        out += size
    if stream:
        fence()
    return out


@kernel("int64(int32[::1], int64[::1], int64[::1], int64[::1], int64[::1])")
def translate_codes(
    values: _Array, shards: _Array, starts: _Array, counts: _Array, codes: _Array
) -> int:
    """Replace the codes of rows in these shards; return -1, or the position of one too large.

    `starts`, `counts` and `codes` are those of `CodeTable`; negative codes stay.
    """
    for i in range(len(values)):
        start, code = starts[shards[i]], np.int64(values[i])
        if (start | code) >= 0:  # neither is negative
            if code >= counts[shards[i]]:
                return i
            values[i] = np.int32(codes[start + code])
    return -1
