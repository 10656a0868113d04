"""Commit: whatever happens to a packer, a slab is there whole or not at all."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
from tests.packer.packing import (
    HERE,
    PYTHON,
    ROWS,
    SHARDS,
    batches,
    content,
    go_on,
    interrupt,
    listing,
    pack_shards,
    packer,
    table,
)

from fieldslab.packer import pack
from fieldslab.packer.write.directories import lock_directory
from fieldslab.schemas.errors import (
    Busy,
    IncompleteSlab,
    OutputExists,
    SourceChanged,
    SourceUnreadable,
)
from fieldslab.schemas.folder import get_partial_path, load_manifest


def kill(variant: str, folder: Path) -> list[dict[str, Any]]:
    """What killing.py saw, one dict for every kill."""
    done = subprocess.run(
        [sys.executable, HERE / "killing.py", folder, variant],
        env=PYTHON,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_rerun(kills: list[dict[str, Any]]) -> None:
    """After every kill the same command makes the slab, and leaves nothing else."""
    for seen in kills:
        assert seen["then"] == "new", seen
        assert seen["finally"] == ["x.slab"], seen
        assert set(seen["left"]) <= {"x.slab", "x.slab.partial"}, seen


def check_reuse(kills: list[dict[str, Any]]) -> None:
    """The later the kill, the more shards are taken over: none, some, all three."""
    reused = [seen["reused"] for seen in kills if "id" in seen and seen["state"] != "new"]
    assert reused == sorted(reused)
    assert set(reused) == {0, 1, 2, 3}


def test_killed_at_every_step(tmp_path: Path) -> None:
    """A kill leaves nothing, or IncompleteSlab that says what to run, or the whole new slab."""
    kills = kill("fresh", tmp_path)
    states = [seen["state"].split(":")[0] for seen in kills]
    order = ["SlabNotFound", "IncompleteSlab", "new"]
    assert list(dict.fromkeys(states)) == order
    assert states == sorted(states, key=order.index)
    for seen in kills:
        if seen["state"].startswith("IncompleteSlab"):
            assert "Run the same `fieldslab pack` command again" in seen["state"]
    assert {"fsync", "rename", "mkdir", "unlink", "rmdir"} <= {seen["name"] for seen in kills}
    check_rerun(kills)
    check_reuse(kills)
    cut_off = [seen for seen in kills if seen["left"] == ["x.slab", "x.slab.partial"]]
    assert len(cut_off) > 3
    assert not any("refused" in seen for seen in cut_off)


def test_killed_at_every_step_of_a_replacement(tmp_path: Path) -> None:
    """With --force a kill leaves the old slab or the new one, at every moment."""
    kills = kill("replace", tmp_path)
    states = [seen["state"] for seen in kills]
    assert list(dict.fromkeys(states)) == ["old", "new"]
    check_rerun(kills)
    check_reuse(kills)


def test_killed_at_every_step_where_directories_cannot_be_swapped(tmp_path: Path) -> None:
    """Replacing by two renames leaves a message for one moment, and loses no slab in it."""
    kills = kill("replace without swap", tmp_path)
    states = [seen["state"].split(":")[0] for seen in kills]
    assert list(dict.fromkeys(states)) == ["old", "IncompleteSlab", "new"]
    assert states.count("IncompleteSlab") == 1
    check_rerun(kills)


def test_killed_twice(tmp_path: Path) -> None:
    """A rerun that is killed too leaves nothing that a third run cannot go on with."""
    check_rerun(kill("replace without swap, twice", tmp_path))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_signals(number: signal.Signals, source: Path, out: Path) -> None:
    """Whichever signal ends a packer, a rerun takes over the shards that were finished."""
    with packer(source, out) as process:
        go_on(process, 2)
        process.send_signal(number)
        assert process.wait() != 0
    assert not out.exists()
    with pytest.raises(IncompleteSlab, match="Run the same"):
        load_manifest(out)
    assert pack_shards(source, out).reused_shards == 2
    assert listing(out.parent) == ["x.slab"]


def runs(process: psutil.Process) -> bool:
    """Whether a process still runs; one that nobody has asked for its end does not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def test_workers_that_outlive_a_killed_packer(source: Path, out: Path, tmp_path: Path) -> None:
    """Processes of a killed packer never write into another's slab, and soon end by themselves."""
    expected = content(pack_shards(source, tmp_path / "expected.slab").path)
    workers: list[psutil.Process] = []
    for _ in range(3):
        with packer(source, out, jobs=2) as process:
            assert process.stdout is not None
            process.stdout.readline()
            workers += psutil.Process(process.pid).children(recursive=True)
            process.kill()
        assert content(pack_shards(source, out).path) == expected
        assert listing(out.parent) == ["x.slab"]
        shutil.rmtree(out)
    assert len(workers) >= 6
    for _ in range(1200):  # a minute, for a machine that is busy
        if not any(map(runs, workers)):
            return
        time.sleep(0.05)
    pytest.fail("a worker runs on for ever")


