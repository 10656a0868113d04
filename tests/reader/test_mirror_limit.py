"""Mirrors larger than their limit: what is evicted is fetched again, and never read as zeros."""

import ctypes
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.reader.test_mirror import wait_until
from tests.slabs import write_slab

from fieldslab.reader import Slab, open_slab
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.mirror.cache import CacheDirectory

ROWS, WIDTH, SHARDS = 600, 9_000, 20
X = np.random.default_rng(0).integers(1, 256, (ROWS, WIDTH), np.uint8)
BLOBS = [row.tobytes()[: 10 * number] for number, row in enumerate(X)]
TOTAL = sum(map(len, BLOBS)) + X.nbytes
LIMIT = TOTAL // 2


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A slab of 7 MB in 20 shards, without a byte of 0 among its values."""
    columns = {"x": X, "blob": BLOBS, "y": np.arange(1, ROWS + 1)}
    return write_slab(tmp_path / "source" / "x.slab", columns, [ROWS // SHARDS] * SHARDS)


def check_rows(slab: Slab, rows: Any) -> None:
    """Compare a batch with what was written."""
    batch = slab.gather(rows)
    assert np.array_equal(batch["x"], X[rows])
    assert list(batch["blob"]) == [BLOBS[row] for row in rows]
    assert np.array_equal(batch["y"], np.array(rows) + 1)


def count_used_bytes(cache: Path) -> tuple[int, int]:
    """Bytes in use: what the cache counts, and what its files take."""
    files = [path.stat() for path in cache.rglob("*.values.npy")]
    return CacheDirectory(cache).used_bytes, sum(info.st_blocks * 512 for info in files)


def test_a_mirror_stays_below_its_limit(source: Path, tmp_path: Path) -> None:
    """Twice the limit is read several times over, in every way there is, and all of it is right."""
    cache = tmp_path / "cache"
    slab = open_slab(source, cache_dir=cache, cache_limit=LIMIT)
    rng = np.random.default_rng(1)
    for step in range(60):
        shards = rng.integers(0, SHARDS, 3)
        rows = (shards[rng.integers(0, 3, 20)] * 30 + rng.integers(0, 30, 20)).tolist()
        check_rows(slab, rows)
        assert slab[rows[0]]["blob"] == BLOBS[rows[0]]
        assert slab.lengths(rows, "blob").tolist() == [len(BLOBS[row]) for row in rows]
        first = rows[1] // 30 * 30
        assert np.array_equal(slab["x"][first : first + 9], X[first : first + 9])
        assert slab["y"][rows[2]] == rows[2] + 1
        if step % 10 == 0:
            counted, taken = count_used_bytes(cache)
            assert max(counted, taken) <= LIMIT + 65536 * SHARDS


def test_evictions_are_seen_by_who_verified_before(source: Path, tmp_path: Path) -> None:
    """What a process has verified, and another one evicts, is fetched again."""
    cache = tmp_path / "cache"
    slab = open_slab(source, cache_dir=cache)
    check_rows(slab, range(ROWS))
    for _ in range(3):
        wait_until(partial(evict, cache))  # not while the helper fetches what is around rows
        check_rows(slab, range(ROWS))
        assert [slab[row]["blob"] for row in (3, 599)] == [BLOBS[3], BLOBS[599]]


def evict(cache: Path) -> bool:
    """Evict a third of the data in another process; tell whether there is less then."""
    before = count_used_bytes(cache)[1]
    subprocess.run([sys.executable, "-c", EVICTER, cache, str(TOTAL // 3)], check=True)
    return count_used_bytes(cache)[1] < before


# Evicts so many bytes.
EVICTER = """
import sys
from functools import partial
from pathlib import Path
from fieldslab.schemas.mirror.cache import CacheDirectory
from fieldslab.schemas.mirror.room import Room
Room(CacheDirectory(Path(sys.argv[1])), None).evict(int(sys.argv[2]), lambda content, unit: False)
"""

# Reads random rows a number of times in two threads, and compares them with the source.
READER = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from fieldslab.reader import open_slab
source, cache, limit, steps = sys.argv[1:]
slab, local = open_slab(source, cache_dir=cache, cache_limit=int(limit)), open_slab(source)
def read(seed):
    rng = np.random.default_rng([os.getpid(), seed])
    rows = np.concatenate([first * 30 + np.arange(30) for first in rng.permutation(20)[:2]])
    ours, theirs = slab.gather(rows), local.gather(rows)
    assert np.array_equal(ours["x"], theirs["x"])
    assert np.array_equal(ours["y"], theirs["y"])
    assert list(ours["blob"]) == list(theirs["blob"])
with ThreadPoolExecutor(2) as threads:
    list(threads.map(read, range(int(steps))))
"""


