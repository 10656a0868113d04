"""`info`, `head` and `verify` of slabs in buckets and on web servers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.naming import case
from tests.servers.s3 import SECRET, Bucket
from tests.servers.web import WebServer
from tests.slabs import Column, array_path, categorical, flip, ragged, write_slab

from fieldslab.packer import verify
from fieldslab.schemas.access import find_shard_folder
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.errors import (
    AccessDenied,
    IncompleteSlab,
    NotASlab,
    RemoteUnreadable,
    SlabChanged,
    SlabNotFound,
    UsageError,
)
from fieldslab.schemas.stores.slab_objects import open_slab_anywhere
from fieldslab.schemas.stores.store import open_store

ROWS = 3000
OPTIONS = {"retry_config": {"max_retries": 2, "backoff": {"init_backoff": 0.01}}}


@pytest.fixture
def slab(tmp_path: Path) -> Path:
    """A slab with arrays of many blocks, in two shards, and tables."""
    number = np.arange(ROWS, dtype=np.int64)
    columns = {
        "number": Column(number, "fixed", "int64", valid=number != 3),
        "vector": np.random.default_rng(0).standard_normal((ROWS, 100)),
        "tokens": ragged([range(row % 7) for row in range(ROWS)], "int32"),
        "street": categorical(number % 2, ["Elm", "Oak"], table=True),
    }
    return write_slab(tmp_path / "data" / "a.slab", columns, (1000, 2000))


@pytest.fixture
def server(slab: Path, serve: Callable[..., WebServer]) -> WebServer:
    """A web server with the slab at `a.slab`."""
    return serve(slab.parent)


@pytest.fixture
def in_bucket(slab: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of the slab in a bucket; the environment has what it takes to read it."""
    for name, value in bucket.options.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    store = open_store(f"{bucket.url}/a.slab")
    for file in slab.rglob("*.*"):
        store.write(file.relative_to(slab).as_posix(), file)
    return f"{bucket.url}/a.slab"


def test_commands_show_what_they_show_of_directories(
    cli: Any, slab: Path, server: WebServer, in_bucket: str
) -> None:
    """`info`, `head` and `verify` print the same of a URL as of a directory, but for the place."""
    for url in (f"{server.url}/a.slab", in_bucket):
        for command in (["info"], ["head", "--rows", "0,3,1500,-1"], ["head", "--json"]):
            with case(url, command):
                there, here = cli(*command, url), cli(*command, slab)
                assert there.code == here.code == 0, there.err
                assert there.out.replace(url, "") == here.out.replace(str(slab), "")
        done = cli("verify", url)
        assert done.code == 0, done
        assert done.out.startswith(f"OK: {url}: 3,000 rows")
    missing = cli("info", "s3://no-such-bucket/a.slab")
    assert missing.code == 3
    assert "(NoSuchBucket)" in missing.err
    assert "AWS_ENDPOINT_URL" in missing.err


def test_options_of_stores_on_the_command_line(
    cli: Any, slab: Path, bucket: Bucket, tmp_path: Path
) -> None:
    """`--storage-option` does what the environment does; no message repeats a value."""
    words = [f"--storage-option={name}={value}" for name, value in bucket.options.items()]
    words += ["--storage-option", "retry_config.max_retries=2"]
    words += ["--storage-option", "client_options.timeout=5s"]
    url = f"{bucket.url}/a.slab"
    for command in (
        ["copy", slab, url],
        ["info", url],
        ["head", url],
        ["verify", url],
        ["copy", url, tmp_path / "back.slab"],
        ["copy", url, f"{bucket.url}/b.slab"],
        ["advise", url, "--batch-size", "8", "--cache-dir", tmp_path / "cache"],
    ):
        with case(command):
            done = cli(*command, *words)
            assert done.code == 0, done.err
            assert SECRET not in done.out + done.err
    assert verify(tmp_path / "back.slab").ok
    assert any((tmp_path / "cache").glob("*.mirror"))
    for wrong, message in (
        ([f"--storage-option={SECRET}"], "--storage-option: not an option of a store"),
        ([f"--storage-option=={SECRET}"], "--storage-option: not an option of a store"),
        ([f"--storage-option=such={SECRET}"], "obstore refuses the URL or one of --storage-option"),
    ):
        done = cli("info", url, *wrong)
        assert done.code == UsageError.exit_code
        assert message in done.err
        assert SECRET not in done.err
    assert "--storage-option: for URLs only" in cli("info", slab, *words).err
    assert "for URLs only" in cli("copy", slab, tmp_path / "c.slab", *words).err
    assert "the URL names no bucket" in cli("copy", slab, "s3://").err


