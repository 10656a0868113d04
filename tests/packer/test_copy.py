"""Copies of slabs, between directories, buckets and web servers."""

import errno
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.naming import case
from tests.packer.commandline import ENVIRONMENT, on_terminal, start
from tests.servers.s3 import Bucket
from tests.servers.web import WebServer
from tests.slabs import Column, array_path, categorical, flip, ragged, write_slab

from fieldslab.packer import copy_slab, verify
from fieldslab.packer.outputs.ownership import MARKER
from fieldslab.packer.write import space
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.errors import (
    DamagedArray,
    FieldslabError,
    NoSpace,
    OutputDenied,
    OutputError,
    OutputExists,
    RemoteUnreadable,
    SlabNotFound,
    UsageError,
)
from fieldslab.schemas.folder import get_partial_path, load_manifest
from fieldslab.schemas.manifest import MANIFEST
from fieldslab.schemas.stores.store import open_store

ROWS = 3000
OPTIONS = {"retry_config": {"max_retries": 2, "backoff": {"init_backoff": 0.01}}}
VECTOR = "shard-00001/01-vector.values.npy"


@pytest.fixture
def slab(tmp_path: Path) -> Path:
    """A slab of two shards and tables; one array takes more than one piece."""
    number = np.arange(ROWS, dtype=np.int64)
    columns = {
        "number": Column(number, "fixed", "int64", valid=number != 3),
        "vector": np.random.default_rng(0).standard_normal((ROWS, 600)),
        "tokens": ragged([range(row % 7) for row in range(ROWS)], "int32"),
        "street": categorical(number % 2, ["Elm", "Oak"], table=True),
    }
    return write_slab(tmp_path / "data" / "a.slab", columns, (1000, 2000))


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another slab."""
    return write_slab(tmp_path / "data" / "other.slab", {"x": np.arange(5)})


@pytest.fixture
def server(slab: Path, serve: Callable[..., WebServer]) -> WebServer:
    """A web server with the slab at `a.slab`."""
    return serve(slab.parent)


@pytest.fixture
def url(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> str:
    """A URL in a bucket; the environment has what it takes."""
    for name, value in bucket.options.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    return f"{bucket.url}/folder/b.slab"


def read_files(place: str | Path) -> Mapping[str, bytes]:
    """Everything at a place, by key."""
    store = open_store(place)
    return {info.key: bytes(store.read(info.key)) for info in store.list_keys()}


def test_a_copy_has_the_same_bytes(
    slab: Path, server: WebServer, url: str, tmp_path: Path, bucket: Bucket
) -> None:
    """Between any two places, a copy has the bytes of the slab, and nothing else."""
    expected = read_files(slab)
    size = sum(map(len, expected.values()))
    sources = [str(slab), f"{server.url}/a.slab", url]
    for number, (source, target) in enumerate(permutations(range(3), 2)):
        if target == 1:
            continue  # a web server is only read
        place = str(tmp_path / f"{number}.slab") if target == 0 else f"{url}-{number}"
        if source == 2:
            copy_slab(slab, url)
        with case(sources[source], place):
            copied = copy_slab(sources[source], place)
            assert read_files(place) == expected
            assert copied.id == load_manifest(slab).id
            assert (copied.bytes, copied.copied_bytes) == (size, size - len(expected[MANIFEST]))
            assert copy_slab(sources[source], place).copied_bytes == 0
    local = tmp_path / "local.slab"
    copy_slab(slab, local)
    assert read_files(local) == expected
    assert bucket.list_uploads() == []
    assert not get_partial_path(local).exists()


def test_damage_is_never_copied(slab: Path, server: WebServer, url: str, tmp_path: Path) -> None:
    """A damaged source is an error with its rows, and gives no slab; a flip in flight is none."""
    server.inject("flip", key=f"a.slab/{VECTOR}", times=2, after=1)
    copy_slab(f"{server.url}/a.slab", tmp_path / "flipped.slab")
    assert verify(tmp_path / "flipped.slab").ok
    flip(array_path(slab, "vector", shard=1), HEADER + 700_000)
    for source in (str(slab), f"{server.url}/a.slab"):
        for place in (tmp_path / "copy.slab", url):
            with case(source, place), pytest.raises(DamagedArray, match="vector") as caught:
                copy_slab(source, place)
            assert "rows" in str(caught.value) or "row" in caught.value.context
    assert not (tmp_path / "copy.slab").exists()
    assert MANIFEST not in read_files(url)


def test_an_interrupted_copy_goes_on(
    slab: Path, server: WebServer, url: str, tmp_path: Path
) -> None:
    """What was copied before a failure is not copied again: whole shards, or whole objects."""
    source = f"{server.url}/a.slab"
    for place in (str(tmp_path / "copy.slab"), url):
        server.inject("status", key=f"a.slab/{VECTOR}", code=503, times=1000)
        with case(place):
            with pytest.raises(RemoteUnreadable, match="the server fails"):
                copy_slab(source, place, source_options=OPTIONS)
            server.heal()
            server.requests.clear()
            copied = copy_slab(source, place)
            assert 0 < copied.copied_bytes < copied.bytes
            assert server.count_bytes("a.slab/shard-00000/01-vector.values.npy") == 0
            assert read_files(place) == read_files(slab)


def test_copies_of_the_same_slab_may_race(slab: Path, url: str, tmp_path: Path) -> None:
    """Two programs that copy one slab to one URL both succeed; to a directory, one may wait."""
    programs = [start("copy", slab, url, "--json", env=ENVIRONMENT | os.environ) for _ in range(2)]
    for program in programs:
        assert program.communicate()[1] == ""
        assert program.returncode == 0
    assert read_files(url) == read_files(slab)


def test_another_slab_is_not_overwritten(slab: Path, other: Path, url: str, tmp_path: Path) -> None:
    """A slab at the destination stays, unless `force` replaces it: in directories only."""
    for place in (str(tmp_path / "copy.slab"), url):
        copy_slab(other, place)
        with case(place), pytest.raises(OutputExists):
            copy_slab(slab, place)
        assert read_files(place) == read_files(other)
    copy_slab(slab, tmp_path / "copy.slab", force=True)
    assert read_files(tmp_path / "copy.slab") == read_files(slab)
    with pytest.raises(UsageError, match="parts of both"):
        copy_slab(slab, url, force=True)


def test_other_things_are_left_alone(
    slab: Path, other: Path, url: str, server: WebServer, tmp_path: Path
) -> None:
    """Objects that are no slab, a copy of another slab, and web servers are not written to."""
    store = open_store(url)
    store.write("notes.txt", b"mine")
    with pytest.raises(OutputExists, match="other objects"):
        copy_slab(slab, url)
    store.delete("notes.txt")
    store.write(MARKER, b'{"copying": "another"}')
    with pytest.raises(OutputExists, match="another slab is being copied"):
        copy_slab(slab, url)
    store.delete(MARKER)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_bytes(b"mine")
    for force in (False, True):
        with pytest.raises(OutputExists):
            copy_slab(slab, tmp_path / "folder", force=force)
    with pytest.raises(OutputDenied, match="only be read"):
        copy_slab(slab, f"{server.url}/new.slab")
    with pytest.raises(SlabNotFound):
        copy_slab(tmp_path / "nothing", url)
    assert read_files(url) == {}


def test_a_copy_that_lost_a_file_is_not_taken_for_whole(
    slab: Path, url: str, tmp_path: Path
) -> None:
    """In a store, what is missing is copied again; in a directory, the damage is left alone."""
    copy_slab(slab, url)
    open_store(url).delete(VECTOR)
    assert copy_slab(slab, url).copied_bytes == array_path(slab, "vector", shard=1).stat().st_size
    assert read_files(url) == read_files(slab)
    copy = tmp_path / "copy.slab"
    copy_slab(slab, copy)
    (copy / VECTOR).unlink()
    with pytest.raises(OutputExists):
        copy_slab(slab, copy)


def test_room_is_looked_for_first(
    slab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slab that is larger than the free space is NoSpace before anything is copied."""
    nearly_full = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: nearly_full)
    assert space.get_free_bytes(tmp_path) == 1000
    with pytest.raises(NoSpace, match="nothing was copied"):
        copy_slab(slab, tmp_path / "copy.slab")
    assert not get_partial_path(tmp_path / "copy.slab").exists()


