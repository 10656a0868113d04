"""Maps: made when they are touched, the coldest given back, and none under whoever uses it."""

import ctypes
import gc
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.naming import case
from tests.reader.conftest import ROWS, Example
from tests.slabs import array_path, flip, store, write_slab

from fieldslab.reader import Loader, Slab, open_slab
from fieldslab.reader.stored import changes
from fieldslab.reader.stored.array import StoredArray
from fieldslab.reader.stored.maps import MOST_MAPS, Lease, map_keeper
from fieldslab.schemas import layout
from fieldslab.schemas.errors import DamagedArray
from fieldslab.schemas.folder import load_manifest
from fieldslab.schemas.mapping import count_maps

SHARDS, WIDTH = 400, 24
VALUES = np.random.default_rng(0).integers(0, 256, (2 * SHARDS, WIDTH), np.uint8)
TEXTS = [f"text {row}" * (row % 5) for row in range(2 * SHARDS)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A slab of 400 shards, of three arrays each."""
    columns = {"x": VALUES, "t": TEXTS}
    return write_slab(tmp_path_factory.mktemp("maps") / "x.slab", columns, [2] * SHARDS)


@pytest.fixture
def few_maps(monkeypatch: pytest.MonkeyPatch) -> int:
    """Arrays of slabs opened in the test may take 128 maps more than there are."""
    gc.collect()
    limit = count_maps() + 128
    monkeypatch.setattr(map_keeper, "limit", limit)
    return limit


def check_rows(slab: Slab, rows: np.ndarray) -> None:
    """Compare a gather with what was packed."""
    batch = slab.gather(rows)
    assert np.array_equal(batch["x"], VALUES[rows])
    assert list(batch["t"]) == [TEXTS[row] for row in rows]


def values_of(slab: Slab) -> StoredArray:
    """The array of the fixed field."""
    return slab.storage.load_field("x").values


def test_shards_are_mapped_when_they_are_touched(path: Path) -> None:
    """Neither opening nor a column maps anything; rows map their own shards, each once."""
    gc.collect()
    slab = open_slab(path)
    before = count_maps()
    column = slab["x"]
    assert count_maps() == before
    column[0], column[1]
    assert count_maps() == before + 1
    slab.gather([0, 799, 1, 0], ["x"])
    assert count_maps() == before + 2
    assert np.flatnonzero(values_of(slab).mapped).tolist() == [0, SHARDS - 1]
    slab.gather(range(len(slab)), ["x"])
    assert count_maps() == before + SHARDS
    assert values_of(slab).all_mapped
    del slab, column
    assert count_maps() == before


@pytest.mark.parametrize("verify", [True, False])
def test_the_coldest_arrays_are_unmapped(path: Path, few_maps: int, verify: bool) -> None:
    """However rows come, there are never more maps than allowed, and rows are the right ones."""
    slab = open_slab(path, verify=verify)
    rng = np.random.default_rng(1)
    for size in (1, 30, 200):
        for _ in range(3):
            check_rows(slab, rng.integers(0, 2 * SHARDS, size))
            assert count_maps() <= few_maps
    hot = rng.integers(0, 2 * SHARDS, 10)
    for _ in range(20):
        slab.gather(hot)
        slab.gather(rng.integers(0, 2 * SHARDS, 10))
        kept = values_of(slab).mapped[hot // 2] != 0
        assert kept.all(), "what was touched last stays"
    lengths = [len(text) for text in TEXTS]
    assert slab.lengths(range(2 * SHARDS), "t").tolist() == lengths
    for row in range(0, 2 * SHARDS, 7):
        assert slab[row]["t"] == TEXTS[row]
    assert count_maps() <= few_maps


def test_addresses_stay(path: Path, few_maps: int) -> None:
    """What `addresses` gave out leads to the values as long as the slab is there; so do slices."""
    slab = open_slab(path)
    rows = np.arange(0, 100, 3)
    expected = [VALUES[row].tobytes() for row in rows]
    addresses, lengths = slab.addresses(rows, "x")
    part, stored = slab["x"][700:702], values_of(slab)[50]
    for seed in range(4):
        check_rows(slab, np.random.default_rng(seed).integers(0, 2 * SHARDS, 400))
        assert slab.addresses(rows, "x")[0].tolist() == addresses.tolist()
    actual = [
        ctypes.string_at(int(address), int(length))
        for address, length in zip(addresses, lengths, strict=True)
    ]
    assert actual == expected
    assert np.array_equal(part, VALUES[700:702])
    assert np.array_equal(stored, VALUES[100:102])
    assert not values_of(slab).mapped[350], "a slice needs no map of the slab's"
    assert few_maps


def test_more_may_be_pinned_than_allowed(path: Path, few_maps: int) -> None:
    """Where all of a field has addresses, rows of the other one are still read."""
    slab = open_slab(path)
    addresses, _ = slab.addresses(range(2 * SHARDS), "x")
    check_rows(slab, np.arange(2 * SHARDS))
    assert count_maps() > few_maps
    assert slab.addresses(range(2 * SHARDS), "x")[0].tolist() == addresses.tolist()


def test_a_lease_keeps_what_was_mapped_when_it_was_taken(path: Path, few_maps: int) -> None:
    """Memory lasts as long as anybody's lease from before, and no longer."""
    slab = open_slab(path)
    array = values_of(slab)
    slab.gather([0, 1], ["x"])
    address = int(array.mapped[0])
    first: Lease | None = map_keeper.lease
    with map_keeper.hold():
        slab.gather(range(2, 500), ["x"])
        second: Lease | None = map_keeper.lease
        assert second is not first
        assert array.mapped[0] == 0
    first_count = count_maps()
    assert ctypes.string_at(address, WIDTH) == VALUES[0].tobytes()
    second = None
    assert ctypes.string_at(address, WIDTH) == VALUES[0].tobytes()
    assert count_maps() == first_count
    first = None
    assert count_maps() < min(first_count, few_maps)
    assert second is first is None


def test_threads_share_few_maps(path: Path, few_maps: int) -> None:
    """Threads that gather, read rows and take addresses at once get what one of them would."""
    slab = open_slab(path)
    peaks, stop = [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.001):
            peaks.append(count_maps())

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(5):
            check_rows(slab, rng.integers(0, 2 * SHARDS, 60))
            row = int(rng.integers(2 * SHARDS))
            assert slab[row]["t"] == TEXTS[row]
            assert slab.lengths([row], "t").tolist() == [len(TEXTS[row])]

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(8)))
    finally:
        stop.set()
        watcher.join()
    assert max(peaks) <= few_maps