def test_processes_share_a_small_cache(source: Path, tmp_path: Path) -> None:
    """Four processes evict what the others read, all the time, and each reads what is right."""
    limit, cache = TOTAL * 7 // 10, tmp_path / "cache"
    command = [sys.executable, "-c", READER, str(source), str(cache), str(limit), "30"]
    readers = [subprocess.Popen(command) for _ in range(4)]
    assert [reader.wait() for reader in readers] == [0] * 4
    assert count_used_bytes(cache)[1] <= limit + 65536 * SHARDS


def test_a_limit_below_one_batch_is_an_error(source: Path, tmp_path: Path) -> None:
    """What is needed at the same time must fit; the error says how much that is."""
    slab = open_slab(source, cache_dir=tmp_path / "cache", cache_limit="1M")
    check_rows(slab, [0])
    with pytest.raises(UsageError, match="cache_limit is less than what is needed") as caught:
        check_rows(slab, range(ROWS))
    assert "at least 1," in str(caught.value)
    check_rows(slab, [599])


def test_addresses_stay_valid(source: Path, tmp_path: Path) -> None:
    """What `addresses` gave out is never evicted, however much else is read."""
    slab = open_slab(source, cache_dir=tmp_path / "cache", cache_limit=LIMIT)
    rows = [3, 599, 10]
    addresses, lengths = slab.addresses(rows, "x")
    for _ in range(2):
        for first in range(30, 540, 30):
            check_rows(slab, range(first, first + 30))
    for row, address, length in zip(rows, addresses.tolist(), lengths.tolist(), strict=True):
        assert ctypes.string_at(address, length) == X[row].tobytes()


def test_what_was_not_needed_longest_goes_first(source: Path, tmp_path: Path) -> None:
    """Room comes from the slab that nobody has read for the longest time."""
    cache = tmp_path / "cache"
    other = write_slab(tmp_path / "other.slab", {"z": X[:300]}, [30] * 10)
    old, kept = open_slab(other, cache_dir=cache), open_slab(source, cache_dir=cache)
    old.gather(range(300))
    time.sleep(0.3)
    kept.gather(range(200), ["x"])
    time.sleep(0.3)
    slab = open_slab(source, cache_dir=cache, cache_limit=TOTAL)
    slab.gather(range(300, 500), ["x"])
    mirrors = {
        path.manifest.id: sum(
            file.stat().st_blocks for file in (cache / path.manifest.id).rglob("*.values.npy")
        )
        for path in (old, kept)
    }
    assert mirrors[old.manifest.id] * 512 < X[:300].nbytes
    assert mirrors[kept.manifest.id] * 512 > X[:400].nbytes
    assert np.array_equal(old.gather(range(300))["z"], X[:300])


def test_a_slab_that_is_read_by_its_path_stays(source: Path, tmp_path: Path) -> None:
    """A whole mirror is no slab any more before it loses blocks; it loses none while it is read."""
    cache = tmp_path / "cache"
    slab = open_slab(source, cache_dir=cache)
    check_rows(slab, range(ROWS))
    mirror = cache / slab.manifest.id
    for _ in range(500):
        if (mirror / "manifest.json").exists():
            break
        time.sleep(0.02)
    plain = open_slab(mirror)
    other = write_slab(tmp_path / "other.slab", {"z": X}, [30] * 20)
    limited = open_slab(other, cache_dir=cache, cache_limit=TOTAL + (1 << 20))
    with pytest.raises(UsageError, match="cache_limit"):
        limited.gather(range(ROWS))
    check_rows(plain, range(ROWS))
    del plain
    time.sleep(0.2)
    limited.gather(range(ROWS))
    assert not (mirror / "manifest.json").exists()
    assert os.listdir(mirror)
    check_rows(slab, range(ROWS))
