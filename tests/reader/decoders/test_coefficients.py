"""Blocks of two streams in turns: each as if it were alone."""

from typing import Any

import numpy as np
import pytest

from fieldslab.reader.decoders.coefficients import BlockTables, decode_blocks
from fieldslab.reader.decoders.idct import LANES, TILE, ZIGZAG
from fieldslab.schemas.codecs.bits import start_stream
from fieldslab.schemas.codecs.huffman import SIZE, make_table
from fieldslab.schemas.jit import kernel

DC = {0: "00", 3: "01", 11: "100"}
AC = {0x00: "00", 0x01: "01", 0x32: "100", 0xF0: "101", 0x0A: "110000000000"}
"""Symbols and their codes; the longest takes another way through the table."""
PREDICTORS = 5, -7


def segment(codes: dict[int, str]) -> np.ndarray:
    """A DHT segment's counts and symbols."""
    lengths = [len(code) for code in codes.values()]
    counts = [lengths.count(length) for length in range(1, 17)]
    return np.array(counts + list(codes), np.uint8)


def tables() -> np.ndarray:
    """The two tables."""
    decoding_table = np.zeros(2 * SIZE, np.uint16)
    for number, codes in enumerate((DC, AC)):
        table, key = decoding_table[number * SIZE : (number + 1) * SIZE], np.zeros(272, np.uint8)
        assert make_table(segment(codes).ctypes.data, number == 1, table, key) == 0
    return decoding_table


TABLES = tables()


@kernel("boolean(int64, int64, int64, int64, boolean, int64, int16[::1])")
def _decode(a: int, b: int, size_a: int, size_b: int, both: bool, table: int, tiles: Any) -> bool:
    """Decode a block at `a` and one at `b` into lanes 0 and 1; whether something was wrong."""
    end = max(a + size_a, b + size_b)
    tile: Any = np.int64(tiles.ctypes.data)
    return decode_blocks(
        start_stream(a, end, 0),
        start_stream(b, end, 0),
        both,
        end,
        BlockTables(table, table + 2 * SIZE, 0),
        PREDICTORS,
        (tile, tile + 2),
    )[4]


def decode(first: str, second: str, both: bool = True) -> tuple[bool, np.ndarray]:
    """Whether something was wrong, and the coefficients of both blocks in the order of codes."""
    texts = [text.ljust(len(text) + 64, "1") for text in (first, second)]
    data = [int(text[: len(text) // 8 * 8], 2).to_bytes(len(text) // 8, "big") for text in texts]
    stuffed = [each.replace(b"\xff", b"\xff\0") for each in data]
    memory = np.frombuffer(b"".join(stuffed), np.uint8)
    tile = np.zeros(TILE, np.int16)
    address, sizes = memory.ctypes.data, [len(each) for each in stuffed]
    wrong = _decode(address, address + sizes[0], sizes[0], sizes[1], both, TABLES.ctypes.data, tile)
    lanes = tile.reshape(64, LANES)
    assert not lanes[:, 2:].any()
    return wrong, lanes[ZIGZAG, :2].T


def bits(value: int, size: int) -> str:
    """A value of so many bits (T.81, table F.1)."""
    return f"{value if value > 0 else value + 2**size - 1:0{size}b}" if size else ""


def block(random: np.random.Generator) -> tuple[str, np.ndarray]:
    """A block of random codes, and its 64 coefficients less the predictor."""
    expected = np.zeros(64, np.int64)
    size = int(random.choice(list(DC)))
    expected[0] = number(random, size)
    text, k = DC[size] + bits(int(expected[0]), size), 1
    while True:
        symbol = int(random.choice([*AC, 0x01, 0x01]))
        zeros, size = divmod(symbol, 16)
        if symbol == 0 or k + zeros > 63:
            return text + AC[0], expected
        k += zeros
        expected[k] = number(random, size)
        text += AC[symbol] + bits(int(expected[k]), size)
        k += 1
        if k > 63:
            return text, expected


def number(random: np.random.Generator, size: int) -> int:
    """A value that takes exactly so many bits."""
    most = 2**size
    return int(random.choice([-1, 1])) * int(random.integers(most // 2, most)) if size else 0


@pytest.mark.parametrize("both", [True, False])
def test_both_streams_have_their_coefficients(both: bool) -> None:
    """Short blocks beside long ones; without the second stream, its lane stays empty."""
    random = np.random.default_rng(both)
    for _ in range(300):
        (first, expected_first), (second, other) = block(random), block(random)
        wrong, actual = decode(first, second, both)
        expected_first[0] += PREDICTORS[0]
        other[0] += PREDICTORS[1]
        assert not wrong
        assert actual[0].tolist() == expected_first.tolist()
        assert actual[1].tolist() == (other if both else np.zeros(64)).tolist()


FULL = DC[0] + 63 * (AC[1] + "1")
WRONG = {
    "more than 64 coefficients": DC[0] + 3 * AC[0xF0] + 12 * (AC[1] + "1") + AC[0x32] + "11",
    "zeros behind the end": DC[0] + 4 * AC[0xF0],
    "no code for DC": "1111",
    "no code for AC": DC[0] + "111",
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_no_block_is_told(kind: str) -> None:
    """In either stream, and nothing is written outside of the lane."""
    assert decode(WRONG[kind], FULL)[0]
    assert decode(FULL, WRONG[kind])[0]
    assert not decode(FULL, WRONG[kind], both=False)[0]


def test_a_full_block_needs_no_end() -> None:
    """64 coefficients are a block."""
    wrong, actual = decode(FULL, DC[0] + AC[0])
    assert not wrong
    assert (actual[0, 1:] == 1).all()
    assert not actual[1, 1:].any()
