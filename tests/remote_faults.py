"""Slabs on a server that fails in every way, read by programs that are killed at any moment.

`make campaign-remote` runs many of these rounds, the suite a few. A round raises AssertionError
where wrong bytes were delivered, or where something is left behind.
"""

import gc
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from tests.forking import start_python, start_server
from tests.servers.web import WebServer
from tests.slabs import write_slab

from fieldslab.reader import Loader, Near, Order, Shuffled, Slab, open_slab
from fieldslab.schemas.errors import (
    DamagedArray,
    DamagedManifest,
    RemoteUnreadable,
    SlabChanged,
)
from fieldslab.schemas.mirror.cache import CacheDirectory
from fieldslab.schemas.mirror.inventory import list_mirrors, verify_mirror
from fieldslab.schemas.mirror.names import MARKER, SIDE
from fieldslab.schemas.mirror.room import Room, open_mirrors

ROWS, WIDTH, SHARDS = 480, 5_000, 24
LIMIT = 4_500_000
"""A limit of the cache: about half of the slab, whose arrays take whole blocks."""
_WINDOW = 4
"""Shards that are read at the same time where there is a limit."""
QUICK: dict[str, Any] = {
    "client_options": {"timeout": "1s"},
    "retry_config": {"backoff": {"init_backoff": timedelta(milliseconds=2)}},
}
"""Options for a server that fails on purpose: neither side waits for long."""
SAME_SLAB = (RemoteUnreadable, DamagedArray, DamagedManifest)
"""What a reader may be told while the server fails."""
EXPECTED = (*SAME_SLAB, SlabChanged)
"""And while another slab is there, or was just now: fetching goes on behind the reader."""
_MOST_SECONDS = 20.0

TRAINER = """
import sys, numpy as np
from fieldslab.reader import Loader, Near, Shuffled, open_slab
url, source, cache, limit, seed = sys.argv[1:]
local = open_slab(source)
slab = open_slab(url, cache_dir=cache, cache_limit=int(limit) or None)
for epoch in range(10**6):
    seed = int(seed) + epoch
    order = Near(1, 4, seed) if int(limit) else Shuffled(seed)
    for batch in Loader(slab, 16, order, threads=2):
        expected = local.gather(batch.rows)
        assert np.array_equal(batch["x"], expected["x"])
        assert np.array_equal(batch["y"], expected["y"])
        assert list(batch["blob"]) == list(expected["blob"])
        print(epoch, flush=True)
"""


# Reads a slab through a cache on a file system of 3 MB, which is mounted for this program alone.
FULL = """
import sys, numpy as np
from pathlib import Path
from fieldslab.reader import open_slab
from fieldslab.schemas.errors import NoSpace
source, disk = map(Path, sys.argv[1:])
local, slab = open_slab(source), open_slab(source, cache_dir=disk / "cache")
late = open_slab(source, cache_dir=disk / "late")
def check(rows):
    assert np.array_equal(slab.gather(rows)["x"], local.gather(rows)["x"])
ballast = disk / "ballast"
ballast.write_bytes(bytes(1_500_000))
check([0, 599])
try:
    slab.gather(range(600))
except NoSpace as error:
    print(error)
check([0, 599])
with open(ballast, "ab", buffering=0) as file:
    try:
        while file.write(bytes(4096)):
            pass
    except OSError:
        pass
check([0, 599])
for read in (lambda: late.gather([0]), lambda: open_slab(source, cache_dir=disk / "other")):
    try:
        read()
    except NoSpace as error:
        print(error)
ballast.unlink()
assert np.array_equal(late.gather([0, 300])["x"], local.gather([0, 300])["x"])
"""
MOUNT = 'mount -t tmpfs -o size=3m none "$1" && shift && exec "$@"'


class Subject(NamedTuple):
    """A slab, another one that takes its place, and what the first one holds."""

    path: Path
    other: Path
    values: np.ndarray
    blobs: list[bytes]

    def check_batch(self, rows: Any, batch: Any) -> None:
        """Compare a batch of all fields with what was written."""
        assert np.array_equal(batch["x"], self.values[rows])
        assert np.array_equal(batch["y"], rows)
        assert list(batch["blob"]) == [self.blobs[row] for row in rows]


