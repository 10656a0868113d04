"""Entropy decoding of blocks into coefficients, two streams in turns.

A processor waits for each code's table entry before it knows where the next code begins. Two
streams, of two rows of MCUs, wait at the same time. A stream is `at`, `bits` and `count`, as
`schemas.codecs.bits` has it; names of the first stream end in `a`, those of the second in `b`.
"""

from typing import Any

import numpy as np

from fieldslab.reader.decoders.idct import LANES, ZIGZAG
from fieldslab.schemas.codecs.bits import refill
from fieldslab.schemas.codecs.huffman import INVALID, LONG, SKIP, VALUE, fast_entry, long_code
from fieldslab.schemas.jit import inlined, store_u16

DONE = 64
"""What `k`, the place of the next coefficient, has reached when a block is whole."""
_DAMAGED = 127
_PLACES = np.full(_DAMAGED, 2 * LANES * 63, np.int64)
_PLACES[:64] = 2 * LANES * ZIGZAG
"""Where in a tile a coefficient goes, in bytes; those behind the block's last are damage, but are
written to a place that is there."""


@inlined
def _value(bits: Any, entry: Any) -> Any:
    """The value behind a code (T.81, figure F.12)."""
    ones = (1 << (entry >> 12)) - 1
    value: Any = np.int64(bits >> np.uint64(64 - (entry & 63))) & ones
    return value if value > ones >> 1 else value - ones


@inlined
def _dc(at: int, end: int, bits: Any, count: int, dc: int, predictor: int) -> Any:
    """Decode a DC coefficient; returns the stream, the coefficient and the next `k`."""
    if count < 32:
        at, bits, count = refill(at, end, bits, count)
    entry: Any = fast_entry(dc, bits)
    k = 1
    if entry == LONG:
        entry = long_code(dc, bits)
        if entry == INVALID:
            k = _DAMAGED
    predictor += _value(bits, entry)
    taken = entry & 63
    return at, bits << np.uint64(taken), count - taken, predictor, k


@inlined
def _ac(at: int, end: int, bits: Any, count: int, k: Any, ac: int, place: int) -> Any:
    """Decode a code and its coefficient; returns the stream and the next `k`."""
    if count < 32:
        at, bits, count = refill(at, end, bits, count)
    entry: Any = fast_entry(ac, bits)
    if entry < VALUE:
        if entry == LONG:
            entry = long_code(ac, bits)
        if entry < VALUE:
            taken = entry & 63
            k = k + 16 if entry >= SKIP else DONE
            return at, bits << np.uint64(taken), count - taken, k
    k += (entry >> 6) & 63
    store_u16(place + _PLACES[np.uint64(k)], _value(bits, entry))
    taken = entry & 63
    return at, bits << np.uint64(taken), count - taken, k + 1


@inlined
def decode_blocks(
    at_a: int,
    bits_a: Any,
    count_a: int,
    dc_a: int,
    place_a: int,
    at_b: int,
    bits_b: Any,
    count_b: int,
    dc_b: int,
    place_b: int,
    both: bool,
    end: int,
    dc: int,
    ac: int,
) -> Any:
    """Decode a block of each stream, or of the first alone.

    `dc_a` and `dc_b` are the predictors, `place_a` and `place_b` the addresses in tiles of the
    first coefficients, `dc` and `ac` those of the tables.

    Returns both streams with their DC coefficients, and whether the codes were no codes or went
    past the end of a block.
    """
    k_a: Any
    k_b: Any = DONE
    at_a, bits_a, count_a, dc_a, k_a = _dc(at_a, end, bits_a, count_a, dc, dc_a)
    store_u16(place_a, dc_a)
    if both:
        at_b, bits_b, count_b, dc_b, k_b = _dc(at_b, end, bits_b, count_b, dc, dc_b)
        store_u16(place_b, dc_b)
    while k_a < DONE and k_b < DONE:
        at_a, bits_a, count_a, k_a = _ac(at_a, end, bits_a, count_a, k_a, ac, place_a)
        at_b, bits_b, count_b, k_b = _ac(at_b, end, bits_b, count_b, k_b, ac, place_b)
    while k_a < DONE:
        at_a, bits_a, count_a, k_a = _ac(at_a, end, bits_a, count_a, k_a, ac, place_a)
    while k_b < DONE:
        at_b, bits_b, count_b, k_b = _ac(at_b, end, bits_b, count_b, k_b, ac, place_b)
    wrong = k_a > DONE or k_b > DONE
    return at_a, bits_a, count_a, dc_a, at_b, bits_b, count_b, dc_b, wrong
