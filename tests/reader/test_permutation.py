"""The computed shuffle: a bijection, frozen, and as random as a shuffle should be."""

import itertools
import math
from hashlib import blake2b

import numpy as np
import pytest
from tests.naming import case

from fieldslab.reader.draws.permutation import (
    compute_rectangle,
    draw_uniform,
    make_keys,
    permute_positions,
)

MASK = 2**64 - 1
MANY = [100, 101, 256, 257, 1000, 1024, 1021, 4096]
HUGE = [10**9, 2**40, 2**40 + 1, 2**61 - 1, 2**62]


def shuffle(total: int, seed: int) -> np.ndarray:
    """The whole permutation of 0..total-1 under a key."""
    return permute_positions(np.arange(total), total, make_keys("test", seed))


def mix(number: int) -> int:
    """The finaliser of SplitMix64, in Python's integers."""
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB & MASK
    return number ^ (number >> 31)


def by_the_book(position: int, total: int, text: str) -> int:
    """The network, written once more from its description and in Python's integers."""
    digest = blake2b(text.encode(), digest_size=48).digest()
    key = [int.from_bytes(digest[index : index + 8], "little") for index in range(0, 48, 8)]
    room = max(total, 256)
    height = math.isqrt(room - 1) + 1
    height += height % 2
    width = -(-room // height)
    number = position
    while True:
        row, column = divmod(number, width)
        for first, second in zip(key[::2], key[1::2], strict=True):
            row = (row + (mix(column + first & MASK) >> 32) * height // 2**32) % height
            column = (column + (mix(row + second & MASK) >> 32) * width // 2**32) % width
        number = row * width + column
        if number < total:
            return number


def deviation(counts: np.ndarray, expected: float) -> float:
    """Chi-square of equally likely cells, in standard deviations from what chance gives."""
    freedom = counts.size - 1
    chi = float(((counts - expected) ** 2 / expected).sum())
    return (chi - freedom) / math.sqrt(2 * freedom)


def test_each_number_comes_once() -> None:
    """A permutation of 0..total-1 holds each number exactly once."""
    for total, seed in itertools.product([*range(1, 70), *MANY, 65_537], range(3)):
        with case(total, seed):
            assert np.array_equal(np.sort(shuffle(total, seed)), np.arange(total))


def test_it_is_the_network_that_the_module_describes() -> None:
    """Kernel and description agree at every size, on the first, last and random positions."""
    for total in [1, 2, 7, 100, 1021, 65_536, *HUGE]:
        positions = np.unique(np.random.default_rng(0).integers(0, total, 50))
        positions[0], positions[-1] = 0, total - 1
        numbers = permute_positions(positions, total, make_keys("test", 3, -1)).tolist()
        described = [by_the_book(position, total, "test:3:-1") for position in positions.tolist()]
        assert numbers == described, total


def test_the_stream_is_frozen() -> None:
    """These very numbers came out of the first release; runs resume by them."""
    assert shuffle(10, 0).tolist() == [3, 9, 0, 8, 2, 5, 1, 7, 6, 4]
    actual = permute_positions(np.arange(5), 10**9, make_keys("shuffle", 7, 1)).tolist()
    assert actual == [437050326, 627258428, 925397335, 715963938, 979532559]
    draws = draw_uniform(np.arange(3), make_keys("test", 0)).tolist()
    assert draws == [0.6040548034099428, 0.04828974148464249, 0.13194856019863843]


def test_numbers_stay_inside_and_differ_at_any_size() -> None:
    """Up to 2**62, distinct positions give distinct numbers in 0..total-1."""
    for total in HUGE:
        positions = np.unique(np.random.default_rng(1).integers(0, total, 20_000))
        numbers = permute_positions(positions, total, make_keys("test", 0))
        assert numbers.min() >= 0, total
        assert numbers.max() < total, total
        assert len(np.unique(numbers)) == len(positions), total


def test_the_rectangle_is_hardly_larger_than_needed() -> None:
    """It has room for all, an even height, sides below 2**32, and little that is never used."""
    for total in [*range(1, 300), 10**6, 10**9, 2**40 + 1, 2**62]:
        height, width = compute_rectangle(total)
        least = max(total, 256)
        assert height % 2 == 0, total
        assert max(height, width) < 2**32, total
        assert least <= height * width <= least + 2 * max(height, width), total


@pytest.mark.parametrize("total", [2, 3, 4, 5, 6])
def test_every_permutation_is_equally_likely(total: int) -> None:
    """Of a few numbers, each of the total! permutations comes as often as any other."""
    place = {order: index for index, order in enumerate(itertools.permutations(range(total)))}
    draws = 30 * len(place) + 2000
    counts = np.zeros(len(place))
    for seed in range(draws):
        counts[place[tuple(shuffle(total, seed).tolist())]] += 1
    assert abs(deviation(counts, draws / len(place))) < 4


@pytest.mark.parametrize("total", [12, 31, 64, 101, 128])
def test_every_position_gets_every_number_equally_often(total: int) -> None:
    """Over many keys, position and number are independent."""
    draws = 4000
    counts = np.zeros((total, total))
    for seed in range(draws):
        counts[np.arange(total), shuffle(total, seed)] += 1
    # Rows and columns have fixed sums: the table varies less than free cells would.
    freedom = (total - 1) ** 2
    expected = draws / total
    chi = float(((counts - expected) ** 2 / expected).sum()) * (total - 1) / total
    assert abs(chi - freedom) / math.sqrt(2 * freedom) < 4


@pytest.mark.parametrize("total", [12, 31, 64])
def test_neighbours_are_independent(total: int) -> None:
    """Two neighbouring positions get each pair of numbers equally often."""
    draws = 20_000
    pairs = np.zeros((total, total))
    for seed in range(draws):
        first, second = permute_positions(np.array([4, 5]), total, make_keys("test", seed)).tolist()
        pairs[first, second] += 1
    off_diagonal = pairs[~np.eye(total, dtype=bool)]
    assert off_diagonal.sum() == draws
    assert abs(deviation(off_diagonal, draws / off_diagonal.size)) < 4


@pytest.mark.parametrize("total", MANY)
def test_fixed_points_and_neighbours_come_as_by_chance(total: int) -> None:
    """On average one number stays in its place, and one is followed by its successor."""
    draws = 1500
    fixed = successors = 0
    for seed in range(draws):
        numbers = shuffle(total, seed)
        fixed += int((numbers == np.arange(total)).sum())
        successors += int((np.diff(numbers) == 1).sum())
    # Both counts are Poisson with mean 1 a draw, but for 1 / total.
    assert abs(fixed - draws) < 4 * math.sqrt(draws)
    assert abs(successors - draws * (total - 1) / total) < 4 * math.sqrt(draws)


@pytest.mark.parametrize("total", [1021, 65_536, 10**9])
def test_a_long_run_of_positions_is_spread_evenly(total: int) -> None:
    """What stands at the first positions lies all over 0..total-1, and rises half of the time."""
    count = min(total // 2, 50_000)
    numbers = permute_positions(np.arange(count), total, make_keys("test", 5))
    counts = np.bincount(numbers * 64 // total, minlength=64)
    assert deviation(counts, count / 64) < 4
    rises = int((np.diff(numbers) > 0).sum())
    assert abs(rises - count / 2) < 4 * math.sqrt(count / 12)
    # Correlation of each number with the one before.
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 4 / math.sqrt(count)


def test_keys_that_differ_a_little_give_unrelated_permutations() -> None:
    """Seeds and epochs next to each other agree in about one position, as chance would have it."""
    total = 1000
    orders = [
        permute_positions(np.arange(total), total, make_keys("test", seed, epoch))
        for seed in range(20)
        for epoch in range(20)
    ]
    agreements = [int((previous == other).sum()) for previous, other in itertools.pairwise(orders)]
    assert abs(sum(agreements) - len(agreements)) < 4 * math.sqrt(len(agreements))
    assert max(agreements) < 10


def test_draws_are_uniform() -> None:
    """Hashes of positions fill [0, 1) evenly and never reach 1."""
    draws = draw_uniform(np.arange(100_000), make_keys("test", 1))
    assert draws.min() >= 0
    assert draws.max() < 1
    counts = np.bincount((draws * 100).astype(int), minlength=100)
    assert abs(deviation(counts, 1000)) < 4