def test_a_refusal_is_explained_in_the_words_of_the_caller(cli: Any, server: WebServer) -> None:
    """Python is told of `storage_options`, the command line of `--storage-option`."""
    url = f"{server.url}/a.slab"
    for method in ("HEAD", "GET"):
        server.inject("expired", method=method, times=1000)
    done = cli("info", url)
    assert "For public buckets: --storage-option skip_signature=true." in done.err
    with pytest.raises(AccessDenied, match=r'storage_options=\{"skip_signature": "true"\}'):
        open_slab_anywhere(url)
    done = cli("advise", url)
    assert "For public buckets: --storage-option skip_signature=true." in done.err


def test_head_reads_little(cli: Any, slab: Path, server: WebServer) -> None:
    """To show a row, its blocks are read, and not the arrays."""
    size = sum(file.stat().st_size for file in slab.rglob("*.npy"))
    assert cli("head", "-n", 1, f"{server.url}/a.slab").code == 0
    assert server.count_bytes() < size / 4
    before = server.count_bytes()
    assert cli("info", f"{server.url}/a.slab").code == 0
    assert server.count_bytes() == before + (slab / "manifest.json").stat().st_size


def test_verify_finds_damage_in_a_store(slab: Path, server: WebServer) -> None:
    """Flipped, missing, cut and strange objects are found as in a directory, with their rows."""
    flip(array_path(slab, "vector", shard=1), HEADER + 700_000)
    array_path(slab, "tokens", "offsets").unlink()
    here, there = verify(slab), verify(f"{server.url}/a.slab")
    assert not there.ok
    actual = [(problem.field, problem.rows, problem.offset) for problem in there.problems]
    assert actual == [(problem.field, problem.rows, problem.offset) for problem in here.problems]
    assert f"{server.url}/a.slab/shard-00001" in str(there.problems[-1])


def test_verify_lists_what_does_not_belong_in_a_bucket(in_bucket: str) -> None:
    """Where a store can be listed, objects that do not belong to the slab are found."""
    store = open_store(in_bucket)
    for key in ("stray", "shard-00000/stray", "shard-00009/stray"):
        store.write(key, b"")
    problems = {str(problem.file) for problem in verify(in_bucket).problems}
    strays = ("stray", "shard-00000/stray", "shard-00009")
    assert problems == {f"{in_bucket}/{name}" for name in strays}


def test_bytes_damaged_on_their_way_are_read_again(server: WebServer) -> None:
    """A flip in flight is no damage; one that comes back each time is."""
    for times, ok in ((2, True), (100, False)):
        server.inject("flip", key="a.slab/shard-00001/01-vector.values.npy", times=times, after=1)
        with case(times):
            assert verify(f"{server.url}/a.slab").ok is ok
        server.heal()


def test_a_server_that_fails_is_no_damage(server: WebServer) -> None:
    """Where a server fails for good, verify ends with an error that names the field."""
    for key in ("shard-00001/01-vector.values.npy", "shard-00000/digests.npy", "manifest.json"):
        for after in (0, 1) if key != "manifest.json" else (0,):
            server.heal()
            server.inject("status", code=503, times=1000, key=f"a.slab/{key}", after=after)
            with case(key), pytest.raises(RemoteUnreadable, match="the server fails") as caught:
                verify(f"{server.url}/a.slab", storage_options=OPTIONS)
            assert caught.value.context["file"] == f"{server.url}/a.slab/{key}"
            if "vector" in key:
                assert caught.value.context["field"] == "vector"


def test_what_is_no_slab_is_named(cli: Any, server: WebServer, in_bucket: str, slab: Path) -> None:
    """A URL without a manifest, half a slab, and options for a directory are named errors."""
    with pytest.raises(SlabNotFound, match=r"nothing\.slab: there is no slab"):
        open_slab_anywhere(f"{server.url}/nothing.slab")
    open_store(in_bucket).delete("manifest.json")
    with pytest.raises(IncompleteSlab, match="not packed or copied whole"):
        open_slab_anywhere(in_bucket)
    with pytest.raises(UsageError, match="storage_options"):
        open_slab_anywhere(slab, storage_options={"region": "x"})
    done = cli("info", f"{server.url}/nothing.slab")
    assert (done.code, NotASlab.exit_code) == (3, 3)


def test_another_slab_in_its_place_is_told(slab: Path, server: WebServer, tmp_path: Path) -> None:
    """Objects of another slab are SlabChanged, and not damage."""
    files = open_slab_anywhere(f"{server.url}/a.slab")
    other = write_slab(tmp_path / "other", {"x": np.arange(5)})
    for key in ("manifest.json", "shard-00000/digests.npy"):
        server.replaced[f"a.slab/{key}"] = (other / key).read_bytes()
    with pytest.raises(SlabChanged):
        find_shard_folder(files, 0, 0).load_digests()
