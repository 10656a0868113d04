"""The last steps of a pack, and the room it needs: what is said is what is there."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import h5py
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.packer.packing import SHARDS, content, listing, pack_shards

from fieldslab.packer import pack
from fieldslab.packer.cli import run
from fieldslab.packer.outputs import commit
from fieldslab.schemas.errors import NoSpace, OutputError, OutputExists
from fieldslab.schemas.files import sync_directory
from fieldslab.schemas.folder import get_partial_path
from fieldslab.schemas.notices import FieldslabWarning


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_the_name_cannot_be_made_durable(
    number: int, source: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where fsync of the parent fails, the slab is in place: nobody says that it is not."""

    def sync(folder: Path) -> None:
        if folder == out.parent:
            raise OSError(number, os.strerror(number))
        sync_directory(folder)

    with monkeypatch.context() as patch:
        patch.setattr(commit, "sync_directory", sync)
        with pytest.raises(OutputError, match=r"in its place and whole.*no need to pack") as caught:
            pack_shards(source, out)
    assert type(caught.value) is OutputError
    assert content(out) == content(pack_shards(source, out.parent / "again.slab").path)
    assert listing(out.parent) == ["again.slab", "x.slab"]


def cut_off(source: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Leave what a kill leaves between the last rename and the end of cleaning up."""
    with monkeypatch.context() as patch:
        patch.setattr(commit.Staging, "_remove_all", lambda staging: None)
        pack_shards(source, out)
    assert listing(out.parent) == ["x.slab", "x.slab.partial"]
    return content(out)


def test_a_rerun_finishes_cleaning_up(
    source: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command again, without force, removes what was left, and packs nothing anew."""
    before = cut_off(source, out, monkeypatch)
    times = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    packed = pack_shards(source, out)
    assert packed.reused_shards == len(packed.manifest.shards) == SHARDS
    assert content(out) == before
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == times
    assert listing(out.parent) == ["x.slab"]
    with pytest.raises(OutputExists):
        pack_shards(source, out)


def test_another_pack_does_not_replace_a_finished_slab(
    source: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another plan cleans up as well, before it reads any data, and leaves the slab alone."""
    before = cut_off(source, out, monkeypatch)
    with pytest.raises(OutputExists, match="exists already"):
        pack(source, out, limit=5, nulls={"*": "mask"})
    assert content(out) == before
    assert listing(out.parent) == ["x.slab"]


def test_leftovers_beside_another_slab_are_not_completion(
    source: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partial of one plan beside a slab of another is refused, and kept."""
    cut_off(source, out, monkeypatch)
    shutil.rmtree(out)
    pack(pa.table({"x": [1]}), out.parent / "other.slab")
    (out.parent / "other.slab").rename(out)
    with pytest.raises(OutputExists, match="exists already"):
        pack_shards(source, out)
    assert get_partial_path(out).is_dir()


def test_an_empty_directory_is_used(source: Path, out: Path) -> None:
    """An output that is an empty directory is as good as none; what is in one stays."""
    out.mkdir(parents=True)
    pack_shards(source, out)
    assert listing(out.parent) == ["x.slab"]
    assert content(out) == content(pack_shards(source, out.parent / "y.slab").path)
    other = out.parent / "z.slab"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    with pytest.raises(OutputExists):
        pack_shards(source, other)
    assert listing(other) == ["mine.txt"]


@pytest.mark.parametrize("finished", [0, 2])
def test_finished_shards_are_promised_where_there_are_some(
    finished: int, source: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full device is told with what is kept, and with nothing where nothing is."""
    real, renamed = os.pwrite, list[int]()

    def fill(*args: Any) -> int:
        shards = get_partial_path(out) / "slab"
        if len([name for name in listing(shards) if "staging" not in name]) == finished:
            renamed.append(1)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fill)
        with pytest.raises(NoSpace) as caught:
            pack_shards(source, out)
    assert renamed
    assert get_partial_path(out).exists() == bool(finished)
    hint = caught.value.hint or ""
    assert ("It goes on from 2 finished shards in x.slab.partial." in hint) == bool(finished)
    assert pack_shards(source, out).reused_shards == finished


def test_too_little_room_is_told_before_anything_is_written(tmp_path: Path) -> None:
    """Values that are known to the byte, and more than the disk can take, are an error at once."""
    free = shutil.disk_usage(tmp_path).free
    with h5py.File(tmp_path / "sparse.h5", "w") as file:
        shape = (2 * free // 2**23 + 1, 2**20)
        file.create_dataset("x", shape, "f8", chunks=(1, 2**20))
    with pytest.raises(NoSpace, match=r"nothing was written.*free") as caught:
        pack(tmp_path / "sparse.h5", tmp_path / "deep" / "x.slab")
    assert caught.value.errno == errno.ENOSPC
    assert not (tmp_path / "deep" / "x.slab.partial").exists()


def test_what_may_not_fit_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An estimate by metadata, above what is free, warns the user and lets him try."""
    pq.write_table(pa.table({"t": [f"{i}" * 50 for i in range(1000)]}), tmp_path / "t.parquet")
    real = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: real._replace(free=20_000))
    with pytest.warns(FieldslabWarning, match="the device may become full"):
        pack(tmp_path / "t.parquet", tmp_path / "x.slab")
    run(["pack", str(tmp_path / "t.parquet"), "-o", str(tmp_path / "y.slab")])
    assert "warning: about" in capsys.readouterr().err
