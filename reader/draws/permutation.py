"""A shuffle that is computed, not stored: the row at any position, in constant time.

The numbers 0..total-1 are laid out in a rectangle of `height` by `width` and mixed by a Feistel
network: each round shifts one coordinate by a keyed hash of the other, which is a bijection
whatever the hash. What lands outside 0..total-1 goes through again until it is inside ("cycle
walking"); as the rectangle is hardly larger than needed, that is rare. Construction: J. Black and
P. Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002, section 5 (generalised Feistel).
The hash is the finaliser of SplitMix64: G. Steele, D. Lea and C. Flood, "Fast Splittable
Pseudorandom Number Generators", OOPSLA 2014. Keys come from BLAKE2b (RFC 7693).

What these functions return is frozen: runs resume by it. The tests hold golden values.
"""

from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np

from fieldslab.schemas.jit import inlined, kernel

ROUNDS = 6
"""One key each."""
SMALLEST = 256
"""No rectangle has less room: with a handful of rows, some permutations would come more often."""
_SIDE_BY_SIDE = 64
"""Numbers that take each round together: none waits for another one's, 2.5 times as fast."""

_Array = np.ndarray
_U64 = Any


def make_keys(purpose: str, *numbers: int) -> np.ndarray:
    """Make the keys for a purpose and some integers of any size: uint64[ROUNDS]."""
    text = ":".join([purpose, *map(str, numbers)])
    digest = blake2b(text.encode(), digest_size=8 * ROUNDS).digest()
    return np.frombuffer(digest, "<u8").astype(np.uint64)


def permute_positions(positions: np.ndarray, total: int, key: np.ndarray) -> np.ndarray:
    """Return the numbers at these positions of the shuffle of 0..total-1 under `key`: int64[n].

    `positions` are int64[n], each in 0..total-1; `total` may be up to 2**62.
    """
    numbers = positions.astype(np.uint64)
    height, width = compute_rectangle(total)
    _permute_in_place(numbers, np.uint64(total), np.uint64(height), np.uint64(width), key)
    return numbers.astype(np.int64)


def permute_each_position(
    positions: np.ndarray, sides: np.ndarray, streams: np.ndarray, key: np.ndarray
) -> np.ndarray:
    """As `permute_positions`, with a total and a shuffle of its own for each position: int64[n].

    `positions` and `streams` are int64[n]; a stream names a shuffle under `key`. `sides` come from
    `compute_sides` for the total of each position.
    """
    numbers = positions.astype(np.uint64)
    _permute_each_in_place(numbers, streams.astype(np.uint64), sides, key)
    return numbers.astype(np.int64)


def compute_sides(totals: np.ndarray) -> np.ndarray:
    """Compute total, height and width of each rectangle: uint64[n, 3] for totals int64[n]."""
    unique_totals, places = np.unique(totals, return_inverse=True)
    rectangles = [(total, *compute_rectangle(total)) for total in unique_totals.tolist()]
    return np.array(rectangles, np.uint64).reshape(-1, 3)[places]


def draw_uniform(positions: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Draw from [0, 1) independently for each position: float64[n], multiples of 2**-53."""
    return (hash_numbers(positions, key) >> np.uint64(11)) * 2.0**-53


def hash_numbers(numbers: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Hash each number (int64[n] or uint64[n]) under `key`: uint64[n]."""
    result = numbers.astype(np.uint64)
    _hash_in_place(result, key)
    return result


@lru_cache(4096)
def compute_rectangle(total: int) -> tuple[int, int]:
    """Compute the sides, each below 2**32, of a rectangle with room for 0..total-1.

    The height is even, so that rounds can be odd permutations as well as even ones.
    """
    total = max(total, SMALLEST)
    height = 2
    while height * height < total:  # a power of two first, then down to about the square root
        height *= 2
    low, high = height // 2, height
    while low < high:
        middle = (low + high) // 2
        if middle * middle < total:
            low = middle + 1
        else:
            high = middle
    height = low + low % 2
    return height, -(-total // height)


@inlined
def mix_bits(number: _U64) -> _U64:
    """Mix bits with the finaliser of SplitMix64: uint64 -> uint64, a bijection."""
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))


@inlined
def _shift_coordinate(number: _U64, other: _U64, key: _U64, side: _U64) -> _U64:
    """Shift a coordinate in 0..side-1 by a hash of the other one."""
    number += ((mix_bits(other + key) >> np.uint64(32)) * side) >> np.uint64(32)
    return number - side if number >= side else number


@inlined
def _permute_number(number: _U64, height: _U64, width: _U64, key: _Array) -> _U64:
    """Return the new place of a number in the rectangle."""
    row = number // width
    column = number - row * width
    for turn in range(0, len(key), 2):
        row = _shift_coordinate(row, column, key[turn], height)
        column = _shift_coordinate(column, row, key[turn + 1], width)
    return row * width + column


@kernel("void(uint64[::1], uint64, uint64, uint64, uint64[::1])")
def _permute_in_place(numbers: _Array, total: _U64, height: _U64, width: _U64, key: _Array) -> None:
    """Put in place of each position the number that stands there."""
    rows = np.empty(_SIDE_BY_SIDE, np.uint64)
    columns = np.empty(_SIDE_BY_SIDE, np.uint64)
    for start in range(0, len(numbers), _SIDE_BY_SIDE):
        count = min(_SIDE_BY_SIDE, len(numbers) - start)
        for i in range(count):
            rows[i] = numbers[start + i] // width
            columns[i] = numbers[start + i] - rows[i] * width
        for turn in range(0, len(key), 2):
            for i in range(count):
                rows[i] = _shift_coordinate(rows[i], columns[i], key[turn], height)
            for i in range(count):
                columns[i] = _shift_coordinate(columns[i], rows[i], key[turn + 1], width)
        for i in range(count):
            number = rows[i] * width + columns[i]
            while number >= total:
                number = _permute_number(number, height, width, key)
            numbers[start + i] = number


@kernel("void(uint64[::1], uint64[::1], uint64[:, ::1], uint64[::1])")
def _permute_each_in_place(numbers: _Array, streams: _Array, sides: _Array, key: _Array) -> None:
    """As `_permute_in_place`, under keys that belong to the stream of each number.

    `sides` are those of `compute_sides` for each number.
    """
    own = np.empty(len(key), np.uint64)
    for i in range(len(numbers)):
        total, height, width = sides[i, 0], sides[i, 1], sides[i, 2]
        if total == 1:  # else it would walk through most of the rectangle
            continue
        for turn in range(len(key)):
            own[turn] = mix_bits(streams[i] + key[turn])
        number = _permute_number(numbers[i], height, width, own)
        while number >= total:
            number = _permute_number(number, height, width, own)
        numbers[i] = number


@kernel("void(uint64[::1], uint64[::1])")
def _hash_in_place(numbers: _Array, key: _Array) -> None:
    """Put in place of each number a hash of it."""
    for i in range(len(numbers)):
        numbers[i] = mix_bits(mix_bits(numbers[i] + key[0]) + key[1])
