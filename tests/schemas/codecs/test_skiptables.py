"""Tables of several codes say what reading the codes one by one says."""

import random

import numpy as np
from tests.jpegs import encode, photograph

from fieldslab.schemas.codecs import skiptables
from fieldslab.schemas.codecs.baseline import read_header
from fieldslab.schemas.codecs.huffman import (
    FAST,
    INVALID,
    SIZE,
    SKIP,
    look_up_long_code,
    make_empty_tables,
    make_tables,
)
from fieldslab.schemas.codecs.jpeg import FRAME, OK
from fieldslab.schemas.jit import make_zero_record


def test_entries_are_the_sums_of_their_codes() -> None:
    """An entry counts the bits and coefficients of all codes that are whole in its window."""
    pixels = photograph(64, 96)
    for image in (encode(pixels), encode(pixels, optimize=True, quality=97)):
        data, frame, tables = (
            np.frombuffer(image, np.uint8),
            make_zero_record(FRAME),
            make_empty_tables(),
        )
        assert read_header(data.ctypes.data, len(data), frame) == OK
        assert make_tables(data.ctypes.data, frame, tables) == OK
        for number in (4, 5):
            codes = tables.entries[number * SIZE : (number + 1) * SIZE]
            table = np.empty(skiptables.SKIP_SIZE, np.uint16)
            skiptables.make_skip_table(codes, tables.keys[number], table)
            for window in random.Random(number).sample(range(1 << skiptables.WINDOW), 500):
                entry = int(table[(1 << skiptables.WINDOW) + window])
                assert entry == _add_up(codes, window)


def _add_up(codes: np.ndarray, window: int) -> int:
    taken = coefficients = 0
    while taken < skiptables.WINDOW:
        bits = np.uint64((window << 64 - skiptables.WINDOW + taken) & (2**64 - 1))
        entry = int(codes[int(bits) >> 64 - FAST]) or look_up_long_code(codes.ctypes.data, bits)
        if entry == INVALID or (entry & 63) - (entry >> 12) > skiptables.WINDOW - taken:
            break
        taken += entry & 63
        if entry < SKIP:
            coefficients += skiptables.ENDING
            break
        coefficients += ((entry >> 6) & 63) + 1
    return coefficients << skiptables.SHIFT | taken if taken else skiptables.STUCK
