"""Slabs that lie elsewhere: read through a mirror, each byte right, each block fetched once."""

import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from tests.naming import case
from tests.reader.conftest import Example
from tests.servers.s3 import SECRET, Bucket
from tests.servers.web import WebServer
from tests.slabs import array_path, flip, write_slab

from fieldslab.reader import Loader, Sequential, Shuffled, Slab, open_slab
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.errors import (
    AccessDenied,
    DamagedArray,
    RemoteUnreadable,
    SlabChanged,
    SlabNotFound,
    UsageError,
    WorkerDied,
)
from fieldslab.schemas.mirror.channel import Origin

# From Python 3.12 on, forking warns where threads run: that is what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

ROWS, WIDTH, SHARDS = 400, 9_000, [150, 1, 249]
X = np.random.default_rng(0).integers(0, 256, (ROWS, WIDTH), np.uint8)
BLOBS = [row.tobytes()[: 20 * number] for number, row in enumerate(X)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A slab of 5 MB in three shards."""
    columns = {"x": X, "blob": BLOBS, "y": np.arange(ROWS)}
    return write_slab(tmp_path / "source" / "x.slab", columns, SHARDS)


def check_rows(slab: Slab, rows: Any) -> None:
    """Compare a batch with what was written."""
    batch = slab.gather(rows)
    assert np.array_equal(batch["x"], X[rows])
    assert list(batch["blob"]) == [BLOBS[row] for row in rows]
    assert np.array_equal(batch["y"], rows)


def find_helpers(parent: int | None = None) -> list[psutil.Process]:
    """The helper processes of a process."""
    helpers = []
    for child in psutil.Process(parent).children(recursive=True):
        with suppress(psutil.Error):  # ends just now
            if "mirror.helper" in " ".join(child.cmdline()):
                helpers.append(child)
    return helpers


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for something that has to happen."""
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not happen")


def test_every_field_is_as_it_was_written(example: Example, tmp_path: Path) -> None:
    """Rows, batches, columns, lengths, categories and views are those of the slab itself."""
    local = open_slab(example.path)
    slab = open_slab(example.path, cache_dir=tmp_path / "cache")
    assert slab.names() == local.names()
    assert len(slab) == len(local)
    for row in (0, 7, 299):
        assert repr(slab[row]) == repr(local[row])
    rows = np.random.default_rng(1).integers(0, 300, 200)
    for name in slab.names():
        with case(name):
            ours, theirs = slab.gather(rows, [name])[name], local.gather(rows, [name])[name]
            assert all(repr(ours[row]) == repr(theirs[row]) for row in range(200))
            if slab.fields[name].kind == "categorical":
                assert list(slab.categories(name)) == list(local.categories(name))
            if slab.fields[name].stored.variable:
                assert np.array_equal(slab.lengths(rows, name), local.lengths(rows, name))
    assert slab[::-7].gather(range(40))["label"].tolist() == [*range(299, 19, -7)]


def test_each_block_is_fetched_once(
    source: Path, tmp_path: Path, serve: Callable[..., WebServer]
) -> None:
    """An epoch, several threads and a second opening fetch what they need, and nothing twice."""
    server = serve(source)
    for _ in range(2):
        slab = open_slab(server.url, cache_dir=tmp_path / "cache")
        for batch in Loader(slab, 16, Shuffled(3), fields=["x", "y"], threads=3):
            assert np.array_equal(batch["x"], X[batch["y"]])
    names = {request.key.rpartition("/")[2] for request in server.requests}
    assert not any("blob" in name for name in names)
    for name in ("00-x.values.npy", "02-y.values.npy"):
        for shard in range(3):
            key = f"shard-{shard:05d}/{name}"
            size = (source / key).stat().st_size - HEADER
            assert server.count_bytes(key) == size
    assert server.count("shard-00000/digests.npy") == 1


def test_a_whole_mirror_is_a_slab(source: Path, tmp_path: Path) -> None:
    """Once all is there, the mirror opens by its path, and has the same files."""
    slab = open_slab(source, cache_dir=tmp_path / "cache")
    check_rows(slab, range(ROWS))
    mirror = tmp_path / "cache" / slab.manifest.id
    wait_until((mirror / "manifest.json").exists)
    del slab
    check_rows(open_slab(mirror), [3, 399])
    files = [path.relative_to(source) for path in source.rglob("*") if path.is_file()]
    for file in files:
        assert (mirror / file).read_bytes() == (source / file).read_bytes()


def test_nothing_is_fetched_before_it_is_needed(
    source: Path, tmp_path: Path, serve: Callable[..., WebServer]
) -> None:
    """Opening reads the manifest alone; a row reads its blocks and their digests."""
    server = serve(source)
    slab = open_slab(server.url, cache_dir=tmp_path / "cache")
    assert len(slab) == ROWS
    assert {request.key for request in server.requests} == {"manifest.json"}
    server.requests.clear()
    assert slab["y"][399] == 399
    assert {request.key for request in server.requests} <= {
        "shard-00002/digests.npy",
        "shard-00002/02-y.values.npy",
        "manifest.json",
    }
    server.requests.clear()
    assert np.array_equal(slab["x"][200], X[200])
    blocks = server.count_bytes("shard-00002/00-x.values.npy") / BLOCK
    assert blocks <= 2


def test_processes_share_a_mirror(
    source: Path, tmp_path: Path, serve: Callable[..., WebServer]
) -> None:
    """Processes that read the same rows at the same time fetch each block once together."""
    server = serve(source)
    server.latency = 0.01
    slab = open_slab(server.url, cache_dir=tmp_path / "cache")
    for method, processes in (("fork", 4), ("spawn", 1)):
        with case(method), multiprocessing.get_context(method).Pool(processes) as pool:
            orders = [np.random.default_rng(seed).permutation(ROWS) for seed in range(processes)]
            pool.starmap(check_rows, [(slab, order) for order in orders])
    for path in source.rglob("*.values.npy"):
        key = path.relative_to(source).as_posix()
        assert server.count_bytes(key) == path.stat().st_size - HEADER


def test_a_forked_child_reads_while_its_parent_does(source: Path, tmp_path: Path) -> None:
    """A child of a process with a helper starts its own; both read on."""
    slab = open_slab(source, cache_dir=tmp_path / "cache")
    check_rows(slab, [1, 2, 3])
    child = os.fork()
    if child == 0:
        status = 1
        try:
            check_rows(slab, range(100, ROWS))
            status = 0
        finally:
            os._exit(status)
    check_rows(slab, range(50, 300))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    check_rows(slab, range(ROWS))
    assert len(find_helpers()) == 1


def test_a_killed_helper_is_started_again(source: Path, tmp_path: Path) -> None:
    """Whenever the helper is killed, the next block comes all the same."""
    slab = open_slab(source, cache_dir=tmp_path / "cache")
    for row in range(0, ROWS, 100):
        check_rows(slab, [row])
        for helper in find_helpers():
            helper.kill()
    check_rows(slab, range(ROWS))


def test_a_helper_that_cannot_live_is_an_error(
    source: Path, tmp_path: Path, serve: Callable[..., WebServer]
) -> None:
    """A request that two helpers died of is not given to a third."""
    server, key = serve(source), "shard-00000/00-x.values.npy"
    slab = open_slab(server.url, cache_dir=tmp_path / "cache")
    server.inject("hang", key=key, times=2)

    def kill_helpers() -> None:
        for number in (1, 2):
            wait_until(lambda: server.count(key) >= number)  # noqa: B023
            for helper in find_helpers():
                helper.kill()

    killer = threading.Thread(target=kill_helpers)
    killer.start()
    with pytest.raises(WorkerDied, match=r"died twice.*signal 9"):
        slab.gather([0], ["x"])
    killer.join()
    check_rows(slab, range(ROWS))


# Reads rows until it is killed; says when the first are there.
READER = """
import sys
from fieldslab.reader import Loader, open_slab
slab = open_slab(sys.argv[1], cache_dir=sys.argv[2])
for number, batch in enumerate(Loader(slab, 8)):
    if number == 1:
        print("reads", flush=True)
if len(sys.argv) > 3:
    raise SystemExit
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, None])
def test_a_helper_ends_with_its_parent(source: Path, tmp_path: Path, number: int | None) -> None:
    """However a program ends, by itself too, its helper is gone within moments."""
    command = [sys.executable, "-c", READER, str(source), str(tmp_path / "cache")]
    command += [] if number else ["end"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"reads\n"
        helpers = find_helpers(reader.pid)
        if number:
            assert helpers
            reader.send_signal(number)
        reader.wait()
        _, living = psutil.wait_procs(helpers, timeout=5)
        assert not living
    check_rows(open_slab(source, cache_dir=tmp_path / "cache"), range(ROWS))


def test_a_closed_slab_ends_its_helper(source: Path, tmp_path: Path) -> None:
    """The helper goes with the last slab that needs it, and leaves no zombie."""
    gc.collect()  # slabs of other tests
    slab = open_slab(source, cache_dir=tmp_path / "cache")
    other = open_slab(source, cache_dir=tmp_path / "other")
    check_rows(slab, [0])
    check_rows(other, [0])
    assert len(find_helpers()) == 1
    del slab
    check_rows(other, [200])
    assert len(find_helpers()) == 1
    del other
    wait_until(lambda: not find_helpers())


def test_a_closed_slab_was_not_kept_by_its_loader(
    source: Path, tmp_path: Path, serve: Callable[..., WebServer]
) -> None:
    """What a Loader asked for ahead keeps the slab no longer than the answer takes to come."""
    server = serve(source)
    slab = open_slab(server.url, cache_dir=tmp_path / "cache")
    server.inject("slow", key="shard-00002/00-x.values.npy", rate=8e6)  # the last answer
    with Loader(slab, 8, Sequential(), fields=["x"]) as loader:
        next(iter(loader))
        mirror = slab.storage.slabs.files[0].mirror
        assert mirror is not None
        column = mirror.blocks.find_column("x", "values")
        while not mirror.has_column(column):
            time.sleep(0.01)
    del slab, loader
    del mirror
    gc.collect()
    wait_until(lambda: not find_helpers())


def test_who_waits_for_a_killed_fetcher_fetches(
    source: Path, tmp_path: Path, serve: Callable[..., WebServer]
) -> None:
    """A block that another process was fetching when it was killed is fetched by who waits."""
    server, key = serve(source), "shard-00000/00-x.values.npy"
    server.inject("hang", key=key)
    command = [sys.executable, "-c", READER, server.url, str(tmp_path / "cache")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        wait_until(lambda: server.hits["hang"] > 0)
        slab = open_slab(server.url, cache_dir=tmp_path / "cache")
        reader = threading.Thread(target=slab.gather, args=([*range(150)], ["x"]))
        reader.start()
        wait_until(lambda: len(find_helpers()) > 1)
        helpers = find_helpers(other.pid)
        other.kill()
        reader.join()
    assert not psutil.wait_procs(helpers, timeout=5)[1]
    check_rows(slab, range(ROWS))


def test_damage_on_the_way_is_fetched_again(
    source: Path, tmp_path: Path, serve: Callable[..., WebServer]
) -> None:
    """Flipped bits, cut and short answers are never handed out."""
    server = serve(source)
    options = {"retry_config": {"init_backoff": timedelta(milliseconds=5)}}
    for kind in ("flip", "short", "cut", "drop", "redirect"):
        with case(kind):
            server.inject(kind, key="manifest.json", times=2)
            slab = open_slab(server.url, cache_dir=tmp_path / kind, storage_options=options)
            for name in ("digests.npy", "00-x.values.npy", "01-blob.offsets.npy"):
                server.inject(kind, key=f"shard-00002/{name}")
            check_rows(slab, range(ROWS))
    slab = open_slab(server.url, cache_dir=tmp_path / "busy", storage_options=options)
    server.inject("status", code=503, times=9, retry_after=0)
    check_rows(slab, range(ROWS))


def test_damage_in_the_store_names_rows(
    source: Path, tmp_path: Path, serve: Callable[..., WebServer]
) -> None:
    """A block that stays wrong is an error with its rows; all others can be read."""
    flip(array_path(source, "x", shard=2), 300 * 1000)
    server = serve(source)
    slab = open_slab(server.url, cache_dir=tmp_path / "cache")
    with pytest.raises(DamagedArray, match="however often it is fetched") as caught:
        slab.gather(range(ROWS))
    assert caught.value.context["row"] == "180..187"
    assert caught.value.context["file"] == f"{server.url}/shard-00002/00-x.values.npy"
    check_rows(slab, [*range(180), *range(189, ROWS)])


def test_a_poisoned_cache_is_fetched_again(source: Path, tmp_path: Path) -> None:
    """Bytes that changed in the cache are found by each process that has not seen them."""
    slab = open_slab(source, cache_dir=tmp_path / "cache")
    check_rows(slab, range(ROWS))
    mirror = tmp_path / "cache" / slab.manifest.id
    for name in ("00-x.values.npy", "01-blob.offsets.npy"):
        flip(mirror / "shard-00000" / name)
    slab = open_slab(source, cache_dir=tmp_path / "cache")
    check_rows(slab, range(ROWS))
    digests = mirror / "shard-00000" / "digests.npy"
    digests.write_bytes(digests.read_bytes()[:5000])
    check_rows(open_slab(source, cache_dir=tmp_path / "cache"), range(ROWS))
    assert digests.read_bytes() == (source / "shard-00000" / "digests.npy").read_bytes()


def test_a_replaced_slab_is_noticed(
    source: Path, tmp_path: Path, serve: Callable[..., WebServer]
) -> None:
    """Where another slab was copied to the URL, blocks that are absent are a SlabChanged."""
    other = write_slab(tmp_path / "y.slab", {"x": X[::-1], "blob": BLOBS, "y": np.arange(ROWS)})
    server = serve(source)
    slab = open_slab(server.url, cache_dir=tmp_path / "cache")
    check_rows(slab, [0, 399])
    server.folder = other
    with pytest.raises(SlabChanged, match="another slab is there since"):
        check_rows(slab, range(ROWS))
    check_rows(slab, [0, 399])
    assert np.array_equal(open_slab(server.url, cache_dir=tmp_path / "cache")["x"][0], X[-1])


def test_errors_of_the_store_have_names(
    source: Path, tmp_path: Path, serve: Callable[..., WebServer]
) -> None:
    """No slab, no right, no answer: each has its error, with the URL."""
    server = serve(source)
    options = {"retry_config": {"max_retries": 1, "backoff": {"init_backoff": 0.01}}}
    with pytest.raises(SlabNotFound, match=r"there is no manifest\.json"):
        open_slab(f"{server.url}/nowhere", cache_dir=tmp_path / "cache")
    slab = open_slab(server.url, cache_dir=tmp_path / "cache", storage_options=options)
    server.inject("expired", key="shard-00000/00-x.values.npy", times=1)
    with pytest.raises(AccessDenied, match=r"shard-00000/00-x\.values\.npy"):
        check_rows(slab, [0])
    server.inject("status", key="shard-00000/00-x.values.npy", code=503, times=9, retry_after=0)
    with pytest.raises(RemoteUnreadable) as caught:
        check_rows(slab, [0])
    assert caught.value.context["status"] == 503
    server.heal()
    check_rows(slab, range(ROWS))


def test_buckets_are_read_and_credentials_stay(
    source: Path, tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slab in S3 reads as any other; its secret is in no repr, message, file or pickle."""
    from fieldslab.schemas.stores.store import open_store

    store = open_store(f"{bucket.url}/train.slab", bucket.options)
    for path in source.rglob("*.*"):
        store.write(path.relative_to(source).as_posix(), path)
    del store
    url, cache = f"{bucket.url}/train.slab", tmp_path / "cache"
    slab = open_slab(url, cache_dir=cache, storage_options=bucket.options)
    check_rows(slab, range(0, ROWS, 7))
    assert SECRET not in repr(slab)
    assert not any(SECRET.encode() in path.read_bytes() for path in cache.rglob("*.json"))
    assert not any(SECRET in " ".join(helper.cmdline()) for helper in find_helpers())
    with pytest.raises(UsageError, match="not pickled with credentials") as caught:
        pickle.dumps(slab)
    assert SECRET not in str(caught.value)
    assert "access_key_id, secret_access_key" in str(caught.value)
    for place, nested, found in (
        (url, {"config": {"aws_secret_access_key": SECRET}}, "config.aws_secret_access_key"),
        (url, {"client_options": {"default_headers": {"Authorization": SECRET}}}, "Authorization"),
        (f"https://user:{SECRET}@host/x", {}, "the URL"),
        (f"https://host/x?signature={SECRET}", {}, "the URL"),
    ):
        with case(found), pytest.raises(UsageError, match=found) as caught:
            pickle.dumps(Origin(place, nested, str(cache), None).to_plain())
        assert SECRET not in str(caught.value)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", bucket.options["access_key_id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", bucket.options["secret_access_key"])
    public = {key: bucket.options[key] for key in ("endpoint", "region")}
    slab = open_slab(url, cache_dir=cache, storage_options=public)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(check_rows, (slab, range(ROWS)))


def test_options_that_contradict_are_refused(source: Path, tmp_path: Path) -> None:
    """What is for caches does nothing for a slab that has none."""
    cases: list[dict[str, Any]] = [{"cache_limit": "1G"}, {"storage_options": {}}]
    for options in cases:
        with case(options), pytest.raises(UsageError, match="read through a cache"):
            open_slab(source, **options)
    cache = tmp_path / "cache"
    for options, match in (
        ({"cache_dir": 5}, "cache_dir must be a path"),
        ({"cache_dir": cache, "storage_options": "a"}, "storage_options must be a dict"),
        ({"cache_dir": source / "cache"}, "cache_dir cannot lie within a slab"),
    ):
        with case(options), pytest.raises(UsageError, match=match):
            open_slab(source, **options)
    assert not (source / "cache").exists()
    with pytest.raises(UsageError, match="cache_limit: must be a size"):
        open_slab(source, cache_dir=tmp_path / "cache", cache_limit="much")
    with pytest.raises(UsageError, match="cannot be sent to another process"):
        open_slab("http://[::1]:1/x", cache_dir=tmp_path / "cache", storage_options={"a": object()})
