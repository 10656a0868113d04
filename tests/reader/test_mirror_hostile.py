"""Cache directories that are full, or that others may change; manifests that lie."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.forking import run_python
from tests.naming import case
from tests.servers.web import WebServer
from tests.slabs import lie, write_slab

from fieldslab.reader import open_slab
from fieldslab.schemas.errors import (
    DamagedArray,
    DamagedManifest,
    OutputError,
    RemoteUnreadable,
    UsageError,
)
from fieldslab.schemas.folder import load_manifest
from fieldslab.schemas.manifest import SEAL, make_seal

VALUES = np.random.default_rng(0).integers(0, 256, (600, 10_000), np.uint8)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A slab of 6 MB in three shards."""
    return write_slab(tmp_path / "source" / "x.slab", {"x": VALUES}, [200] * 3)


# Reads a slab through a cache whose files may not grow any more: first the helper's, then its own.
LIMITED = """
import resource, sys, psutil
import numpy as np
from fieldslab.reader import open_slab
from fieldslab.schemas.errors import NoSpace
source, cache, other = sys.argv[1:]
local, slab = open_slab(source), open_slab(source, cache_dir=cache)
def check(rows):
    assert np.array_equal(slab.gather(rows)["x"], local.gather(rows)["x"])
def limit(process, size):
    resource.prlimit(process, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
def expect(read):
    try:
        read()
    except NoSpace as error:
        print(error)
check([0, 1])
(helper,) = psutil.Process().children()
limit(helper.pid, 1_000_000)
expect(lambda: slab.gather(range(200)))
expect(lambda: slab.gather([599]))
check([0, 1])
limit(helper.pid, resource.RLIM_INFINITY)
check(range(600))
limit(0, 8192)
expect(lambda: open_slab(source, cache_dir=other))
limit(0, resource.RLIM_INFINITY)
assert len(open_slab(source, cache_dir=other).gather([0])) == 1
"""


def test_what_cannot_be_written_is_an_error(source: Path, tmp_path: Path) -> None:
    """Where files cannot grow, reading is NoSpace; what is there can be read, the rest later.

    `make campaign-remote` does the same on a file system that is full.
    """
    output = run_python("-c", LIMITED, source, tmp_path / "cache", tmp_path / "other")
    assert output.count("`ulimit -f`") == 3


def test_manifests_that_lie_reserve_nothing(
    source: Path, tmp_path: Path, serve: Callable[..., WebServer]
) -> None:
    """A server may claim any size: no room is taken for what was not there to be read."""
    server = serve(tmp_path / "source")
    for rows in (10**7, 2**40, 2**47):
        with case(rows):
            liar = tmp_path / "source" / f"{rows}.slab"
            shutil.copytree(source, liar)
            shard = msgspec.structs.replace(load_manifest(source).shards[0], rows=rows)
            lie(liar, rows=rows, shards=(shard,))
            cache = tmp_path / f"cache-{rows}"
            with pytest.raises((DamagedArray, DamagedManifest, RemoteUnreadable, OutputError)):
                open_slab(f"{server.url}/{liar.name}", cache_dir=cache).gather([0])
            files = [path.stat() for path in cache.rglob("*") if path.is_file()]
            assert sum(info.st_blocks * 512 for info in files) < 2**20


def test_manifests_that_lead_elsewhere_are_refused(
    source: Path, tmp_path: Path, serve: Callable[..., WebServer]
) -> None:
    """Names of a server's manifest are no paths: nothing else is asked for, or written anywhere."""
    server, manifest = serve(source), source / "manifest.json"
    body = manifest.read_bytes().rpartition(SEAL)[0]
    first = open_slab(server.url, cache_dir=tmp_path / "first")  # one helper for all
    for stem in ("00-../../x", "/etc/x", "00-/x", "..", "00-x\0", "00-\\x", "00-\n", "", "00-.."):
        lying = body.replace(b'"stem": "00-x"', b'"stem": ' + json.dumps(stem).encode())
        assert lying != body
        manifest.write_bytes(lying + make_seal(lying))
        with case(stem), pytest.raises(DamagedManifest, match="stem"):
            open_slab(server.url, cache_dir=tmp_path / "cache").gather([0])
    assert {request.key for request in server.requests} == {"manifest.json"}
    assert len(first) == 600
    assert sorted(os.listdir(tmp_path / "cache")) == ["fieldslab-cache.json", "room"]


def test_what_others_could_change_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache of somebody else is refused, and nothing is written through links in a cache."""
    cache, elsewhere = tmp_path / "cache", tmp_path / "elsewhere"
    cache.mkdir()
    owner = os.stat(cache).st_uid or 4241
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if not os.getuid():  # who is root can also give it away
        os.chown(cache, owner, -1)
    with pytest.raises(UsageError, match="belongs to another user"):
        open_slab(source, cache_dir=cache)
    open_slab(source, cache_dir=cache, cache_shared=True)
    monkeypatch.undo()
    os.chown(cache, os.getuid(), -1)
    cache.chmod(0o777)
    with pytest.raises(UsageError, match="anybody may write"):
        open_slab(source, cache_dir=cache)
    cache.chmod(0o700)
    slab = open_slab(source, cache_dir=cache)
    slab.gather(range(600))
    content = slab.manifest.id
    del slab
    for name in (
        content,
        f"{content}/shard-00001",
        f"{content}/shard-00001/00-x.values.npy",
        f"{content}.mirror",
        f"{content}.mirror/marks",
        "fieldslab-cache.json",
        "room",
    ):
        moved = cache / name
        with case(name):
            moved.rename(elsewhere)
            moved.symlink_to(elsewhere)
            arrays = [elsewhere] if elsewhere.is_file() else list(elsewhere.rglob("*.npy"))
            for path in arrays:
                path.write_bytes(b"of somebody else")
            for path in cache.glob("*.mirror/marks"):
                if path.parent != moved and path != moved:
                    path.unlink()  # so that all is fetched, and written, again
            with pytest.raises(OutputError):
                open_slab(source, cache_dir=cache).gather(range(600))
            assert all(path.read_bytes() == b"of somebody else" for path in arrays)
            moved.unlink()
            elsewhere.rename(moved)
    assert np.array_equal(
        open_slab(source, cache_dir=cache).gather([5, 599])["x"], VALUES[[5, 599]]
    )
