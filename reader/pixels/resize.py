"""The two passes of a resize: across rows, sixteen of them at a time, then down columns.

Across, 16 rows are transposed, so that one operation weighs the same samples of all of them; what
comes out is turned back and kept in a ring of rows. Down, the rows of the ring are weighed.
"""

from typing import Any, NamedTuple

import numpy as np

from fieldslab.reader.pixels.lanes import (
    add4_bytes,
    add4_words,
    load_i32,
    load_i64,
    mix2_bytes,
    mix2_words,
    mix3_bytes,
    mix3_words,
    mix4_bytes,
    mix4_words,
    round_sums_of_bytes,
    round_sums_of_words,
    store_i64,
    sum4_bytes,
    sum4_words,
    transpose_bytes,
    transpose_words,
)
from fieldslab.schemas.jit import make_record_type, make_tuple_type, memcpy, subkernel, types

BLOCK = 16
"""Rows that are taken across at once; an output pixel of theirs is 32 bytes."""

PLANE = np.dtype(
    [
        ("address", np.int64),
        ("stride", np.int64),
        ("first_row", np.int64),
        ("rows", np.int64),
        ("first_column", np.int64),
        ("columns", np.int64),
        ("samples", np.int64),
        ("x_table", np.int64),
        ("x_taps", np.int64),
        ("y_table", np.int64),
        ("y_taps", np.int64),
        ("ready", np.int64),
    ],
    align=True,
)
"""A plane of samples, and how far its resize has come.

    address, stride    of the first sample that may be read; bytes from row to row
    first_row, first_column
                       which row and column of the plane that sample is in
    rows, columns      how many may be read from there
    samples            1, or 3 where samples are interleaved
    x_table, x_taps, y_table, y_taps
                       the weights of both axes, as `find_taps` gave them
    ready              rows in the ring, a multiple of 16
"""
Plane = make_record_type(PLANE)


class Ring(NamedTuple):
    """The newest rows of a plane after the pass across.

    Attributes
    ----------
    address
        Of the first row. Interleaved samples have three rings, one behind the other.
    rows
        A power of two.
    stride
        Bytes of a row: two for each output, rounded up to 32.
    width
        Outputs in a row.
    """

    address: int
    rows: int
    stride: int
    width: int


RING = make_tuple_type(Ring, types.int64, types.int64, types.int64, types.int64)


@subkernel("void(int64, int64, int64, int64)")
def transpose_rows(rows: int, length: int, columns: int, spare: int) -> None:
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


@subkernel("void(int64, int64, int64, int64, int64, int64, int64)")
def resize_across(
    columns: int, step: int, table: int, taps: int, size: int, out: int, sums: int
) -> None:
    """Weigh the samples at `columns`, `step` bytes apart, to words[size][16] at `out`.

    64 bytes at `sums` are used.
    """
    weights = table + 4 * size
    if taps == 2:
        for x in range(size):
            first = columns + step * load_i32(table + 4 * x)
            mix2_bytes(out + 32 * x, weights + 4 * x, first, first + step)
    elif taps == 3:
        for x in range(size):
            first = columns + step * load_i32(table + 4 * x)
            mix3_bytes(out + 32 * x, weights + 6 * x, first, first + step, first + 2 * step)
    elif taps == 4:
        for x in range(size):
            first = columns + step * load_i32(table + 4 * x)
            row = weights + 8 * x
            mix4_bytes(out + 32 * x, row, first, first + step, first + 2 * step, first + 3 * step)
    else:
        for x in range(size):
            first = columns + step * load_i32(table + 4 * x)
            row = weights + 2 * taps * x
            sum4_bytes(sums, row, first, first + step, first + 2 * step, first + 3 * step)
            for k in range(4, taps, 4):
                first += 4 * step
                add4_bytes(
                    sums, row + 2 * k, first, first + step, first + 2 * step, first + 3 * step
                )
            round_sums_of_bytes(out + 32 * x, sums)


@subkernel(types.void(RING, types.int64, types.int64, types.int64, types.int64, types.int64))
def resize_down(ring: Ring, row: int, weights: int, taps: int, out: int, sums: int) -> None:
    """Weigh `taps` rows of a ring, from `row` on, to one row of words.

    2 * ring.stride bytes at `sums` are used.
    """
    mask, stride = ring.rows - 1, ring.stride
    a = ring.address + (row & mask) * stride
    b = ring.address + (row + 1 & mask) * stride
    c = ring.address + (row + 2 & mask) * stride
    d = ring.address + (row + 3 & mask) * stride
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
            a = ring.address + (row + k & mask) * stride
            b = ring.address + (row + k + 1 & mask) * stride
            c = ring.address + (row + k + 2 & mask) * stride
            d = ring.address + (row + k + 3 & mask) * stride
            for x in range(0, stride, 32):
                add4_words(sums + 2 * x, weights + 2 * k, a + x, b + x, c + x, d + x)
        for x in range(0, stride, 32):
            round_sums_of_words(out + x, sums + 2 * x)


@subkernel(types.void(Plane, RING, types.int64, types.int64))
def fill_ring(plane: Any, ring: Ring, needed: int, scratch: int) -> None:
    """Take rows of a plane across until at least `needed` of them are in the ring.

    `scratch` is the address of `count_scratch_bytes` of memory.
    """
    samples, ready, last_row = plane.samples, plane.ready, plane.rows - 1
    addresses = scratch
    spare = scratch + 8 * BLOCK
    turned = spare + 16 * BLOCK
    columns = turned + BLOCK * ring.stride
    while ready < needed:
        for i in range(BLOCK):
            row = min(ready + i, last_row)
            store_i64(addresses + 8 * i, plane.address + row * plane.stride)
        transpose_rows(addresses, samples * plane.columns, columns, spare)
        for sample in range(samples):
            first = columns + 16 * sample
            resize_across(
                first, 16 * samples, plane.x_table, plane.x_taps, ring.width, turned, spare
            )
            row = sample * ring.rows + (ready & ring.rows - 1)
            out = ring.address + row * ring.stride
            for x in range(0, ring.stride, 32):
                transpose_words(out + x, ring.stride, turned + BLOCK * x)
        ready += BLOCK
    plane.ready = ready


@subkernel("int64(int64, int64)")
def count_scratch_bytes(length: int, ring_stride: int) -> int:
    """Return what `fill_ring` needs for rows of `length` bytes: windows may end past the last."""
    return 24 * BLOCK + BLOCK * ring_stride + 16 * (length + 3 * BLOCK)