def test_interrupt_leaves_only_what_a_rerun_uses(source: Path, out: Path) -> None:
    """After Ctrl-C there are the finished shards and the journal, and no other file."""
    interrupt(source, out, 2)
    left = get_partial_path(out)
    assert listing(left) == ["journal.jsonl", "slab"]
    assert listing(left / "slab") == ["shard-00000", "shard-00001"]
    assert pack_shards(source, out).reused_shards == 2


def test_interrupt_before_the_first_shard_leaves_nothing(source: Path, out: Path) -> None:
    """Where nothing was finished, nothing is left."""
    interrupt(source, out, 0)
    assert listing(out.parent) == []


def test_interrupt_leaves_the_old_slab(source: Path, out: Path, tmp_path: Path) -> None:
    """An interrupted replacement leaves the old slab as it was."""
    pack_shards(batches(table(1)), out)
    before = content(out)
    interrupt(source, out, 3, force=True)
    assert content(out) == before
    assert pack_shards(source, out, force=True).reused_shards == 3


# Others at work


def test_two_packers(source: Path, out: Path) -> None:
    """While a packer is at work, a second one for the same output is told so; the first goes on."""
    with packer(source, out) as process:
        go_on(process, 1)
        with pytest.raises(Busy, match=r"another packer is writing here\. Wait until it is done"):
            pack_shards(source, out, force=True)
        _, stderr = process.communicate("\n" * ROWS)
        assert process.returncode == 0, stderr
    assert load_manifest(out).rows == ROWS
    assert listing(out.parent) == ["x.slab"]


def test_lock_follows_the_directory(tmp_path: Path) -> None:
    """A lock on a directory that was removed and made again is not taken for the new one's."""
    first = lock_directory(tmp_path / "x")
    with pytest.raises(Busy):
        lock_directory(tmp_path / "x")
    (tmp_path / "x").rmdir()
    second = lock_directory(tmp_path / "x")
    os.close(first)
    with pytest.raises(Busy):
        lock_directory(tmp_path / "x")
    os.close(second)
    os.close(lock_directory(tmp_path / "x"))


def test_slab_that_appears_meanwhile(source: Path, out: Path) -> None:
    """A slab that somebody puts there while packing goes on is not replaced; shards are kept."""

    def progress(rows: int, bytes: int) -> None:
        if not out.exists():
            pack(table(1), out.with_name("other.slab")).path.rename(out)

    with pytest.raises(OutputExists):
        pack_shards(source, out, progress=progress)
    assert np.load(out / "shard-00000" / "00-x.values.npy")[0] == table(1)["x"][0].as_py()
    assert pack_shards(source, out, force=True).reused_shards == SHARDS


def test_source_that_changes_while_it_is_read(source: Path, out: Path) -> None:
    """A file that is written to meanwhile is SourceChanged, and nothing of it is used again."""

    def progress(rows: int, bytes: int) -> None:
        os.utime(source, ns=(0, 0))

    with pytest.raises(SourceChanged, match="Pack again when nothing writes to it"):
        pack_shards(source, out, progress=progress)
    assert not out.exists()
    assert pack_shards(source, out).reused_shards == 0


def test_source_that_is_replaced_while_it_is_read(source: Path, out: Path) -> None:
    """Another file in its place is noticed too, and the slab is never a mixture."""

    def progress(rows: int, bytes: int) -> None:
        other = source.with_name("other")
        pq.write_table(table(1), other, row_group_size=ROWS // SHARDS)
        other.replace(source)

    with pytest.raises((SourceChanged, SourceUnreadable)):
        pack_shards(source, out, progress=progress)
    assert not out.exists()
    pack_shards(source, out)
    assert np.load(out / "shard-00000" / "00-x.values.npy")[0] == table(1)["x"][0].as_py()
