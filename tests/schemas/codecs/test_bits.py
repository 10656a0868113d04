"""Bit streams: every bit in order, no stuffed byte, no byte behind a marker or the end."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.guarded import Guarded
from tests.naming import case

from fieldslab.schemas.codecs import bits
from fieldslab.schemas.jit import kernel

PLAIN = bytes(range(1, 60))
MEMORY = Guarded(1000)
STUFFED = bytes([1, 0xFF, 0, 2, 3, 0xFF, 0, 0xFF, 0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0xFF, 0])


@kernel("int64(int64, int64, int64, int64, int64[::1], int64[::1])")
def _read(address: int, length: int, bit: int, step: int, values: Any, places: Any) -> int:
    """Take `step` bits at a time; returns how many times there were enough."""
    end = address + length
    stream = bits.start_stream(address, end, bit)
    for i in range(len(values)):
        if stream.count < 32:
            stream = bits.refill(stream, end)
        places[i] = bits.compute_position(stream) - 8 * address
        values[i] = np.int64(stream.bits >> np.uint64(64 - step))
        stream = bits.skip_bits(stream, step)
        if bits.is_overrun(stream):
            return i
    return len(values)


def read(data: bytes, bit: int, step: int) -> tuple[list[int], list[int]]:
    """Values of `step` bits, and where each begins."""
    values, places = np.zeros(2000, np.int64), np.zeros(2000, np.int64)
    enough = _read(MEMORY.put(data, True), len(data), bit, step, values, places)
    return values[:enough].tolist(), places[:enough].tolist()


@pytest.mark.parametrize("data", [PLAIN, STUFFED], ids=["plain", "stuffed"])
def test_bits_come_in_order_and_tell_their_places(data: bytes) -> None:
    """Stuffed bytes are left out, but count in the places."""
    kept = [i for i, byte in enumerate(data) if byte or data[i - 1] != 0xFF]
    text = "".join(f"{data[i]:08b}" for i in kept)
    for step, bit in product([1, 3, 8, 13, 31], [0, 5]):
        starts = range(bit, len(text) - step + 1, step)
        values, places = read(data, bit, step)
        with case(step, bit):
            assert values == [int(text[index : index + step], 2) for index in starts]
            assert places == [8 * kept[index // 8] + index % 8 for index in starts]


@pytest.mark.parametrize("behind", [b"\xff\xd0", b"\xff\xd9" + PLAIN, b"\xff", b"\xff\xff\0"])
def test_nothing_is_taken_from_behind_a_marker(behind: bytes) -> None:
    """The stream ends there, as it does at the end of the image."""
    assert read(STUFFED + behind, 0, 7) == read(STUFFED, 0, 7)


def test_a_marker_is_found_behind_the_padding_only() -> None:
    """Fill bytes may stand in front of it; nothing else may."""
    for data, expected in {
        b"\xff\xd3": 1,
        b"\xff\xff\xff\xd3": 3,
        b"\xff\0": 0,
        b"\xff": 0,
        b"\xff\xff": 0,
        b"\1\xff\xd3": 0,
        b"": 0,
    }.items():
        address = MEMORY.put(data, True)
        end = address + len(data)
        for count, actual in ((7, address + expected if expected else 0), (8, 0), (-1, 0)):
            stream = bits.Stream(address, np.uint64(0), bits.ENDED + count)
            assert bits.find_marker(stream, end) == actual
