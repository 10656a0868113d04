"""Reading entropy-coded data bit by bit, without the stuffed bytes and never past the end.

A stream is three numbers that kernels carry along:

    at      address of the next byte to be taken
    bits    uint64: what was taken and not yet used, the next bit highest
    count   how many of them are valid; those below are the bits that come next, or 0

At a marker, and at the end of the image, a stream goes on with zeros and `count` grows by ENDED, so
that nothing more is read before `overrun` tells, after each MCU, that more was used than there is.
"""

from typing import Any

import numpy as np

from fieldslab.schemas.jit import inlined, kernel, load_big_u64, load_u8

ENDED = 1 << 20
"""More than the bits of an MCU: at most ten blocks of 64 codes and values, 31 bits each."""

_ONES = np.uint64(0x0101010101010101)
_HIGHS = np.uint64(0x8080808080808080)


@kernel("Tuple((int64, uint64, int64))(int64, int64, uint64, int64)")
def _refill_by_bytes(at: int, end: int, bits: Any, count: int) -> tuple[int, Any, int]:
    """Refill where a stuffed byte, a marker or the end is near."""
    while count <= 56:
        if at >= end:
            return at, bits, count + ENDED
        byte = load_u8(at)
        step = 1
        if byte == 0xFF:
            if at + 1 >= end or load_u8(at + 1) != 0:
                return at, bits, count + ENDED
            step = 2
        bits |= np.uint64(byte) << np.uint64(56 - count)
        at += step
        count += 8
    return at, bits, count


@inlined
def refill(at: int, end: int, bits: Any, count: int) -> tuple[int, Any, int]:
    """Take bytes until at least 56 bits are valid; `count` is less than 56 before."""
    if at + 8 <= end:
        word = load_big_u64(at)
        if (~word - _ONES) & word & _HIGHS == np.uint64(0):  # no byte is 0xFF
            taken = (63 - count) >> 3
            return at + taken, bits | (word >> np.uint64(count)), count + 8 * taken
    return _refill_by_bytes(at, end, bits, count)


@inlined
def start(at: int, end: int, bit: int) -> tuple[int, Any, int]:
    """A stream from bit 0..7 of the byte at `at` on."""
    nothing: Any = np.int64(0)
    at, bits, count = refill(at, end, np.uint64(0), nothing)
    return at, bits << np.uint64(bit), count - bit


@inlined
def unused(count: int) -> int:
    """How many bits of data were taken and not used; less than 0 after an overrun."""
    return count - ENDED if count > 64 else count


@inlined
def overrun(count: int) -> bool:
    """Whether more bits were used than there were in front of a marker or the end."""
    return count > 64 and count < ENDED


@kernel("int64(int64, int64)")
def position(at: int, count: int) -> int:
    """Where the next bit is: 8 * address + bit, counting stuffed bytes."""
    left = unused(count)
    for _ in range((left + 7) >> 3):
        at -= 1
        if load_u8(at) == 0 and load_u8(at - 1) == 0xFF:
            at -= 1
    return 8 * at + (-left & 7)


@kernel("int64(int64, int64, int64)")
def find_marker(at: int, end: int, count: int) -> int:
    """Address of the code of the marker that comes next, behind the padding of the last byte.

    0 if something else comes, or the end.
    """
    left = unused(count)
    if left < 0 or left > 7 or at + 1 >= end or load_u8(at) != 0xFF:
        return 0
    while at + 1 < end and load_u8(at) == 0xFF:
        at += 1
    if load_u8(at) == 0xFF or load_u8(at) == 0:
        return 0
    return at
