"""Huffman tables of JPEG images (ITU-T T.81, annexes C and F.2.2.3), made for fast decoding.

Eight tables, four for DC and four for AC, stand one behind the other, each of SIZE uint16. The next
FAST bits of the data find one of the first 2**FAST entries, which tells at once how many bits the
code and its value take together, how many zero coefficients go before the value, and how many bits
the value has:

    bits of the value << 12 | zeros << 6 | bits in all

LONG stands for codes of more than FAST bits, which `look_up_long_code` finds by their length.
Behind the fast entries come, for lengths 1..16, the first left-aligned code that is longer (LIMITS)
and what to add to a code to get the place of its entry (PLACES); then entries in the order of their
codes.
"""

from typing import Any, NamedTuple

import numpy as np

from fieldslab.schemas.codecs.jpeg import DAMAGED, OK, Frame
from fieldslab.schemas.jit import inlined, load_u8, load_u16, make_tuple_type, subkernel, types

FAST = 10
LONG = 0
VALUE = 1 << 12
"""Entries from here on have a value; smaller ones of AC tables end the block, or skip 16 zeros."""
SKIP = 15 << 6
"""Entries below VALUE, but not below this, skip 16 zeros."""
INVALID = (15 << 12) | (63 << 6) | 16
"""The entry of bits that are no code: so many zeros that they end behind the block."""
LIMITS = 1 << FAST
PLACES = LIMITS + 17
ENTRIES = PLACES + 17
SIZE = ENTRIES + 256
KEY = 16 + 256
"""Bytes that make a table: how many codes there are of each length, and what they stand for."""


class HuffmanTables(NamedTuple):
    """Eight tables, uint16[8 * SIZE], and the bytes they were built from, uint8[8, KEY]."""

    entries: np.ndarray
    keys: np.ndarray


HUFFMAN_TABLES = make_tuple_type(HuffmanTables, types.uint16[::1], types.uint8[:, ::1])


def make_empty_tables() -> HuffmanTables:
    """Make eight empty tables."""
    return HuffmanTables(np.zeros(8 * SIZE, np.uint16), np.zeros((8, KEY), np.uint8))


@inlined
def _make_entry(symbol: int, length: int, is_ac: bool) -> int:
    """Make the entry of a code of `length` bits."""
    if not is_ac:
        return (symbol << 12) | (length + symbol)
    zeros, size = symbol >> 4, symbol & 15
    if size == 0 and zeros != 15:
        zeros = 0
    return (size << 12) | (zeros << 6) | (length + size)


@inlined
def is_made_from(address: int, key: Any) -> bool:
    """Return True if a table was built from the bytes at `address`."""
    total = 0
    for i in range(16):
        if load_u8(address + i) != key[i]:
            return False
        total += key[i]
    same = True
    for i in range(16, 16 + total):
        same = same and load_u8(address + i) == key[i]
    return same


@subkernel("int64(int64, boolean, uint16[::1], uint8[::1])")
def make_table(address: int, is_ac: bool, table: Any, key: Any) -> int:
    """Make a table from a DHT segment, or leave it if it was made from the same bytes before.

    `address` is that of the 16 counts; they and the symbols behind them can be read, at most 256.
    Returns OK, or DAMAGED (and makes an empty table) if the counts are no prefix code of bytes.
    """
    if is_made_from(address, key):
        return OK
    table[:] = 0
    key[:] = 0
    symbols = address + 16
    code, place = 0, 0
    for length in range(1, 17):
        count = load_u8(address + length - 1)
        if code + count >= 1 << length or place + count > 256:  # ones alone are reserved
            table[:] = 0
            return DAMAGED
        table[PLACES + length] = (place - code) & 0xFFFF
        for _ in range(count):
            symbol = load_u8(symbols + place)
            if symbol > 15 and not is_ac:
                table[:] = 0
                return DAMAGED
            entry = _make_entry(symbol, length, is_ac)
            table[ENTRIES + place] = entry
            if length <= FAST:
                first = code << (FAST - length)
                for i in range(first, first + (1 << (FAST - length))):
                    table[i] = entry
            code += 1
            place += 1
        table[LIMITS + length] = code << (16 - length)
        code <<= 1
    for i in range(16 + place):
        key[i] = load_u8(address + i)
    return OK


@subkernel(types.int64(types.int64, Frame, HUFFMAN_TABLES))
def make_tables(address: int, frame: Any, tables: Any) -> int:
    """Make the tables that the image at `address` has, by its frame; OK or DAMAGED."""
    for number in range(8):
        offset = frame.huffman[number]
        table = tables.entries[number * SIZE : (number + 1) * SIZE]
        key = tables.keys[number]
        if offset != 0 and make_table(address + offset, number >= 4, table, key) != OK:
            return DAMAGED
    return OK


@subkernel("int64(int64, uint64)")
def look_up_long_code(table: int, bits: Any) -> int:
    """Return the entry of a code of more than FAST bits, in the table at this address."""
    code: Any = np.int64(bits >> np.uint64(48))
    for length in range(FAST + 1, 17):
        if code < load_u16(table + 2 * (LIMITS + length)):
            place = (code >> (16 - length)) + load_u16(table + 2 * (PLACES + length))
            return load_u16(table + 2 * (ENTRIES + (place & 255)))
    return INVALID


@inlined
def look_up_short_code(table: int, bits: Any) -> Any:
    """Return the entry for the next bits in the table at this address, or LONG.

    By address, because numba counts references to the arrays that a part of a kernel uses.
    """
    index: Any = np.int64(bits >> np.uint64(64 - FAST))
    return load_u16(table + 2 * index)
