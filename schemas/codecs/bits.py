"""Reading entropy-coded data bit by bit, without the stuffed bytes and never past the end.

At a marker, and at the end of the image, a stream goes on with zeros and its count grows by ENDED,
so that nothing more is read before `is_overrun` tells, after each MCU, that more was used than
there is.
"""

from typing import Any, NamedTuple

import numpy as np

from fieldslab.schemas.jit import inlined, load_big_u64, load_u8, make_tuple_type, subkernel, types

ENDED = 1 << 20
"""More than the bits of an MCU: at most ten blocks of 64 codes and values, 31 bits each."""

_ONES = np.uint64(0x0101010101010101)
_HIGHS = np.uint64(0x8080808080808080)


class Stream(NamedTuple):
    """A position in the bits of a JPEG's data, with the bits read ahead.

    Attributes
    ----------
    address
        Of the next byte to take.
    bits
        uint64: what was taken and not yet used, the next bit highest.
    count
        How many of them are valid; those below are the bits that come next, or 0.
    """

    address: Any
    bits: Any
    count: Any


STREAM = make_tuple_type(Stream, types.int64, types.uint64, types.int64)


@subkernel(STREAM(STREAM, types.int64))
def _refill_by_bytes(stream: Any, end: int) -> Stream:
    """Refill byte by byte, where a stuffed byte, a marker or the end is near."""
    address, bits, count = stream
    while count <= 56:
        if address >= end:
            return Stream(address, bits, count + ENDED)
        byte = load_u8(address)
        step = 1
        if byte == 0xFF:
            if address + 1 >= end or load_u8(address + 1) != 0:
                return Stream(address, bits, count + ENDED)
            step = 2
        bits |= np.uint64(byte) << np.uint64(56 - count)
        address += step
        count += 8
    return Stream(address, bits, count)


@inlined
def refill(stream: Any, end: int) -> Any:
    """Take bytes until at least 56 bits are valid; there are less than 56 before."""
    address, bits, count = stream
    if address + 8 <= end:
        word = load_big_u64(address)
        if (~word - _ONES) & word & _HIGHS == np.uint64(0):  # no byte is 0xFF
            taken = (63 - count) >> 3
            return Stream(address + taken, bits | (word >> np.uint64(count)), count + 8 * taken)
    return _refill_by_bytes(stream, end)


@inlined
def skip_bits(stream: Any, bits: int) -> Any:
    """Return the stream after the next `bits` bits."""
    return Stream(stream.address, stream.bits << np.uint64(bits), stream.count - bits)


@inlined
def start_stream(address: int, end: int, bit: int) -> Any:
    """Start a stream at bit 0..7 of the byte at `address`."""
    nothing: Any = np.int64(0)
    return skip_bits(refill(Stream(address, np.uint64(0), nothing), end), bit)


@inlined
def count_unused_bits(count: int) -> int:
    """Count the data bits that were read ahead and not used; negative after an overrun."""
    return count - ENDED if count > 64 else count


@inlined
def is_overrun(stream: Any) -> bool:
    """Return True if more bits were used than lie before a marker or the end."""
    return stream.count > 64 and stream.count < ENDED


@subkernel(types.int64(STREAM))
def compute_position(stream: Any) -> int:
    """Compute where the next bit is: 8 * address + bit, counting stuffed bytes."""
    left = count_unused_bits(stream.count)
    address = stream.address
    for _ in range((left + 7) >> 3):
        address -= 1
        if load_u8(address) == 0 and load_u8(address - 1) == 0xFF:
            address -= 1
    return 8 * address + (-left & 7)


@subkernel(types.int64(STREAM, types.int64))
def find_marker(stream: Any, end: int) -> int:
    """Find the address of the next marker's code, after the padding of the last byte.

    0 if something else comes, or the end.
    """
    left = count_unused_bits(stream.count)
    address = stream.address
    if left < 0 or left > 7 or address + 1 >= end or load_u8(address) != 0xFF:
        return 0
    while address + 1 < end and load_u8(address) == 0xFF:
        address += 1
    if load_u8(address) == 0xFF or load_u8(address) == 0:
        return 0
    return address
