"""Cache directories that are full, or that others may change; manifests that lie."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
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


def test_a_full_disk_is_an_error(source: Path, tmp_path: Path) -> None:
    """Whatever cannot be written is NoSpace; what is there can be read, and nobody gets SIGBUS."""
    disk = tmp_path / "disk"
    disk.mkdir()
    program = [sys.executable, "-c", FULL, str(source), str(disk)]
    mount = ["unshare", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh", str(disk)]
    if subprocess.run([*mount, "true"], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    done = subprocess.run([*mount, *program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the cache directory is full") == 3


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