def test_loaders_get_by_with_few_maps(path: Path, few_maps: int) -> None:
    """A Loader of two threads, which also reads ahead, delivers an epoch."""
    slab = open_slab(path)
    with Loader(slab, 64, threads=2, prefetch=3) as loader:
        batches = [(batch.rows.copy(), batch["x"].copy()) for batch in loader]
    rows = np.concatenate([rows for rows, _ in batches])
    assert sorted(rows.tolist()) == list(range(2 * SHARDS))
    assert np.array_equal(np.concatenate([values for _, values in batches]), VALUES[rows])
    assert few_maps


def test_forked_processes_unmap_their_own(path: Path, few_maps: int) -> None:
    """A child of a process that holds a lease, and has a thread gathering, keeps its own count."""
    slab = open_slab(path)
    slab.gather(range(100))
    stop = threading.Event()

    def gather() -> None:
        rng = np.random.default_rng(3)
        while not stop.is_set():
            check_rows(slab, rng.integers(0, 2 * SHARDS, 50))

    thread = threading.Thread(target=gather)
    thread.start()
    try:
        with map_keeper.hold():
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    for seed in range(5):
                        check_rows(slab, np.random.default_rng(seed).integers(0, 800, 200))
                        assert len(map_keeper.lease.unmapped) == 0
                    status = int(count_maps() > few_maps + 128)  # what the threads' leases held
                finally:
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        thread.join()
    check_rows(slab, np.arange(2 * SHARDS))


