"""Walking through the scans of JPEG images, from block to block and without their coefficients."""

from typing import Any, NamedTuple

import numpy as np

from fieldslab.schemas.codecs.baseline import read_header
from fieldslab.schemas.codecs.huffman import (
    INVALID,
    KEY,
    LONG,
    SIZE,
    SKIP,
    is_made_from,
    look_up_long_code,
    look_up_short_code,
    make_table,
)
from fieldslab.schemas.codecs.jpeg import OK, Frame, new_frame
from fieldslab.schemas.codecs.jpeg_windows import (
    DATA,
    MCU_BYTES,
    Lane,
    fill_window,
    find_marker,
    start_data,
    write_point,
)
from fieldslab.schemas.codecs.mcus import count_blocks_per_mcu, count_mcu_columns, count_mcu_rows
from fieldslab.schemas.codecs.skiptables import (
    BITS,
    ENDING,
    SHIFT,
    SKIP_SIZE,
    STUCK,
    look_up_skip,
    make_skip_table,
)
from fieldslab.schemas.jit import inlined, load_big_u64, load_u8, make_tuple_type, subkernel, types

FAILED = -1
"""In place of a bit: the image is damaged, or ends otherwise than with its last MCU."""
FINISHED = -2
"""In place of a bit: the image was walked through, and is whole."""


class Scratch(NamedTuple):
    """Memory for two lanes, and two sets of tables that they may share."""

    windows: np.ndarray
    gaps: np.ndarray
    entries: np.ndarray
    keys: np.ndarray
    skips: np.ndarray


SCRATCH = make_tuple_type(
    Scratch,
    types.uint8[:, ::1],
    types.uint16[:, ::1],
    types.uint16[:, :, ::1],
    types.uint8[:, :, ::1],
    types.uint16[:, :, ::1],
)


def make_scratch() -> Scratch:
    """Make scratch memory with empty tables."""
    return Scratch(
        np.zeros((2, DATA + MCU_BYTES + 16), np.uint8),
        np.empty((2, DATA), np.uint16),
        np.zeros((2, 8, SIZE), np.uint16),
        np.zeros((2, 8, KEY), np.uint8),
        np.full((2, 4, SKIP_SIZE), STUCK, np.uint16),
    )


@subkernel(types.int64(Lane, types.int64))
def _begin_mcu(lane: Any, bit: int) -> int:
    """Store index points and pass restart markers before an MCU, or after the last one.

    Returns the bit of its first block, FINISHED or FAILED.
    """
    lane.block = 0
    if bit > 8 * lane.bytes:
        return FAILED
    if not lane.ended and 8 * lane.bytes - bit < 8 * MCU_BYTES:
        bit = fill_window(lane, bit)
    if lane.column == lane.columns:
        lane.column = lane.to_point = 0
        lane.rows -= 1
        if lane.rows == 0:
            marker = find_marker(lane, bit)
            return FINISHED if marker != 0 and load_u8(marker) == 0xD9 else FAILED
    if lane.to_restart == 0:
        marker = find_marker(lane, bit)
        if marker == 0 or load_u8(marker) != 0xD0 + (lane.restarts & 7):
            return FAILED
        lane.restarts += 1
        lane.to_restart = lane.interval
        bit = start_data(lane, marker + 1)
    if lane.to_point == 0:
        if not write_point(lane, bit):
            return FAILED
        lane.to_point = lane.every
    lane.column += 1
    lane.to_restart -= 1
    lane.to_point -= 1
    return bit


@inlined
def _peek_bits(window: int, bit: int) -> Any:
    """Load the next bits of a window, of which 57 are valid."""
    return load_big_u64(window + (bit >> 3)) << np.uint64(bit & 7)


@inlined
def skip_codes(window: int, bit: int, k: Any, table: int) -> tuple[Any, Any, Any]:
    """Skip the AC codes that two table entries stand for, or one if it ends the block.

    Returns the next bit, the next coefficient `k`, which is 64 or more at the end of a block, and
    the last entry.
    """
    bits = _peek_bits(window, bit)
    entry: Any = look_up_skip(table, bits)
    taken: Any = entry & BITS
    bit += taken
    k += entry >> SHIFT
    if k < 64:
        bits <<= np.uint64(taken)
        entry = look_up_skip(table, bits)
        bit += entry & BITS
        k += entry >> SHIFT
    return bit, k, entry


@subkernel("int64(int64, int64, int64, int64)")
def _skip_single_codes(window: int, bit: int, k: int, table: int) -> int:
    """Skip the AC codes up to the end of the block; return the next bit, or FAILED."""
    while k < 64:
        bits = _peek_bits(window, bit)
        entry = look_up_short_code(table, bits)
        if entry == LONG:
            entry = look_up_long_code(table, bits)
        bit += entry & 63
        if entry < SKIP:
            break
        k += ((entry >> 6) & 63) + 1
    return bit if k <= 64 else FAILED


