"""Huffman tables: every code of every length, and a word for what is no code."""

import numpy as np
import pytest

from fieldslab.schemas.codecs import huffman
from fieldslab.schemas.codecs.jpeg import DAMAGED, OK

LENGTHS = [0, 1, 2, 1, 2, 1, 2, 1, 0, 2, 1, 3, 1, 2, 1, 4]
"""Codes of nearly every length."""
SYMBOLS = [16 * (i % 16) + 1 + i % 15 for i in range(sum(LENGTHS))]


def make(counts: list[int], symbols: list[int], is_ac: bool = True) -> tuple[int, np.ndarray]:
    """Status and table of some counts and symbols."""
    table, key = np.zeros(huffman.SIZE, np.uint16), np.zeros(huffman.KEY, np.uint8)
    segment = np.array(counts + symbols, np.uint8)
    return huffman.make_table(segment.ctypes.data, is_ac, table, key), table


def entry(table: np.ndarray, code: str) -> int:
    """What a kernel finds when this code comes next, with ones behind it."""
    bits = int(code.ljust(64, "1"), 2)
    actual = int(table[bits >> (64 - huffman.FAST)])
    return actual or huffman.look_up_long_code(table.ctypes.data, np.uint64(bits))


def codes(counts: list[int]) -> list[str]:
    """The codes, by the letter of annex C."""
    codes, code = [], 0
    for length, count in enumerate(counts, 1):
        codes += [f"{code + i:0{length}b}" for i in range(count)]
        code = 2 * (code + count)
    return codes


def test_every_code_finds_its_entry() -> None:
    """Bits in all, zeros before the value and bits of the value, for short codes and long."""
    status, table = make(LENGTHS, SYMBOLS)
    assert status == OK
    for code, symbol in zip(codes(LENGTHS), SYMBOLS, strict=True):
        zeros, size = divmod(symbol, 16)
        assert entry(table, code) == (size << 12) | (zeros << 6) | (len(code) + size)


def test_symbols_without_a_value_end_the_block_or_skip() -> None:
    """0xF0 skips 16 zeros; what else has no value ends the block."""
    status, table = make([0, 1, 1, 1] + [0] * 12, [0x00, 0xF0, 0x30])
    assert status == OK
    assert [entry(table, code) for code in ("00", "010", "0110")] == [2, huffman.SKIP | 3, 4]


def test_what_is_no_code_runs_past_the_block() -> None:
    """Whether it is found by the fast table or by length."""
    _, table = make(LENGTHS, SYMBOLS)
    assert entry(table, "1" * 16) == huffman.INVALID
    assert entry(np.zeros(huffman.SIZE, np.uint16), "0") == huffman.INVALID


@pytest.mark.parametrize(
    ("counts", "symbols", "is_ac"),
    [
        ([2] + [0] * 15, [1, 2], True),  # a code of ones alone
        ([1, 3] + [0] * 14, [1, 2, 3, 4], True),
        ([3] + [0] * 15, [1, 2, 3], True),
        ([0] * 8 + [200, 100] + [0] * 6, [1] * 300, True),  # more than there are bytes
        ([1] + [0] * 15, [16], False),  # a DC value of 16 bits
    ],
)
def test_tables_that_are_no_code_are_damage(
    counts: list[int], symbols: list[int], is_ac: bool
) -> None:
    """And nothing can be decoded with them."""
    status, table = make(counts, symbols, is_ac)
    assert status == DAMAGED
    assert not table.any()


def test_a_table_is_made_anew_only_from_other_bytes() -> None:
    """The key tells what a table was made from."""
    table, key = np.zeros(huffman.SIZE, np.uint16), np.zeros(huffman.KEY, np.uint8)
    first = np.array(LENGTHS + SYMBOLS, np.uint8)
    other = np.array([*LENGTHS, *SYMBOLS[:-1], 1], np.uint8)
    assert huffman.make_table(first.ctypes.data, True, table, key) == OK
    changed = table.copy()
    table[0] = 0x1234
    assert huffman.make_table(first.ctypes.data, True, table, key) == OK
    assert table[0] == 0x1234
    assert huffman.make_table(other.ctypes.data, True, table, key) == OK
    assert (table != changed).sum() == 1
