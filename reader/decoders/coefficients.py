"""Entropy decoding of blocks into coefficients, two streams in turns.

A processor waits for each code's table entry before it knows where the next code begins. Two
streams, of two rows of MCUs, wait at the same time: `a` and `b`.
"""

from typing import Any, NamedTuple

import numpy as np

from fieldslab.reader.decoders.idct import LANES, ZIGZAG
from fieldslab.schemas.codecs.bits import Stream, refill, skip_bits
from fieldslab.schemas.codecs.huffman import (
    INVALID,
    LONG,
    SKIP,
    VALUE,
    look_up_long_code,
    look_up_short_code,
)
from fieldslab.schemas.jit import inlined, store_u16

DONE = 64
"""What `k`, the place of the next coefficient, has reached when a block is whole."""
_DAMAGED = 127
PLACES = 128
_OFFSETS = np.full(4 * PLACES, 2 * LANES * 63, np.int64)
for _shrink in range(4):
    for _k, _natural in enumerate(ZIGZAG.tolist()):
        if max(_natural // 8, _natural % 8) < 8 >> _shrink:
            _OFFSETS[_shrink * PLACES + _k] = 2 * LANES * _natural
"""By `shrink`: where in a tile a coefficient goes, in bytes. Those that are not needed, and those
behind the block's last, which are damage, are written to the place of the last."""


class BlockTables(NamedTuple):
    """Addresses of the Huffman tables of a block, and PLACES times its `shrink`."""

    dc: Any
    ac: Any
    places: Any


@inlined
def _extend_value(bits: Any, entry: Any) -> Any:
    """Return the value that follows a code (T.81, figure F.12)."""
    ones = (1 << (entry >> 12)) - 1
    value: Any = np.int64(bits >> np.uint64(64 - (entry & 63))) & ones
    return value if value > ones >> 1 else value - ones


@inlined
def _decode_dc_coefficient(stream: Any, end: int, table: int, predictor: int) -> Any:
    """Decode a DC coefficient; returns the stream, the coefficient and the next `k`."""
    if stream.count < 32:
        stream = refill(stream, end)
    entry: Any = look_up_short_code(table, stream.bits)
    k = 1
    if entry == LONG:
        entry = look_up_long_code(table, stream.bits)
        if entry == INVALID:
            k = _DAMAGED
    return skip_bits(stream, entry & 63), predictor + _extend_value(stream.bits, entry), k


@inlined
def _decode_ac_coefficient(stream: Any, end: int, tables: BlockTables, k: Any, block: int) -> Any:
    """Decode a code and its coefficient; returns the stream and the next `k`."""
    if stream.count < 32:
        stream = refill(stream, end)
    entry: Any = look_up_short_code(tables.ac, stream.bits)
    if entry < VALUE:
        if entry == LONG:
            entry = look_up_long_code(tables.ac, stream.bits)
        if entry < VALUE:
            return skip_bits(stream, entry & 63), k + 16 if entry >= SKIP else DONE
    k += (entry >> 6) & 63
    store_u16(block + _OFFSETS[np.uint64(tables.places + k)], _extend_value(stream.bits, entry))
    return skip_bits(stream, entry & 63), k + 1


@inlined
def decode_blocks(
    a: Stream,
    b: Stream,
    both: bool,
    end: int,
    tables: BlockTables,
    predictors: tuple[int, int],
    blocks: tuple[int, int],
) -> Any:
    """Decode a block of each stream, or of the first alone.

    `predictors` are the last DC coefficients of the component, and `blocks` the addresses in tiles
    of the first coefficients, of either stream.

    Returns both streams, their DC coefficients, and whether the codes were no codes or went past
    the end of a block.
    """
    dc_b: Any
    k_a: Any
    k_b: Any
    a, dc_a, k_a = _decode_dc_coefficient(a, end, tables.dc, predictors[0])
    store_u16(blocks[0], dc_a)
    dc_b, k_b = predictors[1], DONE
    if both:
        b, dc_b, k_b = _decode_dc_coefficient(b, end, tables.dc, predictors[1])
        store_u16(blocks[1], dc_b)
    while k_a < DONE and k_b < DONE:
        a, k_a = _decode_ac_coefficient(a, end, tables, k_a, blocks[0])
        b, k_b = _decode_ac_coefficient(b, end, tables, k_b, blocks[1])
    while k_a < DONE:
        a, k_a = _decode_ac_coefficient(a, end, tables, k_a, blocks[0])
    while k_b < DONE:
        b, k_b = _decode_ac_coefficient(b, end, tables, k_b, blocks[1])
    return a, b, dc_a, dc_b, k_a > DONE or k_b > DONE
