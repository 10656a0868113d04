"""Slabs that are replaced while they are open: each stays one slab, or says that it is gone."""

import os
import pickle
import shutil
import threading
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.slabs import array_path, write_slab

from fieldslab.packer import pack, verify
from fieldslab.reader import Slab, open_slab
from fieldslab.schemas.errors import DamagedArray, SlabReplaced
from fieldslab.schemas.folder import REPLACED, get_partial_path, open_slab_files
from fieldslab.schemas.manifest import MANIFEST
from fieldslab.schemas.notices import FieldslabWarning

ROWS = 40
NAMES = ["x", "y", "t"]


def table(generation: int) -> pa.Table:
    """Rows that all tell of which generation they are."""
    numbers = np.full(ROWS, generation)
    return pa.table({"x": numbers, "y": numbers * 2.0, "t": [str(generation)] * ROWS})


def read(slab: Slab, names: list[str] = NAMES) -> set[int]:
    """The generations of all rows, by each of some fields."""
    batch = slab.gather(range(len(slab)), names)
    halves = {"y": 2.0}
    return {int(float(value) / halves.get(name, 1)) for name in names for value in batch[name]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A slab of generation 1, in four shards."""
    pack(table(1), tmp_path / "a.slab", shard_size=200)
    return tmp_path / "a.slab"


def replace_by_swap(path: Path) -> None:
    """What `pack --force` does where file systems have no locks: swap, then remove."""
    fresh = path.with_name("fresh")
    pack(table(2), fresh)
    path.rename(path.with_name("gone"))
    fresh.rename(path)
    shutil.rmtree(path.with_name("gone"))


def replace_within(path: Path) -> None:
    """What `rsync` does: new files take the old ones' places in the same directories."""
    fresh = path.with_name("fresh")
    pack(table(2), fresh, shard_size=200)
    for file in sorted(fresh.rglob("*")):
        if file.is_file():
            file.rename(path / file.relative_to(fresh))


@pytest.mark.parametrize("verified", [True, False])
def test_an_open_slab_stays_what_it_was(path: Path, verified: bool) -> None:
    """After two forced packs all fields, touched or not, are the first's; so in a fork."""
    slab = open_slab(path, verify=verified)
    assert read(slab, ["x"]) == {1}
    pack(table(2), path, force=True)
    pack(table(3), path, force=True)
    child = get_context("fork").Process(target=lambda: os._exit(read(slab) != {1}))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert read(slab) == {1}
    assert slab[7] == {"x": 1, "y": 2.0, "t": "1"}
    assert read(open_slab(path)) == {3}


def test_the_replaced_slab_goes_when_nobody_reads_it(path: Path) -> None:
    """What readers hold is set aside, and removed by the next pack after they let go."""
    slab = open_slab(path)
    with pytest.warns(FieldslabWarning, match="somebody reads") as told:
        pack(table(2), path, force=True)
    (aside,) = (entry for entry in path.parent.iterdir() if entry != path)
    assert str(aside) in str(told[0].message)
    pack(table(3), path, force=True)
    assert read(slab) == {1}
    del slab
    pack(table(4), path, force=True)
    assert [entry.name for entry in path.parent.iterdir()] == ["a.slab"]
    assert read(open_slab(path)) == {4}


@pytest.mark.parametrize("verified", [True, False])
@pytest.mark.parametrize("replace", [replace_by_swap, replace_within, shutil.rmtree])
def test_what_is_gone_is_said_to_be_gone(
    path: Path, replace: Callable[[Path], None], verified: bool
) -> None:
    """Where files were removed or replaced, new fields are SlabReplaced, others stay readable."""
    slab = open_slab(path, verify=verified)
    assert read(slab, ["x"]) == {1}
    replace(path)
    with pytest.raises(SlabReplaced, match="Open it again"):
        slab.gather([0])
    assert read(slab, ["x"]) == {1}


def test_a_pickled_slab_that_was_replaced(path: Path) -> None:
    """Where another slab has come to its path, a pickled one is SlabReplaced."""
    data = pickle.dumps(open_slab(path))
    pack(table(2), path, force=True)
    with pytest.raises(SlabReplaced, match="open it again"):
        pickle.loads(data)


def test_damage_is_still_damage(path: Path) -> None:
    """A file that is missing from a slab that still stands there is no replacement."""
    slab = open_slab(path)
    array_path(path, "y").unlink()
    with pytest.raises(DamagedArray, match="No such file"):
        slab.gather([0])


def test_a_manifest_that_was_touched_is_the_same(path: Path) -> None:
    """A manifest with another time, or copied anew, does not make another slab."""
    slab = open_slab(path)
    content = (path / MANIFEST).read_bytes()
    (path / MANIFEST).unlink()
    (path / MANIFEST).write_bytes(content)
    assert read(slab) == {1}


def test_opening_waits_for_the_end_of_a_swap(path: Path) -> None:
    """Between two renames there is no slab; whoever opens it then gets the new one."""
    partial = get_partial_path(path)
    partial.mkdir()
    pack(table(2), partial / "slab")
    path.rename(partial / REPLACED)
    timer = threading.Timer(0.05, (partial / "slab").rename, [path])
    timer.start()
    assert read(open_slab(path)) == {2}
    timer.join()


def _pack_again_and_again(path: Path, seconds: float) -> None:
    end = time.monotonic() + seconds
    generation = 1
    while time.monotonic() < end:
        generation += 1
        pack(table(generation), path, force=True, shard_size=200)


def test_no_read_mixes_generations_while_packers_race(path: Path) -> None:
    """Each slab that is opened while others take its place is one generation in all fields."""
    packer = get_context("fork").Process(target=_pack_again_and_again, args=(path, 1.5))
    packer.start()
    seen = set()
    while packer.is_alive():
        slab = open_slab(path, verify=False)
        (first,) = read(slab, ["x"])
        assert read(slab) == {first}
        seen.add(first)
    packer.join()
    assert packer.exitcode == 0
    assert len(seen) > 2


def test_verify_checks_the_slab_that_it_opened(path: Path) -> None:
    """A slab that is replaced while it is verified is checked as it was."""
    calls: list[int] = []

    def replace_once(rows: int, bytes: int) -> None:
        calls.append(bytes)
        if len(calls) == 1:
            pack(table(2), path, force=True)

    report = verify(path, progress=replace_once)
    assert report.ok
    assert len(calls) > 4


def test_a_descriptor_that_was_closed(tmp_path: Path) -> None:
    """Whoever closes all descriptors, as daemons do, is told; what they open next stays open."""
    path = write_slab(tmp_path / "x.slab", {"x": np.arange(5), "y": np.arange(5)})
    slab = open_slab(path)
    assert slab.gather([1], ["x"])["x"].tolist() == [1]
    with slab.storage.slabs.files[0].open_folder() as folder:
        fd = folder.fd
    held = {int(name) for name in os.listdir("/dev/fd")}
    slab_fd = next(n for n in held if n < fd and _leads_to(n, path))
    os.close(slab_fd)
    with pytest.raises(SlabReplaced, match="closed"):
        slab.gather([1], ["y"])
    reused = os.open(tmp_path, os.O_RDONLY)
    assert reused == slab_fd
    with pytest.raises(SlabReplaced, match="closed"):
        slab.gather([1], ["y"])
    del slab
    assert os.fstat(reused).st_ino == tmp_path.stat().st_ino
    os.close(reused)


def _leads_to(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except OSError:
        return False


def test_files_are_closed_once(path: Path) -> None:
    """A slab holds one descriptor, and gives it back when the last view of it is gone."""
    before = len(os.listdir("/dev/fd"))
    slab = open_slab(path)
    view = slab[3:9]
    slab.gather([0])
    assert len(os.listdir("/dev/fd")) == before + 1
    del slab
    assert len(os.listdir("/dev/fd")) == before + 1
    del view
    assert len(os.listdir("/dev/fd")) == before
    with open_slab_files(path) as files:
        files.close()
    assert len(os.listdir("/dev/fd")) == before
