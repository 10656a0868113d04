"""Slabs that lie elsewhere, in worker processes of PyTorch and in Grain."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import grain
import numpy as np
import pytest
from tests.reader.loading import run
from tests.servers.web import WebServer
from tests.slabs import write_slab
from torch.utils.data import DataLoader

from fieldslab.reader import Slab, open_slab
from fieldslab.reader.grain import grain_batches
from fieldslab.reader.torch import SlabDataset, collate
from fieldslab.schemas.arrays import HEADER

# From Python 3.12 on, forking warns where threads run: that is what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

ROWS = 300
VALUES = np.random.default_rng(0).integers(0, 256, (ROWS, 9_000), np.uint8)


@pytest.fixture
def server(tmp_path: Path, serve: Callable[..., WebServer]) -> WebServer:
    """A server of a slab of three shards."""
    columns = {"x": VALUES, "y": np.arange(ROWS)}
    return serve(write_slab(tmp_path / "x.slab", columns, [100] * 3))


def test_workers_fetch_each_extent_once(server: WebServer, tmp_path: Path) -> None:
    """Workers get right rows, and fetch what they need together, once."""
    slab = open_slab(server.url, cache_dir=tmp_path / "cache")
    server.latency = 0.005
    for shuffle in (True, False):
        check_epoch(make_loader(slab, "fork", shuffle=shuffle))
    check_requests(server)


def test_workers_that_open_the_slab_again_share_its_mirror(
    server: WebServer, tmp_path: Path
) -> None:
    """Workers by spawn and forkserver, at the same time, fetch each extent once together."""
    slab = open_slab(server.url, cache_dir=tmp_path / "cache")
    server.latency = 0.005
    epochs = [iter(make_loader(slab, method, workers=1)) for method in ("spawn", "forkserver")]
    for epoch in epochs:
        check_epoch(epoch)
    check_requests(server)


def make_loader(slab: Slab, method: str, *, workers: int = 2, shuffle: bool = True) -> Any:
    """Make a DataLoader whose workers are started by a method."""
    return DataLoader(
        SlabDataset(slab),
        batch_size=16,
        shuffle=shuffle,
        num_workers=workers,
        collate_fn=collate,
        multiprocessing_context=method,
    )


def check_epoch(batches: Iterable[Any]) -> None:
    """Compare each row with what was written; each comes once."""
    seen = []
    for batch in batches:
        rows = batch["y"].numpy()
        assert np.array_equal(batch["x"].numpy(), VALUES[rows])
        seen += rows.tolist()
    assert sorted(seen) == list(range(ROWS))


def check_requests(server: WebServer) -> None:
    """See that all of the values were fetched, and nothing twice."""
    assert server.folder is not None
    for path in server.folder.rglob("*.values.npy"):
        key = path.relative_to(server.folder).as_posix()
        assert server.count_bytes(key) == path.stat().st_size - HEADER


def test_grain_reads_slabs_elsewhere(server: WebServer, tmp_path: Path) -> None:
    """Rows and whole batches of Grain are those of the slab."""
    slab = open_slab(server.url, cache_dir=tmp_path / "cache")
    source = grain_batches(slab, batch_size=32, drop_last=False)
    seen = []
    for batch in grain.MapDataset.source(source).to_iter_dataset():
        assert np.array_equal(batch["x"], VALUES[batch["y"]])
        seen += batch["y"].tolist()
    assert sorted(seen) == list(range(ROWS))


def test_mirrors_that_come_and_go_leave_nothing_open(tmp_path: Path) -> None:
    """The helper ends with the last mirror, and with it the connection to it."""
    script = """
import gc, sys, threading, time
import psutil
from fieldslab.reader import open_slab
files = set()
for number in range(6):
    slab = open_slab(sys.argv[1], cache_dir=sys.argv[1] + str(number))
    assert slab["x"][number] == number
    del slab
    gc.collect()
    while any(thread.name == "fieldslab-helper" for thread in threading.enumerate()):
        time.sleep(0.01)
    files.add(psutil.Process().num_fds())
print(len(files))
"""
    assert run(script, write_slab(tmp_path / "x.slab", {"x": np.arange(300)})) == "1"