@inlined
def _begin_block(lane: Any, bit: int) -> int:
    """Skip the DC coefficient of a block; return the next bit, or FAILED."""
    bits = _peek_bits(lane.window, bit)
    block = np.uint64(lane.block)
    table = lane.dc_tables[block]
    entry = look_up_short_code(table, bits)
    if entry == LONG:
        entry = look_up_long_code(table, bits)
        if entry == INVALID:
            return FAILED
    ones = (1 << (entry >> 12)) - 1
    difference: Any = np.int64(bits >> np.uint64(64 - (entry & 63))) & ones
    if difference <= ones >> 1:
        difference -= ones
    lane.predictors[np.uint64(lane.components[block])] += difference
    return bit + (entry & 63)


@inlined
def end_block(lane: Any, bit: int, k: int, entry: int) -> int:
    """Go from the end of a block, as `skip_codes` found it, to the AC codes of the next block.

    Returns the bit there, FINISHED or FAILED.
    """
    if k != 64 and (k <= ENDING or k >= ENDING + 64):
        bit -= entry & BITS
        k -= entry >> SHIFT
        bit = _skip_single_codes(lane.window, bit, k, lane.ac_tables[np.uint64(lane.block)])
        if bit < 0:
            return bit
    lane.block += 1
    if lane.block == lane.blocks:
        bit = _begin_mcu(lane, bit)
        if bit < 0:
            return bit
    return _begin_block(lane, bit)


@subkernel(types.boolean(types.int64, Frame, types.uint8[:, ::1]))
def _has_tables_of(address: int, frame: Any, keys: Any) -> bool:
    """Return True if a set of tables has those of an image."""
    for number in range(8):
        offset = frame.huffman[number]
        if offset != 0 and not is_made_from(address + offset, keys[number]):
            return False
    return True


@subkernel(types.boolean(types.int64, Frame, SCRATCH, types.int64))
def _make_table_set(address: int, frame: Any, scratch: Scratch, number: int) -> bool:
    """Make the tables of an image; False if they are damaged."""
    for i in range(8):
        table = address + frame.huffman[i]
        key, entries = scratch.keys[number, i], scratch.entries[number, i]
        if frame.huffman[i] == 0 or is_made_from(table, key):
            continue
        status = make_table(table, i >= 4, entries, key)
        if i >= 4:
            make_skip_table(entries, key, scratch.skips[number, i - 4])
        if status != OK:
            return False
    return True


@subkernel(types.boolean(types.int64, types.int64, types.int64, Lane, Lane, SCRATCH))
def begin_image(address: int, length: int, every: int, lane: Any, other: Any, scratch: Any) -> bool:
    """Put an image on a lane, up to AC of its first block; False if its headers do not allow it.

    `lane.point` says where its index points go, and `other` is the other lane, whose tables stay.
    """
    frame = new_frame()
    if read_header(address, length, frame) != OK:
        return False
    number = 0
    if not _has_tables_of(address, frame, scratch.keys[0]):
        number = 1 if other.image >= 0 and other.table_set == 0 else 0
        if not _has_tables_of(address, frame, scratch.keys[1]):
            if not _make_table_set(address, frame, scratch, number):
                return False
        else:
            number = 1
    lane.table_set = number
    entries: Any = np.int64(scratch.entries[number].ctypes.data)
    skips: Any = np.int64(scratch.skips[number].ctypes.data)
    lane.blocks = count_blocks_per_mcu(frame)
    for block in range(lane.blocks):
        component = max(block - frame.across * frame.down + 1, 0)
        ac_table = frame.ac_tables[component]
        lane.components[block] = component
        lane.dc_tables[block] = entries + 2 * SIZE * frame.dc_tables[component]
        lane.ac_tables[block] = entries + 2 * SIZE * ac_table
        lane.skip_tables[block] = skips + 2 * SKIP_SIZE * (ac_table - 4)
    lane.address, lane.end = address, address + length
    lane.window = np.int64(scratch.windows[lane.number].ctypes.data)
    lane.gaps = np.int64(scratch.gaps[lane.number].ctypes.data)
    lane.rows, lane.columns = count_mcu_rows(frame), count_mcu_columns(frame)
    lane.column = lane.to_point = lane.restarts = 0
    lane.every = every if every > 0 else lane.columns
    lane.interval = frame.interval
    lane.to_restart = frame.interval if frame.interval > 0 else lane.rows * lane.columns
    bit = _begin_mcu(lane, start_data(lane, address + frame.scan))
    if bit >= 0:
        lane.bit = _begin_block(lane, bit)
    return bit >= 0 and lane.bit >= 0