def test_a_failing_question_for_room_is_named(
    slab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system does not say what is free, as on a failing disk, it is an OutputError."""

    def fail(path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(shutil, "disk_usage", fail)
    with pytest.raises(OutputError, match="Input/output error"):
        copy_slab(slab, tmp_path / "copy.slab")


def test_storms_while_copying(
    slab: Path, bucket: Bucket, url: str, serve: Callable[..., WebServer]
) -> None:
    """A copy to a bucket survives a storm; one that does not end is an error of output."""
    proxy = serve(upstream=bucket.endpoint)
    options: dict[str, Any] = {**bucket.options, **OPTIONS, "endpoint": proxy.url}
    for method in ("PUT", "POST", "GET", "HEAD"):
        proxy.inject("status", method=method, code=503, times=2)
    copy_slab(slab, url, destination_options=options)
    assert read_files(url) == read_files(slab)
    proxy.heal()
    proxy.inject("status", method="PUT", code=503, times=10_000)
    with pytest.raises(OutputError, match="the server fails"):
        copy_slab(slab, f"{url}-2", destination_options=options)
    assert bucket.list_uploads() == []


def test_uploads_are_verified(
    slab: Path, bucket: Bucket, url: str, serve: Callable[..., WebServer]
) -> None:
    """What is changed or cut on its way is sent again; what always is, is an error."""
    proxy = serve(upstream=bucket.endpoint)
    options: dict[str, Any] = {**bucket.options, **OPTIONS, "endpoint": proxy.url}
    key = url.removeprefix("s3://")
    for kind in ("garble", "clip"):
        for file in (VECTOR, "shard-00000/digests.npy"):
            proxy.inject(kind, key=f"{key}-{kind}/{file}", method="PUT")
        copy_slab(slab, f"{url}-{kind}", destination_options=options)
        assert read_files(f"{url}-{kind}") == read_files(slab)
    proxy.inject("garble", key=f"{key}/{VECTOR}", method="PUT", times=100)
    with pytest.raises(OutputError, match="does not keep the bytes"):
        copy_slab(slab, url, destination_options=options)
    assert MANIFEST not in read_files(url)


def test_the_manifest_may_be_there_though_the_answer_was_lost(
    slab: Path, bucket: Bucket, url: str, serve: Callable[..., WebServer]
) -> None:
    """If the answer to the last request is lost, the copy finds its own manifest, and is done."""
    proxy = serve(upstream=bucket.endpoint)
    options: dict[str, Any] = {**bucket.options, **OPTIONS, "endpoint": proxy.url}
    key = url.removeprefix("s3://")
    proxy.inject("lose", method="PUT", key=f"{key}/{MANIFEST}", times=1)
    copy_slab(slab, url, destination_options=options)
    assert read_files(url) == read_files(slab)


def test_ctrl_c_ends_a_copy_soon_and_cleanly(
    slab: Path, server: WebServer, url: str, bucket: Bucket, tmp_path: Path
) -> None:
    """An interrupted copy leaves no slab and no upload, says how to go on, and does."""
    server.bandwidth = 8e6
    for place in (url, str(tmp_path / "copy.slab")):
        server.requests.clear()
        program = start("copy", f"{server.url}/a.slab", place, env=ENVIRONMENT | os.environ)
        while not server.count(f"a.slab/{VECTOR}"):
            assert program.poll() is None
            time.sleep(0.02)
        program.send_signal(signal.SIGINT)
        _, messages = program.communicate(timeout=60)
        with case(place, messages):
            assert program.returncode == 130
            assert "run the same command again" in messages
            assert MANIFEST not in (read_files(place) if place == url else {})
    assert bucket.list_uploads() == []
    server.bandwidth = None
    for place in (url, str(tmp_path / "copy.slab")):
        copy_slab(slab, place)
        assert read_files(place) == read_files(slab)


def test_the_command_says_what_it_did(
    cli: Any, slab: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fieldslab copy` prints the place and the id, JSON for programs, and a bar on terminals."""
    content = load_manifest(slab).id
    done = cli("copy", slab, url)
    assert done.code == 0, done.err
    assert done.out.startswith(f"{url}: copied 14.")
    assert content in done.out
    done = cli("copy", slab, url, "--json")
    assert (done.json["id"], done.json["copied_bytes"]) == (content, 0)
    assert cli("copy", slab, url).out.startswith(f"{url}: is there already")
    done = cli("copy", slab, tmp_path, "--json")
    assert done.code == OutputExists.exit_code
    assert done.json["error"] == "OutputExists"
    assert "copying" in on_terminal("copy", slab, tmp_path / "terminal.slab")
    assert issubclass(OutputExists, FieldslabError)
