"""Index points of JPEG images: places in their data from which decoding can begin.

An image of R rows of W MCUs has R * ceil(W / every) points (R if `every` is 0), as FORMAT.md says:

    bit & 0xFFFF, bit >> 16, DC predictors of up to three components as int16
"""

from typing import Any

import numpy as np

from fieldslab.schemas.codecs.baseline import read_header
from fieldslab.schemas.codecs.bits import find_marker, overrun, position, refill, skip, start
from fieldslab.schemas.codecs.huffman import (
    HUFFMAN_TABLES,
    INVALID,
    LONG,
    SIZE,
    SKIP,
    HuffmanTables,
    fast_entry,
    long_code,
    make_tables,
    new_tables,
)
from fieldslab.schemas.codecs.jpeg import DAMAGED, OK, TRUNCATED, UNSUPPORTED, Frame, new_frame
from fieldslab.schemas.codecs.mcus import blocks_per_mcu, mcu_columns, mcu_rows, points_per_row
from fieldslab.schemas.jit import inlined, kernel, load_u8, types

LARGEST = 1 << 29
"""Images from this many bytes on have no points: a bit position has 32 bits."""


@kernel("int64(int64, int64[::1], int64, int64[::1])")
def _count_points(address: int, lengths: Any, every: int, counts: Any) -> int:
    """How many points each image has if it is whole, by its header; returns the sum."""
    frame = new_frame()
    total = 0
    for i in range(len(lengths)):
        length = lengths[i]
        counts[i] = 0
        if length < LARGEST and read_header(address, length, frame) == OK:
            rows, columns = mcu_rows(frame), mcu_columns(frame)
            # A block has at least one bit for DC and one for AC: headers that lie cost nothing.
            if rows * columns * blocks_per_mcu(frame) * 2 <= 8 * length:
                counts[i] = rows * points_per_row(columns, every)
                total += counts[i]
        address += length
    return total


@inlined
def _skip_block(stream: Any, end: int, dc_table: int, ac_table: int) -> tuple[Any, int, int]:
    """Read a block with the tables at these addresses.

    Returns the stream, the DC difference, and 64 or less if all was well.
    """
    if stream.count < 32:
        stream = refill(stream, end)
    entry = fast_entry(dc_table, stream.bits)
    k = 1
    if entry == LONG:
        entry = long_code(dc_table, stream.bits)
        if entry == INVALID:
            k = 65
    ones = (1 << (entry >> 12)) - 1
    difference: Any = np.int64(stream.bits >> np.uint64(64 - (entry & 63))) & ones
    if difference <= ones >> 1:
        difference -= ones
    stream = skip(stream, entry & 63)
    while k < 64:
        if stream.count < 32:
            stream = refill(stream, end)
        entry = fast_entry(ac_table, stream.bits)
        if entry == LONG:
            entry = long_code(ac_table, stream.bits)
        stream = skip(stream, entry & 63)
        if entry < SKIP:
            break
        k += ((entry >> 6) & 63) + 1
    return stream, difference, k


@kernel(
    types.int64(
        types.int64, types.int64, types.int64, Frame, types.uint16[::1], types.uint16[:, ::1]
    )
)
def _read_scan(address: int, length: int, every: int, frame: Any, tables: Any, points: Any) -> int:
    """Read the whole scan; OK if it has all MCUs and restart markers, and the image ends there."""
    rows, columns = mcu_rows(frame), mcu_columns(frame)
    luma_blocks = frame.across * frame.down
    blocks = blocks_per_mcu(frame)
    end = address + length
    interval = frame.interval
    to_restart = interval if interval > 0 else rows * columns
    restarts = 0
    predictors = np.zeros(3, np.int64)
    first_table: Any = np.int64(tables.ctypes.data)
    point = 0
    stream = start(address + frame.scan, end, 0)
    for _ in range(rows):
        to_point = 0
        for _ in range(columns):
            if to_restart == 0:
                marker = find_marker(stream, end)
                if marker == 0 or load_u8(marker) != 0xD0 + (restarts & 7):
                    return DAMAGED
                restarts += 1
                to_restart = interval
                predictors[:] = 0
                stream = start(marker + 1, end, 0)
            to_restart -= 1
            if to_point == 0:
                bit = position(stream) - 8 * address
                points[point, 0] = bit & 0xFFFF
                points[point, 1] = bit >> 16
                for component in range(3):
                    predictor = predictors[component]
                    if predictor < -32768 or predictor > 32767:
                        return DAMAGED
                    points[point, 2 + component] = predictor & 0xFFFF
                point += 1
                to_point = every if every > 0 else columns
            to_point -= 1
            for block in range(blocks):
                component = max(block - luma_blocks + 1, 0)
                dc_table = first_table + 2 * SIZE * frame.dc_tables[component]
                ac_table = first_table + 2 * SIZE * frame.ac_tables[component]
                stream, difference, k = _skip_block(stream, end, dc_table, ac_table)
                if k > 64:
                    return DAMAGED
                predictors[component] += difference
            if overrun(stream):
                return TRUNCATED if stream.address >= end else DAMAGED
    marker = find_marker(stream, end)
    if marker == 0 or load_u8(marker) != 0xD9:
        return UNSUPPORTED if marker != 0 else DAMAGED
    return OK


@kernel(
    types.int64(
        types.int64,
        types.int64[::1],
        types.int64,
        HUFFMAN_TABLES,
        types.int64[::1],
        types.uint16[:, ::1],
    )
)
def _find_points(
    address: int, lengths: Any, every: int, tables: HuffmanTables, counts: Any, points: Any
) -> int:
    """Fill in the points of all images that are whole; returns how many there are."""
    frame = new_frame()
    total = 0
    for i in range(len(lengths)):
        if counts[i] > 0:
            points_of_image = points[total : total + counts[i]]
            if (
                read_header(address, lengths[i], frame) == OK
                and make_tables(address, frame, tables) == OK
                and _read_scan(address, lengths[i], every, frame, tables.entries, points_of_image)
                == OK
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
    expected = _count_points(address, lengths, every, counts)
    points = np.empty((expected, 5), np.uint16)
    total = _find_points(address, lengths, every, new_tables(), counts, points)
    return points[:total].copy() if total < expected else points, counts
