"""Ranges of a remote file, fetched in threads before a decoder asks for them.

Neighbouring ranges are fetched by one request, large ones by several. Blocks are fetched in the
order in which a decoder needs them that reads all ranges at the same pace, as that of Parquet does
with the columns of a row group. Up to `MEMORY` bytes are held: where all ranges fit, nothing is
fetched twice.
"""

import io
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

BLOCK = 4 << 20
"""Bytes that are asked for by one request, at most."""
MEMORY = 128 << 20
"""Bytes of blocks that are held or on their way, at most, but for one that is waited for."""
_LEAST_BLOCK = 1 << 16
_THREADS = 8
_WASTE = 16
"""Ranges are joined where the bytes between them are at most this part of theirs: 1 of 16."""

Read = Callable[[int, int], memoryview]


class Block(NamedTuple):
    """Bytes `start` to `stop`, needed when this part of the ranges (0 to 1) has been decoded."""

    start: int
    stop: int
    needed: float

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.stop - self.start


class FetchedRanges:
    """Ranges of a file that are fetched ahead, for a `with` block."""

    def __init__(self, read: Read, ranges: Sequence[tuple[int, int]], memory: int = MEMORY) -> None:
        """`read(start, stop)` reads the file, in several threads."""
        self._read = read
        size = max(min(BLOCK, memory // (2 * max(len(ranges), 1))), _LEAST_BLOCK)
        if sum(stop - start for start, stop in ranges) <= memory:
            size = BLOCK
        self._blocks = cut_blocks(ranges, size)
        self._starts = [block.start for block in self._blocks]
        self._memory = memory
        order = sorted(range(len(self._blocks)), key=lambda number: self._blocks[number].needed)
        self._waiting = deque(order)
        self._used: deque[int] = deque()
        self._requests: dict[int, Future[memoryview]] = {}
        self._held = 0
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(_THREADS, "fieldslab-fetch")

    def __enter__(self) -> "FetchedRanges":
        with self._lock:
            self._fetch_ahead()
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def read(self, start: int, stop: int) -> memoryview:
        """Read bytes, waiting for those on their way; outside of the ranges, by a request.

        Raises what reading the file raises.
        """
        pieces: list[memoryview] = []
        while start < stop:
            number = bisect_right(self._starts, start) - 1
            if number >= 0 and start < self._blocks[number].stop:
                block = self._blocks[number]
                end = min(stop, block.stop)
                data = self._take(number).result()
                pieces.append(data[start - block.start : end - block.start])
                if end == block.stop:
                    self._release(number)
            else:
                following = self._starts[number + 1 : number + 2]
                end = min([stop, *following])
                pieces.append(self._read(start, end))
            start = end
        return pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))

    def _take(self, number: int) -> "Future[memoryview]":
        with self._lock:
            if number not in self._requests:
                self._request(number)
            return self._requests[number]

    def _release(self, number: int) -> None:
        with self._lock:
            self._used.append(number)
            self._fetch_ahead()

    def _fetch_ahead(self) -> None:
        while self._waiting:
            number = self._waiting[0]
            if number not in self._requests:
                size = self._blocks[number].size
                while self._used and self._held + size > self._memory:
                    self._drop(self._used.popleft())
                if self._held and self._held + size > self._memory:
                    return
                self._request(number)
            self._waiting.popleft()

    def _request(self, number: int) -> None:
        block = self._blocks[number]
        self._held += block.size
        self._requests[number] = self._threads.submit(self._read, block.start, block.stop)

    def _drop(self, number: int) -> None:
        if self._requests.pop(number, None) is not None:
            self._held -= self._blocks[number].size


def keep_end(read: Read, size: int, end: int) -> Read:
    """Read the last `end` bytes of a file of `size` bytes now; return `read` with them at hand."""
    kept_start = max(size - end, 0)
    end_bytes = read(kept_start, size) if size else memoryview(b"")

    def read_with_end(start: int, stop: int) -> memoryview:
        if start >= kept_start:
            return end_bytes[start - kept_start : stop - kept_start]
        if stop <= kept_start:
            return read(start, stop)
        return memoryview(b"".join([read(start, kept_start), end_bytes[: stop - kept_start]]))

    return read_with_end


class RangeReader(io.RawIOBase):
    """A file for pyarrow and others, over a function that reads ranges."""

    def __init__(self, read: Read, size: int) -> None:
        self._read = read
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to another position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> memoryview:
        """Read up to `size` bytes, fewer at the end of the file."""
        start = self._position
        stop = self._size if size is None or size < 0 else min(start + size, self._size)
        data = self._read(start, stop) if stop > start else memoryview(b"")
        self._position = start + len(data)
        return data

    def readall(self) -> bytes:
        """Read all that is left."""
        return bytes(self.read())

    def readinto(self, into: Any) -> int:
        """Fill a buffer, less of it at the end of the file."""
        data = self.read(len(into))
        into[: len(data)] = data
        return len(data)


def join_ranges(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join sorted ranges that lie close together, so that little between them is fetched."""
    runs: list[tuple[int, int]] = []
    useful = 0
    for start, stop in ranges:
        if runs and start <= runs[-1][1]:
            useful += max(stop - runs[-1][1], 0)
            runs[-1] = runs[-1][0], max(stop, runs[-1][1])
        elif (
            runs
            and stop - runs[-1][0] - useful - (stop - start) <= (useful + stop - start) // _WASTE
        ):
            useful += stop - start
            runs[-1] = runs[-1][0], stop
        else:
            runs.append((start, stop))
            useful = stop - start
    return runs


def cut_blocks(ranges: Sequence[tuple[int, int]], size: int = BLOCK) -> list[Block]:
    """Cut joined ranges into blocks of at most `size` bytes, in the order of the file."""
    ranges = sorted(ranges)
    stops = [stop for _, stop in ranges]
    blocks = []
    for run_start, run_stop in join_ranges(ranges):
        for start in range(run_start, run_stop, size):
            stop = min(start + size, run_stop)
            needed = 1.0
            for first, last in ranges[bisect_right(stops, start) :]:
                if first >= stop:
                    break
                needed = min(needed, max(start - first, 0) / (last - first))
            blocks.append(Block(start, stop, needed))
    return blocks
