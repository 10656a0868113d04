"""`fieldslab cache`: what a cache directory holds, and what is done with it."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.naming import case
from tests.slabs import flip, write_slab

from fieldslab.reader import open_slab
from fieldslab.schemas.errors import NotASlab
from fieldslab.schemas.mirror.cache import CacheDirectory

VALUES = np.random.default_rng(0).integers(0, 256, (200, 8000), np.uint8)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache of two slabs: of one half is there, of the other all."""
    for name, rows in (("half", range(100)), ("all", range(200))):
        source = write_slab(tmp_path / f"{name}.slab", {name: VALUES}, [100, 100])
        open_slab(source, cache_dir=tmp_path / "cache").gather(rows)
    return tmp_path / "cache"


def test_list_shows_slabs_and_how_much_is_there(cli: Any, cache: Path, tmp_path: Path) -> None:
    """Each slab has its place, its bytes, and whether it is whole; the last one used first."""
    done = cli("cache", "list", "--cache-dir", cache)
    assert done.code == 0
    lines = done.out.splitlines()
    assert str(tmp_path / "all.slab") in lines[0]
    assert "whole" in lines[1]
    assert str(tmp_path / "half.slab") in lines[2]
    assert "whole" not in lines[3]
    whole, half = json.loads(cli("cache", "list", "--cache-dir", cache, "--json").out)
    assert (whole["whole"], half["whole"]) == (True, False)
    assert 0.4 < half["present_bytes"] / half["total_bytes"] < 0.6
    assert len(whole["id"]) == 64
    CacheDirectory(tmp_path / "empty")
    empty = cli("cache", "list", "--cache-dir", tmp_path / "empty")
    assert (empty.code, empty.out) == (0, "")
    assert f"no slab is in {tmp_path / 'empty'}" in empty.err


def test_verify_forgets_what_is_damaged(cli: Any, cache: Path, tmp_path: Path) -> None:
    """A flipped bit is found, and fetched again when it is needed."""
    assert cli("cache", "verify", "--cache-dir", cache).code == 0
    whole = json.loads(cli("cache", "list", "--cache-dir", cache, "--json").out)[0]
    flip(cache / whole["id"] / "shard-00001" / "00-all.values.npy", 70_000)
    done = cli("cache", "verify", "--cache-dir", cache, "--json")
    assert done.code == 1
    assert {each["id"]: each["damaged"] for each in json.loads(done.out)}[whole["id"]] == 1
    assert cli("cache", "verify", "--cache-dir", cache).code == 0
    slab = open_slab(tmp_path / "all.slab", cache_dir=cache)
    assert np.array_equal(slab.gather(range(200))["all"], VALUES)


def test_evict_frees_what_is_not_pinned(cli: Any, cache: Path, tmp_path: Path) -> None:
    """A slab by its place or id, or so many bytes; nothing of one that is pinned."""

    def list_present() -> dict[str, int]:
        infos = json.loads(cli("cache", "list", "--cache-dir", cache, "--json").out)
        return {Path(info["place"]).stem: info["present_bytes"] for info in infos}

    before = list_present()
    time.sleep(0.2)  # what was needed this moment is not evicted
    assert cli("cache", "pin", tmp_path / "all.slab", "--cache-dir", cache).code == 0
    assert cli("cache", "evict", "--size", "1G", "--cache-dir", cache).code == 0
    assert list_present()["all"] == before["all"]
    assert list_present()["half"] < before["half"] / 4
    assert cli("cache", "unpin", tmp_path / "all.slab", "--cache-dir", cache).code == 0
    whole = json.loads(cli("cache", "list", "--cache-dir", cache, "--json").out)[0]["id"]
    done = cli("cache", "evict", whole[:6], "--cache-dir", cache)
    assert "MB freed" in done.out
    assert list_present()["all"] < before["all"] / 4
    slab = open_slab(tmp_path / "all.slab", cache_dir=cache)
    assert np.array_equal(slab.gather(range(200))["all"], VALUES)


def test_what_makes_no_sense_is_refused(cli: Any, cache: Path, tmp_path: Path) -> None:
    """Other directories, names of nothing, and nothing to evict are errors."""
    for arguments, message in (
        (["list", "--cache-dir", tmp_path], "is not a cache directory"),
        (["list", "nothing", "--cache-dir", cache], "no slab in the cache is called so"),
        (["evict", "--cache-dir", cache], "needs slabs"),
        (["list", "--size", "1G", "--cache-dir", cache], "--size is for `evict`"),
        (["burn", "--cache-dir", cache], "burn"),
    ):
        done = cli("cache", *arguments)
        assert done.code == 2
        assert message in done.err


def test_parts_of_a_cache_are_no_slabs(cli: Any, cache: Path, tmp_path: Path) -> None:
    """A mirror that is not whole, and what is noted of one, say what to open instead."""
    infos = json.loads(cli("cache", "list", "--cache-dir", cache, "--json").out)
    half = Path(next(info["path"] for info in infos if not info["whole"]))
    for path, words in ((half.with_suffix(".mirror"), "not the slab"), (half, "part of a slab")):
        for command in ("info", "verify"):
            done = cli(command, path)
            with case(path.name, command):
                assert done.code == 3
                assert words in done.out + done.err
                assert f"/half.slab with --cache-dir {cache}: " in done.out + done.err
        with pytest.raises(NotASlab, match=words):
            open_slab(path)
