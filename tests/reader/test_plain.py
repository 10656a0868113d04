"""Kernels that copy windows: what lies in them, and nothing beside it."""

import numpy as np
from tests.guarded import Guarded
from tests.naming import case

from fieldslab.reader.plain import are_verified, copy_windows
from fieldslab.reader.rows import ShardDirectory
from fieldslab.schemas.mapping import get_address

FAR = (-(2**63), -(2**63) + 1, 2**63 - 1, 2**62, -(2**40))


def test_windows_are_copied_whole_or_refused() -> None:
    """Of any shards, views and bounds, between guard pages; wrong starts come out unchanged."""
    random = np.random.default_rng(0)
    refused = 0
    for turn in range(300):
        counts = random.integers(1, 30, random.integers(1, 6))
        directory, rows = ShardDirectory(counts), int(counts.sum())
        item = int(random.choice([1, 3, 8, 130, 700]))
        data = random.integers(0, 256, (rows, item), np.uint8)
        pages = [Guarded(count * item) for count in counts.tolist()]
        parts = np.split(data, np.cumsum(counts)[:-1])
        mapped = np.array(
            [page.put(part.tobytes(), True) for page, part in zip(pages, parts, strict=True)]
        )
        view_start = int(random.integers(0, rows))
        total = int(random.integers(1, rows - view_start + 1))
        length, first = int(random.integers(1, 9)), int(random.integers(-3, 4))
        count = int(random.integers(1, 40))
        starts = random.integers(-total - 1, total + 1, count)
        if turn % 2:
            length = min(length, total)
            first = first if total - length >= abs(first) else 0
            starts = random.integers(max(-first, 0), total - length - max(first, 0) + 1, count)
            starts[::3] -= total
        if turn % 10 == 0:
            starts[-1] = random.choice(FAR)
        places = np.where(starts < 0, starts + total, starts)
        lows, highs = np.zeros(1, np.int64), np.full(1, total)
        if turn % 3 == 0:
            lows = np.clip(places + random.integers(-9, 2, count), 0, total)
            highs = np.clip(lows + random.integers(8, 40, count), 0, total)
        right = (places >= 0) & (places < total) & (places + first >= lows)
        right &= places + first + length <= highs
        size = count * length * item
        room = Guarded(size)
        out = room.take(size, bool(turn % 2), 0xEE)
        windows = starts.copy()
        whole = copy_windows(
            *(windows, first, length, item, *directory.lookup, total, lows, highs, view_start),
            *(mapped, np.empty(16, np.int64), get_address(out), bool(turn % 5 == 0)),
        )
        with case(turn):
            assert whole == right.all()
            if whole:
                items = view_start + (places + first)[:, None] + np.arange(length)
                assert np.array_equal(out, data[items].reshape(-1))
                assert np.array_equal(windows, places)
            else:
                refused += 1
                changed = windows != starts
                assert (windows[changed] == places[changed]).all()
                assert right[changed].all()
    assert 50 < refused < 250


def test_shards_that_are_not_mapped_are_left_to_others() -> None:
    """So are windows that end in one."""
    directory = ShardDirectory([4, 4])
    data, out = np.arange(4, dtype=np.uint8), np.zeros(3, np.uint8)
    mapped = np.array([get_address(data), 0])
    bounds = np.zeros(1, np.int64), np.full(1, 8)
    for start, copied in ((1, True), (2, False), (5, False)):
        whole = copy_windows(
            *(np.array([start]), 0, 3, 1, *directory.lookup, 8, *bounds, 0),
            *(mapped, np.empty(16, np.int64), get_address(out), False),
        )
        with case(start):
            assert whole == copied
        if start == 1:
            assert out.tolist() == [1, 2, 3]


def test_blocks_without_a_mark_are_left_to_others() -> None:
    """One under any byte of a window, in any of its shards."""
    item, rows = 1000, 200  # four blocks a shard
    directory = ShardDirectory([rows, rows])
    firsts = np.array([0, 4])
    for block in range(8):
        marks = np.full(1, 0xFF ^ (1 << block), np.uint8)
        shard, place = divmod(block, 4)
        first, last = place << 16, min((place + 1) << 16, rows * item) - 1
        windows = np.arange(2 * rows - 6)
        touched = (windows + 7 > shard * rows + first // item) & (
            windows <= shard * rows + last // item
        )
        for start in windows.tolist():
            verified = are_verified(
                *(np.array([start - 2 * rows]), 0, 7, item, *directory.lookup, 2 * rows, 0),
                *(get_address(firsts), get_address(marks)),
            )
            with case((block, start)):
                assert verified != touched[start]
    for start in (*FAR, 2 * rows - 6):
        wrong = np.array([start]), 0, 7, item, *directory.lookup, 2 * rows, 0
        assert not are_verified(*wrong, get_address(firsts), get_address(marks))