def test_damage_is_found_when_a_shard_is_mapped_again(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks whose marks were cleared are verified again; those of other shards are not."""
    monkeypatch.setattr(changes, "SECONDS", 3600.0)
    copied = Path(shutil.copytree(path, tmp_path / "copy.slab"))
    slab = open_slab(copied)
    slab.gather(range(2 * SHARDS))
    for shard in (7, 9):
        flip(array_path(copied, "x", "values", shard), 3)
    slab.gather(range(2 * SHARDS))
    marks = values_of(slab).marks
    assert marks is not None
    marks.clear_blocks(9, 1)
    slab.gather([14, 15, 20])
    with pytest.raises(DamagedArray, match="does not match its digest") as caught:
        slab.gather(range(2 * SHARDS))
    assert caught.value.context["file"] == array_path(copied, "x", "values", 9)


def test_decoding_uses_what_stays_mapped(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images are found and measured where they lie, with hardly a map allowed."""
    monkeypatch.setattr(map_keeper, "limit", 1)
    slab = open_slab(example.path)
    for _ in range(2):
        with case("addresses"):
            addresses, lengths = slab.addresses(range(ROWS), "photo")
            assert [
                ctypes.string_at(int(address), int(length))
                for address, length in zip(addresses, lengths, strict=True)
            ] == example.values("photo", range(ROWS))
        batch = slab.gather(range(ROWS))
        assert list(batch["caption"]) == example.values("caption", range(ROWS))


def count_lines(folder: Path) -> int:
    """Count what of a folder is mapped, as the system has it."""
    maps = Path("/proc/self/maps").read_text()
    return sum(str(folder) in line for line in maps.splitlines())


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux tells")
def test_a_slab_of_100_000_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It opens, gathers at random and never has more maps than allowed; nor do its threads."""
    assert MOST_MAPS == 32_768
    most = 3000
    monkeypatch.setattr(map_keeper, "limit", count_maps() + most)
    shards, folders = 100_000, 16
    small = write_slab(tmp_path / "small.slab", {"x": VALUES[: 2 * folders]}, [2] * folders)
    first = load_manifest(small)
    large = tmp_path / "large.slab"
    large.mkdir()
    rows = np.random.default_rng(0).permutation(2 * shards)[:4000]
    touched = np.unique(rows // 2).tolist()
    for shard in touched:  # links to folders: a slab of 200,000 files is slow to make
        target = f"{small}/{layout.name_shard(shard % folders)}"
        os.symlink(target, f"{large}/{layout.name_shard(shard)}")
    content = {
        "rows": 2 * shards,
        "fields": first.fields,
        "shards": first.shards * (shards // folders),
    }
    store(large, **content)
    slab = open_slab(large, verify=False, follow_links=True)
    for part in np.split(rows, 4):
        assert np.array_equal(slab.gather(part)["x"], VALUES[part % (2 * folders)])
        assert count_lines(small) <= most
    assert count_lines(small) > most // 2
    mapped = np.count_nonzero(values_of(slab).mapped)
    assert mapped < len(touched), "the first ones are no longer mapped"


def test_the_interpreter_ends_in_silence(path: Path, tmp_path: Path) -> None:
    """A slab, a map and a mirror that outlive the globals of their modules write no error."""
    script = """
import codecs, json, sys
from fieldslab.reader import open_slab
json.kept = [open_slab(sys.argv[1], cache_dir=cache) for cache in (None, sys.argv[2])]
for slab in json.kept:
    slab[0]
modules = [json, *(sys.modules[name] for name in sys.modules if name.startswith("fieldslab"))]
codecs.register(lambda name, kept=modules: None)  # json, imported first, is cleared last
del slab
"""
    command: list[Any] = [sys.executable, "-c", script, path, tmp_path / "cache"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
