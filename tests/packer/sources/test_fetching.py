"""Ranges that are fetched ahead: which requests there are, and how much is held."""

import threading

import pytest
from tests.naming import case

from fieldslab.packer.sources.fetching import BLOCK, FetchedRanges, join_ranges, keep_end

SIZE = 10 * BLOCK
CONTENT = bytes(range(256)) * (SIZE // 256)


class Server:
    """What answers requests, and remembers them."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, int]] = []
        self._lock = threading.Lock()

    def read(self, start: int, stop: int) -> memoryview:
        """Answer a request."""
        with self._lock:
            self.requests.append((start, stop))
        return memoryview(CONTENT)[start:stop]


def test_ranges_are_joined() -> None:
    """Neighbours become one request, and others where at most a sixteenth is wasted."""
    cases = [
        ([(0, 10), (10, 20)], [(0, 20)]),
        ([(0, 100), (110, 200)], [(0, 200)]),
        ([(0, 100), (120, 200)], [(0, 100), (120, 200)]),
        ([(0, 10), (5, 20), (5, 8)], [(0, 20)]),
        ([], []),
    ]
    for ranges, expected in cases:
        with case(ranges):
            assert join_ranges(ranges) == expected


def test_what_fits_is_fetched_once() -> None:
    """However often ranges are read, each is fetched once; the rest is read where it is needed."""
    server = Server()
    ranges = [(100, BLOCK + 1000), (3 * BLOCK, 6 * BLOCK)]
    with FetchedRanges(server.read, ranges) as fetched:
        for start, stop in [(100, 200), (150, BLOCK + 500), (3 * BLOCK, 6 * BLOCK), (100, 200)]:
            assert fetched.read(start, stop) == CONTENT[start:stop]
        assert len(server.requests) == 5
        assert fetched.read(50, 150) == CONTENT[50:150]
        assert fetched.read(6 * BLOCK - 10, SIZE) == CONTENT[6 * BLOCK - 10 :]
    assert server.requests[5:] == [(50, 100), (6 * BLOCK, SIZE)]


def test_memory_is_bounded() -> None:
    """Blocks wait for memory, in the order of use by a decoder of all ranges; used ones go."""
    server = Server()
    half, memory = SIZE // 2, 2 * BLOCK
    ranges = [(0, half), (half, SIZE)]
    step = 1 << 16
    with FetchedRanges(server.read, ranges, memory) as fetched:
        for start in range(0, half, step):
            for first in (start, half + start):
                assert fetched.read(first, first + step) == CONTENT[first : first + step]
            asked = sum(stop - start for start, stop in server.requests)
            assert asked <= 2 * (start + step) + memory
    assert sorted(server.requests) == sorted(set(server.requests))
    assert sum(stop - start for start, stop in server.requests) == SIZE


def test_errors_come_where_bytes_are_needed() -> None:
    """What a request raises is raised by the read that waits for it."""

    def read(start: int, stop: int) -> memoryview:
        if start == BLOCK:
            raise OSError("gone")
        return memoryview(CONTENT)[start:stop]

    with FetchedRanges(read, [(0, 3 * BLOCK)]) as fetched:
        assert fetched.read(0, BLOCK) == CONTENT[:BLOCK]
        with pytest.raises(OSError, match="gone"):
            fetched.read(BLOCK - 1, BLOCK + 1)


def test_the_end_is_kept() -> None:
    """The end of a file is read once; what lies in front of it by requests of its own."""
    server = Server()
    read = keep_end(server.read, SIZE, 100)
    for start, stop in [(SIZE - 100, SIZE), (SIZE - 10, SIZE - 5), (SIZE - 150, SIZE - 50), (0, 9)]:
        assert read(start, stop) == CONTENT[start:stop]
    assert server.requests == [(SIZE - 100, SIZE), (SIZE - 150, SIZE - 100), (0, 9)]
