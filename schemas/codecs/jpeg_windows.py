"""Images that are walked through: their data without the stuffed bytes, and their index points.

A lane is a place for such an image. Its data is copied to a window, which is filled again whenever
an MCU might not be whole in it. Places in a window are bits, counted from its first byte.
"""

from typing import Any

import numpy as np

from fieldslab.schemas.jit import (
    count_leading_zeros,
    inlined,
    load_big_u64,
    load_u8,
    load_u16,
    make_record_maker,
    make_record_type,
    memcpy,
    store_u16,
    subkernel,
    types,
)

MCU_BYTES = 2048
"""More than an MCU takes: at most six blocks of 64 codes and values, 31 bits each."""
DATA = 1 << 15
"""Bytes of data in a window at most; what stands behind them is read, but never counts."""
POINT_BYTES = 10
_ONES = np.uint64(0x0101010101010101)
_LOWS = np.uint64(0x7F7F7F7F7F7F7F7F)
_HIGHS = np.uint64(0x8080808080808080)

LANE = np.dtype(
    [
        ("number", np.int64),
        ("image", np.int64),
        ("bit", np.int64),
        ("address", np.int64),
        ("end", np.int64),
        ("source", np.int64),
        ("ended", np.int64),
        ("window", np.int64),
        ("bytes", np.int64),
        ("origin", np.int64),
        ("gaps", np.int64),
        ("first_gap", np.int64),
        ("last_gap", np.int64),
        ("table_set", np.int64),
        ("rows", np.int64),
        ("columns", np.int64),
        ("column", np.int64),
        ("every", np.int64),
        ("to_point", np.int64),
        ("point", np.int64),
        ("interval", np.int64),
        ("to_restart", np.int64),
        ("restarts", np.int64),
        ("blocks", np.int64),
        ("block", np.int64),
        ("predictors", np.int64, 3),
        ("components", np.int64, 6),
        ("dc_tables", np.int64, 6),
        ("ac_tables", np.int64, 6),
        ("skip_tables", np.int64, 6),
    ],
    align=True,
)
"""An image on the way.

    image              its number; -1 where the lane is empty
    bit                where the codes of AC begin in the first block that was not walked through
    address, end       of the image
    source             address of the next byte that goes to the window
    ended              1 if what stands at `source` is a marker, or the end of the image
    window, bytes      address of the window, and how many bytes of data it has
    origin             address of the window's first byte in the image
    gaps               address of a list: the places in the window, as uint16, of bytes behind which
                       a stuffed one was left out
    first_gap, last_gap
                       what of this list is not yet behind the last index point
    table_set          which Huffman tables it uses
    rows, columns      of MCUs: how many rows are left, and how many columns there are
    column, block      where the walk has come to
    every, to_point    MCUs between index points, and to the next one
    point              address where this goes
    interval, to_restart, restarts
                       MCUs between restart markers, and to the next one; how many came
    predictors         of each component
    blocks             in an MCU; of each of them: its component, and addresses of its tables
"""
Lane = make_record_type(LANE)
new_lane = make_record_maker(LANE)


@inlined
def _find_ff_bytes(address: int) -> Any:
    """Set the highest bit of each byte that is 0xFF, of the eight bytes at an address."""
    word = load_big_u64(address)
    return (word & _LOWS) + _ONES & word & _HIGHS


@subkernel(types.int64(Lane, types.int64))
def fill_window(lane: Any, bit: int) -> int:
    """Move the data from `bit` on to the front of the window, refill it, and return the new bit."""
    first = bit >> 3
    while lane.first_gap < lane.last_gap and load_u16(lane.gaps + 2 * lane.first_gap) < first:
        lane.first_gap += 1
        lane.origin += 1
    lane.origin += first
    gap = 0
    for i in range(lane.first_gap, lane.last_gap):
        store_u16(lane.gaps + 2 * gap, load_u16(lane.gaps + 2 * i) - first)
        gap += 1
    for i in range(first, lane.bytes):
        memcpy(lane.window + i - first, lane.window + i, 1)
    place = lane.bytes - first
    source, end, window = lane.source, lane.end, lane.window
    while place <= DATA - 8:
        if source + 32 <= end and place <= DATA - 32:
            marks = _find_ff_bytes(source) | _find_ff_bytes(source + 8)
            if marks | _find_ff_bytes(source + 16) | _find_ff_bytes(source + 24) == np.uint64(0):
                memcpy(window + place, source, 32)
                place += 32
                source += 32
                continue
        plain = 0  # bytes up to the next 0xFF
        if source + 8 <= end:
            memcpy(window + place, source, 8)
            plain = count_leading_zeros(_find_ff_bytes(source)) >> 3
        else:
            while source + plain < end and load_u8(source + plain) != 0xFF:
                memcpy(window + place + plain, source + plain, 1)
                plain += 1
        place += plain
        source += plain
        if plain == 8:
            continue
        if source + 1 >= end or load_u8(source + 1) != 0:
            lane.ended = 1
            break
        memcpy(window + place, source, 1)
        store_u16(lane.gaps + 2 * gap, place)
        gap += 1
        place += 1
        source += 2
    lane.first_gap, lane.last_gap = 0, gap
    lane.bytes, lane.source = place, source
    return bit & 7


@subkernel(types.int64(Lane, types.int64))
def find_marker(lane: Any, bit: int) -> int:
    """Find the address of the next marker's code, after the padding of the last byte.

    0 if something else comes, or the end.
    """
    address = lane.source
    if not lane.ended or 8 * lane.bytes - bit > 7 or address + 1 >= lane.end:
        return 0
    while address + 1 < lane.end and load_u8(address) == 0xFF:
        address += 1
    if load_u8(address) == 0xFF or load_u8(address) == 0:
        return 0
    return address


@subkernel(types.int64(Lane, types.int64))
def start_data(lane: Any, address: int) -> int:
    """Start with the entropy-coded data at an address; return the bit."""
    lane.source = lane.origin = address
    lane.ended = lane.bytes = lane.first_gap = lane.last_gap = 0
    for component in range(3):
        lane.predictors[component] = 0
    return fill_window(lane, 0)


@subkernel(types.boolean(Lane, types.int64))
def write_point(lane: Any, bit: int) -> bool:
    """Write an index point; False if it cannot be stored."""
    while lane.first_gap < lane.last_gap and load_u16(lane.gaps + 2 * lane.first_gap) < bit >> 3:
        lane.first_gap += 1
        lane.origin += 1
    place = 8 * (lane.origin - lane.address) + bit
    store_u16(lane.point, place)
    store_u16(lane.point + 2, place >> 16)
    for component in range(3):
        predictor = lane.predictors[component]
        if predictor < -32768 or predictor > 32767:
            return False
        store_u16(lane.point + 4 + 2 * component, predictor)
    lane.point += POINT_BYTES
    return True