def make_subject(folder: Path) -> Subject:
    """Write the slabs: 4 MB each, in 24 shards."""
    values = np.random.default_rng(0).integers(1, 256, (ROWS, WIDTH), np.uint8)
    blobs = [row.tobytes()[: 15 * number] for number, row in enumerate(values)]
    columns = {"x": values, "blob": blobs, "y": np.arange(ROWS)}
    shards = [ROWS // SHARDS] * SHARDS
    other = {"x": values[::-1], "blob": blobs[::-1], "y": np.arange(ROWS)}
    return Subject(
        write_slab(folder / "a.slab", columns, shards),
        write_slab(folder / "b.slab", other, shards),
        values,
        blobs,
    )


def read_through_faults(
    subject: Subject, server: WebServer, cache: Path, rng: random.Random
) -> Counter[str]:
    """Read an epoch or more while the server fails; return how often what happened."""
    counts, before = Counter[str](), server.hits.copy()
    for kind in ("flip",) * 40 + ("short", "cut", "drop", "redirect", "storm", "hang", "slow") * 3:
        _inject(server, kind, rng)
    limit = rng.choice([None, LIMIT])
    slab = _repeat(
        counts,
        lambda: open_slab(server.url, cache_dir=cache, cache_limit=limit, storage_options=QUICK),
    )
    first = rng.randrange(30)  # mostly behind the last step
    replaced, told = range(first, first + 3), range(first, first + 5)
    for step in range(12):
        server.folder = subject.other if step in replaced else subject.path
        read = rng.choice([_gather, _load, _read_rows, _read_columns])
        with _Counting(counts, allowed=EXPECTED if step in told else SAME_SLAB):
            read(subject, slab, rng)
            counts["read"] += 1
    counts.update(server.hits - before)
    server.heal()
    server.folder = subject.path
    _read_all(subject, slab)
    del slab
    check_cache(subject, cache)
    return counts


def fill_disk(folder: Path) -> bool:
    """Read through a cache on a disk that becomes full; return False where none can be mounted.

    Whatever cannot be written is NoSpace, what is there can be read, and nobody gets SIGBUS.
    """
    disk = folder / "disk"
    disk.mkdir()
    values = np.random.default_rng(0).integers(0, 256, (600, 10_000), np.uint8)
    source = write_slab(folder / "full.slab", {"x": values}, [200] * 3)
    mount = ["unshare", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh", str(disk)]
    if subprocess.run([*mount, "true"], capture_output=True).returncode:
        return False
    program = [sys.executable, "-c", FULL, str(source), str(disk)]
    done = subprocess.run([*mount, *program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the cache directory is full") == 3
    return True


def kill_readers(
    subject: Subject, server: WebServer, cache: Path, rng: random.Random
) -> Counter[str]:
    """Kill a training program, its helper, or both; return how often what happened."""
    server.latency = rng.choice([0.0, 0.002, 0.005])
    victims, limit = rng.choice(["trainer", "helper", "both"]), rng.choice([0, LIMIT])
    trainer = start_python(
        "-c", TRAINER, server.url, subject.path, cache, limit, rng.randrange(10**6)
    )
    process = psutil.Process(trainer.process)
    pause = rng.uniform(0, 0.3)
    if rng.random() < 0.8:  # otherwise it may not even have opened the slab
        _wait_until(lambda: find_helpers(process))
        pause = rng.uniform(0, 1.2)
    time.sleep(pause)
    helpers = find_helpers(process)
    if victims != "trainer":
        for helper in helpers:
            with suppress(psutil.NoSuchProcess):
                helper.kill()
    if victims == "helper":
        printed = trainer.output.stat().st_size
        _wait_until(lambda: trainer.output.stat().st_size > printed or not process.is_running())
        helpers += find_helpers(process)
    os.kill(trainer.process, signal.SIGKILL)
    assert start_server().ask(wait=trainer.process) == -signal.SIGKILL, trainer.errors.read_text()
    _, living = psutil.wait_procs(helpers, timeout=_MOST_SECONDS)
    assert not living, "a helper outlives its parent"
    server.latency = 0.0
    check_cache(subject, cache)
    slab = open_slab(server.url, cache_dir=cache)
    _read_all(subject, slab)
    del slab
    check_cache(subject, cache, leftovers=False)
    return Counter({f"killed {victims}": 1})


def check_cache(subject: Subject, cache: Path, *, leftovers: bool = True) -> None:
    """Raise AssertionError where a lock stays, or something there is not what it claims to be.

    `leftovers`: whether what killed programs did not finish may lie there, under other names.
    """
    if not (cache / MARKER).exists():
        return  # killed before there was anything
    with closing(CacheDirectory(cache)) as directory:
        _wait_until(lambda: _has_no_user(directory))
        for mirror in open_mirrors(directory):
            with closing(mirror):
                for unit in range(mirror.blocks.units):
                    assert mirror.presence.lock_unit(unit), f"unit {unit} is still locked"
                    mirror.presence.unlock_unit(unit)
        for info in list_mirrors(directory):
            blocks, damaged = verify_mirror(directory, info.id, lambda rows, count: None)
            assert not damaged, f"{damaged} of {blocks} blocks are marked and wrong"
            mirror_path = Path(info.path)
            if (mirror_path / "manifest.json").exists():
                assert info.whole
                for file in subject.path.rglob("*.*"):
                    copy = mirror_path / file.relative_to(subject.path)
                    assert copy.read_bytes() == file.read_bytes(), copy
    if not leftovers:  # whoever next fetches, and is alone, removes them
        with closing(CacheDirectory(cache)) as directory, closing(Room(directory, None)):
            pass
        assert not list(cache.glob(f"*{SIDE}/*.????????"))


def find_helpers(process: psutil.Process) -> list[psutil.Process]:
    """The helper processes of a process."""
    helpers = []
    with suppress(psutil.NoSuchProcess):
        for child in process.children(recursive=True):
            with suppress(psutil.Error):  # ends just now
                if "mirror.helper" in " ".join(child.cmdline()):
                    helpers.append(child)
    return helpers


def _inject(server: WebServer, kind: str, rng: random.Random) -> None:
    after = rng.randrange(400)
    if kind == "storm":
        code = rng.choice([429, 500, 503])
        server.inject("status", code=code, times=rng.randrange(1, 12), after=after, retry_after=0)
    elif kind == "hang":
        server.inject("hang", seconds=rng.choice([0.05, 2.0]), after=after)
    elif kind == "slow":
        server.inject("slow", rate=rng.choice([50_000, 1_000_000]), after=after)
    else:
        server.inject(kind, after=after)


class _Counting:
    """Counts the errors that a reader may be told; for a `with` block, which they end."""

    def __init__(self, counts: Counter[str], allowed: tuple[type[Exception], ...]) -> None:
        self._counts = counts
        self._allowed = allowed

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if isinstance(error, self._allowed):
            self._counts[type(error).__name__] += 1
        return isinstance(error, self._allowed)


def _repeat(counts: Counter[str], open_it: Callable[[], Slab]) -> Slab:
    for _ in range(50):
        with _Counting(counts, SAME_SLAB):
            return open_it()
    raise AssertionError("the slab cannot be opened")


def _gather(subject: Subject, slab: Slab, rng: random.Random) -> None:
    first = rng.randrange(ROWS - 80)
    rows = rng.sample(range(first, first + 80), 40)
    subject.check_batch(rows, slab.gather(rows))


def _load(subject: Subject, slab: Slab, rng: random.Random) -> None:
    seed = rng.randrange(1000)
    limited = slab.storage.cache_limit is not None
    order: Order = Near(1, _WINDOW, seed) if limited else Shuffled(seed)
    with Loader(slab, 32, order, threads=rng.choice([1, 3])) as loader:
        for batch in loader:
            subject.check_batch(batch.rows.tolist(), batch)


def _read_rows(subject: Subject, slab: Slab, rng: random.Random) -> None:
    for row in rng.sample(range(ROWS), 10):
        values = slab[row]
        assert np.array_equal(values["x"], subject.values[row])
        assert (values["blob"], values["y"]) == (subject.blobs[row], row)


def _read_columns(subject: Subject, slab: Slab, rng: random.Random) -> None:
    first = rng.randrange(ROWS - 40)
    rows = range(first, first + 40)
    assert np.array_equal(slab["x"][first : first + 40], subject.values[first : first + 40])
    assert slab.lengths(rows, "blob").tolist() == [len(subject.blobs[row]) for row in rows]


def _read_all(subject: Subject, slab: Slab) -> None:
    for first in range(0, ROWS, 60):
        rows = list(range(first, first + 60))
        subject.check_batch(rows, slab.gather(rows))


def _has_no_user(directory: CacheDirectory) -> bool:
    gc.collect()  # an error keeps what its frames hold, and threads may just be ending
    with directory.lock_room():
        return directory.is_alone()


def _wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + _MOST_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
