"""Tables that tell how much data the next codes of a block take, several codes at a time.

Index points need no coefficients, only where codes end. A table has an entry for every value of
the next WINDOW bits of AC data: all codes that are whole in them, together with their values, of
which the last may end behind them.

    coefficients << SHIFT | bits in all

ENDING is added to the coefficients if the last code ends the block. STUCK says that the first code
is longer than WINDOW, or none. A table also has entries for windows of 1, 2, ... bits, from which
those of longer ones are made: entry i of a window of n bits is item 2**n + i.
"""

from typing import Any

import numpy as np

from fieldslab.schemas.codecs.huffman import ENTRIES, SKIP, VALUE
from fieldslab.schemas.jit import inlined, load_u16, store_u16, subkernel

WINDOW = 11
BITS = 31
"""Mask of the bits of an entry."""
SHIFT = 5
ENDING = 1024
"""Added to the coefficients of an entry that ends the block. They are at most 16 for each bit."""
STUCK = 512 << SHIFT
SKIP_SIZE = 2 << WINDOW
"""Items of a table."""


@inlined
def _fill_entries(item: int, count: int, entry: int) -> None:
    """Write an entry to some items one behind the other."""
    for i in range(count):
        store_u16(item + 2 * i, entry)


@subkernel("void(uint16[::1], uint8[::1], uint16[::1])")
def make_skip_table(codes: Any, key: Any, table: Any) -> None:
    """Fill `table` from one of `HuffmanTables`; `key` begins with the codes of each length."""
    count = 0
    for i in range(16):
        count += key[i]
    table[:] = 0
    first_item: Any = np.int64(table.ctypes.data)
    first_code: Any = np.int64(codes.ctypes.data) + 2 * ENTRIES
    for window in range(1, WINDOW + 1):
        code, code_bits = 0, 1
        for place in range(count):
            entry: Any = load_u16(first_code + 2 * place)
            value_bits, bits = entry >> 12, entry & 63
            code <<= bits - value_bits - code_bits
            code_bits = bits - value_bits
            if code_bits > window:
                break
            free = 1 << (window - code_bits)
            item = first_item + 2 * ((1 << window) + code * free)
            code += 1
            if entry < SKIP:
                _fill_entries(item, free, (ENDING << SHIFT) | bits)
                continue
            coefficients = 16 if entry < VALUE else ((entry >> 6) & 63) + 1
            own: Any = (coefficients << SHIFT) | bits
            if bits >= window:
                _fill_entries(item, free, own)
                continue
            rest = 1 << (window - bits)
            for i in range(free):
                later = load_u16(first_item + 2 * (rest + (i & (rest - 1))))
                store_u16(item + 2 * i, own + later)
    for i in range(1 << WINDOW, SKIP_SIZE):
        if table[i] == 0:
            table[i] = STUCK


@inlined
def look_up_skip(table: int, bits: Any) -> Any:
    """Return the entry for the next bits in the table at this address."""
    item: Any = np.int64(bits >> np.uint64(64 - WINDOW))
    return load_u16(table + (2 << WINDOW) + 2 * item)
