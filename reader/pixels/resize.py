"""The two passes of a resize: across rows, sixteen of them at a time, then down columns.

Across, 16 rows are transposed, so that one operation weighs the same samples of all of them; what
comes out is turned back and kept in a ring of rows. Down, the rows of the ring are weighed.
"""

from fieldslab.reader.pixels.lanes import (
    add4_bytes,
    add4_words,
    end_bytes,
    end_words,
    load_i32,
    load_i64,
    mix2_bytes,
    mix2_words,
    mix3_bytes,
    mix3_words,
    mix4_bytes,
    mix4_words,
    store_i64,
    sum4_bytes,
    sum4_words,
    transpose_bytes,
    transpose_words,
)
from fieldslab.schemas.jit import kernel, memcpy

BLOCK = 16
"""Rows that are taken across at once; an output pixel of theirs is 32 bytes."""


@kernel("void(int64, int64, int64, int64)")
def turn(rows: int, length: int, columns: int, spare: int) -> None:
    """Write bytes 0..length-1 of 16 rows to uint8[length][16] at `columns`.

    The addresses of the rows stand at `rows`; 256 bytes at `spare` are used. Nothing outside the
    rows is read.
    """
    for x in range(0, length - 15, 16):
        transpose_bytes(columns + 16 * x, rows, x)
    if length < 16:
        for i in range(16):
            memcpy(spare + 16 * i, load_i64(rows + 8 * i), length)
            store_i64(rows + 8 * i, spare + 16 * i)
        transpose_bytes(columns, rows, 0)
    elif length % 16:
        transpose_bytes(columns + 16 * (length - 16), rows, length - 16)


@kernel("void(int64, int64, int64, int64, int64, int64, int64)")
def across(columns: int, step: int, table: int, taps: int, size: int, out: int, sums: int) -> None:
    """Weigh the samples at `columns`, `step` bytes apart, to words[size][16] at `out`.

    64 bytes at `sums` are used.
    """
    weights = table + 4 * size
    if taps == 2:
        for x in range(size):
            at = columns + step * load_i32(table + 4 * x)
            mix2_bytes(out + 32 * x, weights + 4 * x, at, at + step)
    elif taps == 3:
        for x in range(size):
            at = columns + step * load_i32(table + 4 * x)
            mix3_bytes(out + 32 * x, weights + 6 * x, at, at + step, at + 2 * step)
    elif taps == 4:
        for x in range(size):
            at = columns + step * load_i32(table + 4 * x)
            here = weights + 8 * x
            mix4_bytes(out + 32 * x, here, at, at + step, at + 2 * step, at + 3 * step)
    else:
        for x in range(size):
            at = columns + step * load_i32(table + 4 * x)
            here = weights + 2 * taps * x
            sum4_bytes(sums, here, at, at + step, at + 2 * step, at + 3 * step)
            for k in range(4, taps, 4):
                at += 4 * step
                add4_bytes(sums, here + 2 * k, at, at + step, at + 2 * step, at + 3 * step)
            end_bytes(out + 32 * x, sums)


@kernel("void(int64, int64, int64, int64, int64, int64, int64, int64)")
def down(
    ring: int, mask: int, stride: int, row: int, weights: int, taps: int, out: int, sums: int
) -> None:
    """Weigh rows `row`.. of a ring of mask + 1 rows of `stride` bytes to one row of words.

    2 * stride bytes at `sums` are used.
    """
    a = ring + (row & mask) * stride
    b = ring + (row + 1 & mask) * stride
    c = ring + (row + 2 & mask) * stride
    d = ring + (row + 3 & mask) * stride
    if taps == 2:
        for x in range(0, stride, 32):
            mix2_words(out + x, weights, a + x, b + x)
    elif taps == 3:
        for x in range(0, stride, 32):
            mix3_words(out + x, weights, a + x, b + x, c + x)
    elif taps == 4:
        for x in range(0, stride, 32):
            mix4_words(out + x, weights, a + x, b + x, c + x, d + x)
    else:
        for x in range(0, stride, 32):
            sum4_words(sums + 2 * x, weights, a + x, b + x, c + x, d + x)
        for k in range(4, taps, 4):
            a = ring + (row + k & mask) * stride
            b = ring + (row + k + 1 & mask) * stride
            c = ring + (row + k + 2 & mask) * stride
            d = ring + (row + k + 3 & mask) * stride
            for x in range(0, stride, 32):
                add4_words(sums + 2 * x, weights + 2 * k, a + x, b + x, c + x, d + x)
        for x in range(0, stride, 32):
            end_words(out + x, sums + 2 * x)


@kernel(
    "int64(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, "
    "int64, int64, int64, int64)"
)
def supply(
    source: int,
    stride: int,
    rows: int,
    length: int,
    channels: int,
    ready: int,
    needed: int,
    table: int,
    taps: int,
    size: int,
    ring: int,
    mask: int,
    ring_stride: int,
    scratch: int,
) -> int:
    """Take rows of a plane across until `needed` of them are in the ring; return how many are.

    Parameters
    ----------
    source, stride, rows, length
        The plane: address, bytes from row to row, rows, bytes of a row that may be read.
    channels
        1, or 3 of interleaved samples, whose rings then lie one behind the other.
    ready, needed
        Rows in the ring, a multiple of 16, and rows wanted.
    table, taps, size
        As `find_taps` gave them.
    ring, mask, ring_stride
        Where the ring is, its rows - 1, and bytes of a row: 2 * size, rounded up to 32.
    scratch
        `scratch_bytes` of memory.
    """
    addresses = scratch
    spare = scratch + 8 * BLOCK
    turned = spare + 16 * BLOCK
    columns = turned + BLOCK * ring_stride
    while ready < needed:
        for i in range(BLOCK):
            store_i64(addresses + 8 * i, source + min(ready + i, rows - 1) * stride)
        turn(addresses, length, columns, spare)
        for channel in range(channels):
            across(columns + 16 * channel, 16 * channels, table, taps, size, turned, spare)
            out = ring + (channel * (mask + 1) + (ready & mask)) * ring_stride
            for x in range(0, ring_stride, 32):
                transpose_words(out + x, ring_stride, turned + BLOCK * x)
        ready += BLOCK
    return ready


@kernel("int64(int64, int64)")
def scratch_bytes(length: int, ring_stride: int) -> int:
    """Return what `supply` needs for rows of `length` bytes: windows may end past the last."""
    return 24 * BLOCK + BLOCK * ring_stride + 16 * (length + 3 * BLOCK)
