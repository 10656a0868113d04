"""Loaders of slabs that lie elsewhere: what comes next is fetched before it is needed."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.reader.test_mirror import BLOBS, ROWS, X, find_helpers
from tests.servers.web import WebServer
from tests.slabs import write_slab

from fieldslab.reader import Loader, Near, Sequential, Shuffled, Subset, open_slab
from fieldslab.reader.loading.readahead import ReadAhead
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.digest import BLOCK


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A slab of 8 MB in four shards."""
    values = np.tile(X, (1, 2))
    columns = {"x": values, "blob": BLOBS, "y": np.arange(ROWS)}
    return write_slab(tmp_path / "source" / "x.slab", columns, [100] * 4)


def count_value_bytes(folder: Path, name: str) -> int:
    """Bytes of one array over all shards."""
    return sum(path.stat().st_size - HEADER for path in folder.rglob(f"*-{name}.npy"))


@pytest.mark.parametrize("order", [Sequential(), Shuffled(1), Near(1, 2)])
@pytest.mark.filterwarnings("ignore::fieldslab.schemas.notices.FieldslabWarning")
def test_an_epoch_is_fetched_by_few_requests(
    source: Path, tmp_path: Path, serve: Callable[..., WebServer], order: Sequential
) -> None:
    """Every byte of the fields asked for comes once, by far fewer requests than blocks."""
    server = serve(source)
    server.latency = 0.02
    slab = open_slab(server.url, cache_dir=tmp_path / "cache")
    loader = Loader(slab, 16, order, fields=["x", "y"], threads=2)
    rows = []
    for batch in loader:
        assert np.array_equal(batch["x"][:, : X.shape[1]], X[batch["y"]])
        rows += batch["y"].tolist()
    assert sorted(rows) == [*range(ROWS)]
    assert not any("blob" in request.key for request in server.requests)
    fetched = sum(
        request.bytes for request in server.requests if request.key.endswith("values.npy")
    )
    size = count_value_bytes(source, "x.values") + count_value_bytes(source, "y.values")
    assert fetched == size
    requests = sum(request.key.endswith("x.values.npy") for request in server.requests)
    assert requests < size / BLOCK / 2


def test_rows_of_different_lengths_are_fetched_ahead(
    source: Path, tmp_path: Path, serve: Callable[..., WebServer]
) -> None:
    """Offsets come first, then what they tell; nothing twice."""
    server = serve(source)
    server.latency = 0.02
    slab = open_slab(server.url, cache_dir=tmp_path / "cache")
    for batch in Loader(slab, 16, Shuffled(1), fields=["blob", "y"]):
        assert list(batch["blob"]) == [BLOBS[row] for row in batch["y"].tolist()]
    for name in ("blob.values", "blob.offsets"):
        fetched = sum(request.bytes for request in server.requests if name in request.key)
        assert fetched == count_value_bytes(source, name)


def test_damage_beside_rows_that_are_read_is_nobodys(source: Path, tmp_path: Path) -> None:
    """What is fetched around rows may be damaged there: those who read other rows never hear."""
    with open(next(source.glob("shard-00003/*x.values.npy")), "r+b") as file:
        file.seek(-BLOCK, 2)
        file.write(bytes(BLOCK))
    slab = open_slab(source, cache_dir=tmp_path / "cache")
    rows = range(ROWS - BLOCK // X[0].nbytes)
    for batch in Loader(slab, 16, Subset(rows, seed=1), fields=["x", "y"], threads=2):
        assert np.array_equal(batch["x"][:, : X.shape[1]], X[batch["y"]])


@pytest.mark.filterwarnings("ignore::fieldslab.schemas.notices.FieldslabWarning")
def test_a_small_cache_is_not_overrun(tmp_path: Path) -> None:
    """What is fetched ahead does not push out what is needed first."""
    source = write_slab(tmp_path / "x.slab", {"x": X, "y": np.arange(ROWS)}, [20] * 20)
    slab = open_slab(source, cache_dir=tmp_path / "cache", cache_limit="2M")
    for batch in Loader(slab, 16, Near(1, 2), threads=2):
        assert np.array_equal(batch["x"], X[batch["y"]])
    taken = [file.stat().st_blocks * 512 for file in (tmp_path / "cache").rglob("*.values.npy")]
    assert sum(taken) < X.nbytes


def test_a_mirror_in_memory_is_not_asked_for_again(
    source: Path, tmp_path: Path, serve: Callable[..., WebServer]
) -> None:
    """What was fetched is known to be in memory, as of a local slab: later batches need no look."""
    for options in ({"path": serve(source).url, "cache_dir": tmp_path / "cache"}, {"path": source}):
        slab = open_slab(**options)
        slab.gather(range(ROWS), ["x"])
        read_ahead = ReadAhead(slab, ["x"])
        read_ahead.request_pages(np.arange(16))
        assert read_ahead.should_skip_batch()


def test_an_abandoned_epoch_ends_while_a_server_hangs(
    source: Path, tmp_path: Path, serve: Callable[..., WebServer]
) -> None:
    """Leaving a loop waits for no answer, and what was asked for ahead is forgotten."""
    server = serve(source)
    slab = open_slab(server.url, cache_dir=tmp_path / "cache")
    server.inject("hang", key="shard-00003/00-x.values.npy", times=1000)
    loader = Loader(slab, 16, Sequential(), threads=2)
    for number, _ in enumerate(loader):
        if number == 3:
            break
    loader.close()
    iterator = iter(Loader(slab[300:], 16, Sequential(), threads=2))
    time.sleep(0.2)
    del iterator
    server.heal()
    assert np.array_equal(slab["x"][0][: X.shape[1]], X[0])


# Waits for a batch that never comes.
READER = """
import sys
from fieldslab.reader import Loader, Sequential, open_slab
slab = open_slab(sys.argv[1], cache_dir=sys.argv[2])
for batch in Loader(slab, 16, Sequential(), threads=2):
    print("batch", flush=True)
"""


def test_ctrl_c_ends_a_loop_while_a_server_hangs(
    source: Path, tmp_path: Path, serve: Callable[..., WebServer]
) -> None:
    """The program ends with KeyboardInterrupt at once, and its helper with it."""
    server = serve(source)
    server.inject("hang", key="shard-00001/00-x.values.npy", times=1000)
    command = [sys.executable, "-c", READER, server.url, str(tmp_path / "cache")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        assert reader.stdout.readline() == b"batch\n"
        while not server.count("shard-00001/00-x.values.npy"):
            time.sleep(0.02)
        helpers = find_helpers(reader.pid)
        reader.send_signal(signal.SIGINT)
        assert b"KeyboardInterrupt" in reader.stderr.read()
        assert reader.wait(30) != 0
    for helper in helpers:
        helper.wait(5)
