"""Index points of JPEG images: places in their data from which decoding can begin.

An image of R rows of W MCUs has R * ceil(W / every) points (R if `every` is 0), as FORMAT.md says:

    bit & 0xFFFF, bit >> 16, DC predictors of up to three components as int16
"""

from typing import Any

import numpy as np

from fieldslab.schemas.codecs.bits import find_marker, overrun, position, refill, start
from fieldslab.schemas.codecs.huffman import (
    INVALID,
    LONG,
    SIZE,
    SKIP,
    fast_entry,
    long_code,
    make_tables,
    new_tables,
)
from fieldslab.schemas.codecs.jpeg import (
    AC_TABLE,
    ACROSS,
    DAMAGED,
    DC_TABLE,
    DOWN,
    FIELDS,
    INTERVAL,
    OK,
    SCAN,
    TRUNCATED,
    UNSUPPORTED,
    read_header,
)
from fieldslab.schemas.codecs.mcus import mcu_blocks, mcu_columns, mcu_rows, points_a_row
from fieldslab.schemas.jit import inlined, kernel, load_u8

LARGEST = 1 << 29
"""Images from this many bytes on have no points: a bit position has 32 bits."""


@kernel("int64(int64, int64[::1], int64, int64[::1])")
def _count_points(address: int, lengths: Any, every: int, counts: Any) -> int:
    """How many points each image has if it is whole, by its header; returns the sum."""
    header = np.zeros(FIELDS, np.int64)
    total = 0
    for i in range(len(lengths)):
        length = lengths[i]
        counts[i] = 0
        if length < LARGEST and read_header(address, length, header) == OK:
            rows, columns = mcu_rows(header), mcu_columns(header)
            # A block has at least one bit for DC and one for AC: headers that lie cost nothing.
            if rows * columns * mcu_blocks(header) * 2 <= 8 * length:
                counts[i] = rows * points_a_row(columns, every)
                total += counts[i]
        address += length
    return total


@inlined
def _skip_block(
    at: int, end: int, bits: Any, count: int, dc: int, ac: int
) -> tuple[int, Any, int, int, int]:
    """Read a block with the tables at `dc` and `ac`.

    Returns the stream, the DC difference, and 64 or less if all was well.
    """
    if count < 32:
        at, bits, count = refill(at, end, bits, count)
    entry = fast_entry(dc, bits)
    k = 1
    if entry == LONG:
        entry = long_code(dc, bits)
        if entry == INVALID:
            k = 65
    taken = entry & 63
    ones = (1 << (entry >> 12)) - 1
    difference: Any = np.int64(bits >> np.uint64(64 - taken)) & ones
    if difference <= ones >> 1:
        difference -= ones
    bits <<= np.uint64(taken)
    count -= taken
    while k < 64:
        if count < 32:
            at, bits, count = refill(at, end, bits, count)
        entry = fast_entry(ac, bits)
        if entry == LONG:
            entry = long_code(ac, bits)
        bits <<= np.uint64(entry & 63)
        count -= entry & 63
        if entry < SKIP:
            break
        k += ((entry >> 6) & 63) + 1
    return at, bits, count, difference, k


@kernel("int64(int64, int64, int64, int64[::1], uint16[::1], uint16[:, ::1])")
def _walk(address: int, length: int, every: int, header: Any, tables: Any, points: Any) -> int:
    """Read the whole scan; OK if it has all MCUs and restart markers, and the image ends there."""
    rows, columns = mcu_rows(header), mcu_columns(header)
    luma = header[ACROSS] * header[DOWN]
    blocks = mcu_blocks(header)
    end = address + length
    interval = header[INTERVAL]
    to_restart = interval if interval > 0 else rows * columns
    restarts = 0
    predictors = np.zeros(3, np.int64)
    first: Any = np.int64(tables.ctypes.data)
    place = 0
    at, bits, count = start(address + header[SCAN], end, 0)
    for _ in range(rows):
        to_point = 0
        for _ in range(columns):
            if to_restart == 0:
                marker = find_marker(at, end, count)
                if marker == 0 or load_u8(marker) != 0xD0 + (restarts & 7):
                    return DAMAGED
                restarts += 1
                to_restart = interval
                predictors[:] = 0
                at, bits, count = start(marker + 1, end, 0)
            to_restart -= 1
            if to_point == 0:
                bit = position(at, count) - 8 * address
                points[place, 0] = bit & 0xFFFF
                points[place, 1] = bit >> 16
                for component in range(3):
                    predictor = predictors[component]
                    if predictor < -32768 or predictor > 32767:
                        return DAMAGED
                    points[place, 2 + component] = predictor & 0xFFFF
                place += 1
                to_point = every if every > 0 else columns
            to_point -= 1
            for block in range(blocks):
                component = max(block - luma + 1, 0)
                dc = first + 2 * SIZE * header[DC_TABLE + component]
                ac = first + 2 * SIZE * header[AC_TABLE + component]
                at, bits, count, difference, k = _skip_block(at, end, bits, count, dc, ac)
                if k > 64:
                    return DAMAGED
                predictors[component] += difference
            if overrun(count):
                return TRUNCATED if at >= end else DAMAGED
    marker = find_marker(at, end, count)
    if marker == 0 or load_u8(marker) != 0xD9:
        return UNSUPPORTED if marker != 0 else DAMAGED
    return OK


@kernel("int64(int64, int64[::1], int64, uint16[::1], uint8[:, ::1], int64[::1], uint16[:, ::1])")
def _find_points(
    address: int, lengths: Any, every: int, tables: Any, keys: Any, counts: Any, points: Any
) -> int:
    """Fill in the points of all images that are whole; returns how many there are."""
    header = np.zeros(FIELDS, np.int64)
    total = 0
    for i in range(len(lengths)):
        if counts[i] > 0:
            own = points[total : total + counts[i]]
            if (
                read_header(address, lengths[i], header) == OK
                and make_tables(address, header, tables, keys) == OK
                and _walk(address, lengths[i], every, header, tables, own) == OK
            ):
                total += counts[i]
            else:
                counts[i] = 0
        address += lengths[i]
    return total


def index_images(
    values: np.ndarray, lengths: np.ndarray, every: int
) -> tuple[np.ndarray, np.ndarray]:
    """Find the index points of many images.

    Parameters
    ----------
    values
        uint8[bytes], C-contiguous: the images one behind the other.
    lengths
        int64[images], bytes of each.
    every
        MCUs from one point to the next along a row of MCUs; 0 for one point a row.

    Returns
    -------
    uint16[points, 5], and int64[images]: how many points each image has. None where it is no
    baseline JPEG of a kind that can be decoded from the middle, or is damaged.
    """
    values, lengths = np.ascontiguousarray(values), np.array(lengths, np.int64)
    if lengths.size and (lengths.min() < 0 or lengths.sum() > values.size):
        raise ValueError("the lengths do not fit the bytes")
    if every < 0:
        raise ValueError("`every` is less than 0")
    address = values.ctypes.data
    counts = np.zeros(len(lengths), np.int64)
    room = _count_points(address, lengths, every, counts)
    points = np.empty((room, 5), np.uint16)
    found = _find_points(address, lengths, every, *new_tables(), counts, points)
    return points[:found].copy() if found < room else points, counts
