"""Commit: whatever happens to a packer, a slab is there whole or not at all."""

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fieldslab.packer import Packed, pack
from fieldslab.packer.write import commit
from fieldslab.packer.write.commit import Staging, is_whole
from fieldslab.packer.write.directories import lock_directory, remove
from fieldslab.packer.write.journal import Journal
from fieldslab.packer.write.writers import ShardRecord
from fieldslab.schemas.errors import (
    Busy,
    IncompleteSlab,
    NoSpace,
    OutputError,
    OutputExists,
    SourceChanged,
    SourceUnreadable,
)
from fieldslab.schemas.folder import load_manifest, partial_path
from fieldslab.schemas.manifest import MANIFEST

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PYTHON = {"PYTHONPATH": str(ROOT / ".ns"), "PATH": os.environ["PATH"]}
SHARDS = 4
ROWS = 100 * SHARDS


def table(seed: int = 0) -> pa.Table:
    """A table whose values depend on the seed."""
    rng = np.random.default_rng(seed)
    texts = [f"{seed} {n}" for n in rng.integers(0, 1000, ROWS)]
    return pa.table({"x": rng.random(ROWS), "s": texts})


def batches(rows: pa.Table, size: int = 100) -> Iterator[pa.RecordBatch]:
    """The table as a stream of batches."""
    return iter(rows.to_batches(max_chunksize=size))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A Parquet file of as many row groups as there will be shards."""
    path = tmp_path / "rows.parquet"
    pq.write_table(table(), path, row_group_size=ROWS // SHARDS)
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Where to pack to: a folder with nothing else in it."""
    (tmp_path / "place").mkdir()
    return tmp_path / "place" / "x.slab"


def pack_shards(source: Any, out: Path, **options: Any) -> Packed:
    """Pack with a shard for each row group."""
    return pack(source, out, shard_size=1000, **options)


def stop_after(shards: int) -> Callable[[int, int], None]:
    """A progress that is interrupted when so many shards are finished, and one more is begun."""
    done = 0

    def progress(rows: int, bytes: int) -> None:
        nonlocal done
        done += rows
        if done > shards * ROWS // SHARDS:
            raise KeyboardInterrupt

    return progress


def interrupt(source: Any, out: Path, shards: int, **options: Any) -> None:
    """Pack, and be interrupted when so many shards are finished."""
    with pytest.raises(KeyboardInterrupt):
        pack_shards(source, out, progress=stop_after(shards), **options)


def content(slab: Path) -> dict[str, Any]:
    """Everything in a slab that two packs of the same source share."""
    manifest = load_manifest(slab)
    files = {str(p.relative_to(slab)): p.read_bytes() for p in slab.rglob("*") if p.is_file()}
    return files | {MANIFEST: manifest.id}


def listing(folder: Path) -> list[str]:
    """Names in a folder."""
    return sorted(entry.name for entry in folder.iterdir())


# Killed


def kill(variant: str, folder: Path) -> list[dict[str, Any]]:
    """What killing.py saw, one dict for every kill."""
    done = subprocess.run(
        [sys.executable, HERE / "killing.py", folder, variant],
        env=PYTHON, capture_output=True, text=True, check=False,
    )  # fmt: skip
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
    order = ["NotASlab", "IncompleteSlab", "new"]
    assert list(dict.fromkeys(states)) == order
    assert states == sorted(states, key=order.index)
    for seen in kills:
        if seen["state"].startswith("IncompleteSlab"):
            assert "Run the same `fieldslab pack` command again" in seen["state"]
    assert {"fsync", "rename", "mkdir", "unlink", "rmdir"} <= {seen["name"] for seen in kills}
    check_rerun(kills)
    check_reuse(kills)


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


RUN = """
import sys
from pathlib import Path
from fieldslab.packer import pack

def progress(rows, bytes):
    print(rows, flush=True)
    sys.stdin.readline()

if __name__ == "__main__":
    pack(sys.argv[1], sys.argv[2], shard_size=1000, progress=progress, jobs=int(sys.argv[3]))
"""


@contextlib.contextmanager
def packer(source: Path, out: Path, jobs: int = 1) -> Iterator[subprocess.Popen[str]]:
    """A packer in a process of its own, which waits for a line after each batch."""
    script = out.parent.parent / "run.py"
    script.write_text(RUN)
    with subprocess.Popen(
        [sys.executable, script, source, out, str(jobs)],
        env=PYTHON, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip
        yield process
        process.kill()


def go_on(process: subprocess.Popen[str], shards: int) -> None:
    """Let a waiting packer go on until so many shards are finished and one more is begun."""
    assert process.stdin is not None
    assert process.stdout is not None
    done = int(process.stdout.readline())
    while done <= shards * ROWS // SHARDS:
        process.stdin.write("\n")
        process.stdin.flush()
        done += int(process.stdout.readline())


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
    left = partial_path(out)
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


# Reuse


def test_reused_shards_make_the_same_slab(source: Path, out: Path, tmp_path: Path) -> None:
    """A slab that was packed in two runs is, byte for byte, the one packed in one."""
    whole = pack_shards(source, tmp_path / "whole.slab")
    interrupt(source, out, 3)
    packed = pack_shards(source, out)
    assert (packed.reused_shards, whole.reused_shards) == (3, 0)
    assert content(out) == content(whole.path)


def test_nothing_is_reused_for_other_options(source: Path, out: Path) -> None:
    """Other options are another plan: every shard is written anew."""
    interrupt(source, out, 2)
    packed = pack_shards(source, out, fields="x")
    assert packed.reused_shards == 0
    assert [field.name for field in packed.manifest.fields] == ["x"]


@pytest.mark.parametrize("same_size", [True, False])
def test_nothing_is_reused_of_another_source(same_size: bool, source: Path, out: Path) -> None:
    """A source that changed since is packed from its beginning."""
    interrupt(source, out, 2)
    rows = table().slice(0, ROWS if same_size else ROWS - 1)
    rows = rows.set_column(0, "x", pa.array(rows["x"].to_numpy() + 1))
    pq.write_table(rows, source, row_group_size=ROWS // SHARDS)
    packed = pack_shards(source, out)
    assert packed.reused_shards == 0
    assert np.load(out / "shard-00000" / "00-x.values.npy")[0] == rows["x"][0].as_py()


def link_elsewhere(shard: Path) -> None:
    """Leave a link in the place of a shard."""
    elsewhere = shard.parents[2] / "elsewhere"
    shard.rename(elsewhere)
    shard.symlink_to(elsewhere)


def copy_another(shard: Path) -> None:
    """Put another shard, whole in itself, in the place of this one."""
    shutil.rmtree(shard)
    shutil.copytree(shard.with_name("shard-00000"), shard)


@pytest.mark.parametrize(
    "damage",
    [
        lambda shard: os.truncate(shard / "00-x.values.npy", 4100),
        lambda shard: (shard / "01-s.offsets.npy").unlink(),
        lambda shard: (shard / "extra.npy").write_bytes(b"x"),
        lambda shard: (shard / "digests.npy").write_bytes(bytes(4096 + 24)),
        lambda shard: shutil.rmtree(shard),
        link_elsewhere,
        copy_another,
    ],
    ids=["cut", "file lost", "file added", "digests lost", "lost", "link", "another one"],
)  # fmt: skip
def test_a_damaged_shard_is_not_reused(
    damage: Callable[[Path], Any], source: Path, out: Path, tmp_path: Path
) -> None:
    """A finished shard that is not what the journal says is written anew; the others stay."""
    interrupt(source, out, 3)
    damage(partial_path(out) / "slab" / "shard-00001")
    assert pack_shards(source, out).reused_shards == 2
    assert content(out) == content(pack_shards(source, tmp_path / "whole.slab").path)


def test_a_torn_journal(source: Path, out: Path, tmp_path: Path) -> None:
    """Wherever the journal was cut, its whole lines count, and the slab is the same."""
    interrupt(source, out, 3)
    left, kept = partial_path(out), tmp_path / "kept"
    left.rename(kept)
    journal = (kept / "journal.jsonl").read_bytes()
    expected = content(pack_shards(source, tmp_path / "whole.slab").path)
    for size in [*range(0, len(journal), 41), len(journal) - 1, len(journal)]:
        shutil.copytree(kept, left)
        os.truncate(left / "journal.jsonl", size)
        packed = pack_shards(source, out)
        assert packed.reused_shards == max(journal[:size].count(b"\n") - 1, 0)
        assert content(out) == expected
        shutil.rmtree(out)


def test_a_torn_line_hides_nothing_that_follows(source: Path, out: Path) -> None:
    """What is finished after a torn line was found is kept as well."""
    interrupt(source, out, 2)
    journal = partial_path(out) / "journal.jsonl"
    os.truncate(journal, journal.stat().st_size - 5)
    interrupt(source, out, 3)
    assert pack_shards(source, out).reused_shards == 3


@pytest.mark.parametrize("line", [b"\xff\xfe\n", b"0123 {}\n", b"\n", b"[" * 10_000 + b"\n"])
def test_a_foreign_line_in_the_journal(line: bytes, source: Path, out: Path) -> None:
    """A line that we did not write ends the journal."""
    interrupt(source, out, 2)
    journal = partial_path(out) / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:2], line, *lines[2:]]))
    assert pack_shards(source, out).reused_shards == 1


def test_a_record_of_another_form(tmp_path: Path) -> None:
    """A line with a right digest, but of another version of the record, is not believed."""
    record = ShardRecord(0, 1, [], [], "0" * 64, {}, 10)
    journal = Journal(tmp_path / "journal", "plan")
    journal.start([record])
    good = journal.path.read_bytes()
    journal.start([])
    other = Journal(tmp_path / "other", '{"index": 1}')
    other.start([])
    journal.path.write_bytes(good + other.path.read_bytes())
    assert journal.read() == [record]
    assert Journal(journal.path, "another plan").read() == []


def test_is_whole_never_follows_links(tmp_path: Path) -> None:
    """A link in the place of a shard, or nothing, is not whole."""
    record = ShardRecord(0, 0, [], [], "0" * 64, {}, 0)
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    assert not any(is_whole(tmp_path / name, record) for name in ("link", "empty", "nothing"))


# Streams


def test_an_interrupted_stream_leaves_nothing(out: Path) -> None:
    """A stream cannot be read again, so that nothing of it is kept."""
    interrupt(batches(table()), out, 2)
    assert listing(out.parent) == []


def test_a_killed_stream_is_never_mistaken_for_another(out: Path, tmp_path: Path) -> None:
    """Shards of a killed stream do not find their way into the slab of the next one."""
    interrupt(batches(table(1)), out, 2)
    with Staging(out, "p", resumable=True):
        pass
    source = tmp_path / "first.parquet"
    pq.write_table(table(1), source, row_group_size=100)
    interrupt(source, out, 2)  # leaves shards, as a killed stream does
    packed = pack_shards(batches(table(2)), out)
    assert packed.reused_shards == 0
    assert packed.manifest.rows == ROWS
    values = [np.load(path) for path in sorted(out.glob("shard-*/00-x.values.npy"))]
    assert np.concatenate(values).tolist() == table(2)["x"].to_pylist()


def test_an_error_of_the_stream_is_not_one_of_the_output(out: Path) -> None:
    """An OSError while the source is read is not told as if the slab could not be written."""

    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches(table().slice(0, 100))
        raise OSError(errno.EIO, "the network is down", "s3://bucket/rows")

    with pytest.raises(SourceUnreadable, match="the network is down"):
        pack_shards(broken(), out)
    assert listing(out.parent) == []


# Errors of the system


def fail_at(monkeypatch: pytest.MonkeyPatch, name: str, wanted: int, number: int) -> list[int]:
    """Let the `wanted`-th call of a function of `os` fail; the list has an item per call."""
    real, calls = getattr(os, name), list[int]()

    def call(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == wanted:
            raise OSError(number, os.strerror(number))
        return real(*args, **kwargs)

    monkeypatch.setattr(os, name, call)
    return calls


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("fsync", errno.EIO), ("fsync", errno.ENOSPC), ("pwrite", errno.ENOSPC),
        ("pwrite", errno.EDQUOT), ("pwrite", errno.EFBIG), ("rename", errno.EACCES),
        ("mkdir", errno.EMFILE), ("open", errno.EMFILE),
    ],
)  # fmt: skip
def test_every_failing_call(
    name: str, number: int, source: Path, out: Path, tmp_path: Path
) -> None:
    """Whichever system call fails: a named error, nothing half-written, and a rerun succeeds."""
    expected = content(pack_shards(source, tmp_path / "whole.slab").path)
    kind = NoSpace if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else OutputError
    for wanted in range(1, 1000, 1 if name in ("rename", "mkdir") else 7):
        with pytest.MonkeyPatch.context() as patch:
            calls = fail_at(patch, name, wanted, number)
            with contextlib.suppress(kind):
                pack_shards(source, out)
        if len(calls) < wanted:
            break
        if not out.exists():
            assert set(listing(out.parent)) <= {partial_path(out).name}
            pack_shards(source, out)
        assert content(out) == expected
        assert listing(out.parent) == ["x.slab"]
        shutil.rmtree(out)
    assert wanted > 4


def test_a_shard_whose_fsync_failed_is_written_anew(
    source: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed fsync may have lost data for good: its shard is not journaled, nor reused."""
    with monkeypatch.context() as patch:
        calls = fail_at(patch, "fsync", 10**9, errno.EIO)
        interrupt(source, out, 1)
    shutil.rmtree(partial_path(out))
    with monkeypatch.context() as patch:
        fail_at(patch, "fsync", len(calls) + 1, errno.EIO)
        with pytest.raises(OutputError, match="Input/output error"):
            pack_shards(source, out)
    assert listing(partial_path(out) / "slab") == ["shard-00000"]
    assert (partial_path(out) / "journal.jsonl").read_bytes().count(b"\n") == 2
    assert pack_shards(source, out).reused_shards == 1


def test_file_size_limit(source: Path, out: Path) -> None:
    """A real limit of the system on the size of a file is NoSpace, with a way out."""
    code = (
        "import resource, sys; from fieldslab.packer import pack;"
        "from fieldslab.schemas.errors import NoSpace\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))\n"
        "try: pack(sys.argv[1], sys.argv[2], shard_size=10**9)\n"
        "except NoSpace as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, source, out], env=PYTHON, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert "allows. A smaller --shard-size makes smaller files." in done.stdout, done.stderr
    assert listing(out.parent) == []


def test_old_slab_that_cannot_be_removed(
    source: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the old slab cannot be removed, the message says that the new one is in place."""
    pack_shards(batches(table(1)), out)
    monkeypatch.setattr(commit, "remove", _refuse_old)
    with pytest.raises(OutputError, match=r"new slab is in its place.*Remove it yourself"):
        pack_shards(source, out, force=True)
    assert np.load(out / "shard-00000" / "00-x.values.npy")[0] == table()["x"][0].as_py()


def _refuse_old(path: Path) -> None:
    if (path / MANIFEST).exists():
        raise PermissionError(errno.EACCES, "Permission denied", str(path))
    remove(path)


@contextlib.contextmanager
def unprivileged(mode: int) -> Iterator[Path]:
    """A folder of this mode, which binds this process even when it is run by root."""
    outer = Path(tempfile.mkdtemp())
    outer.chmod(0o755)
    folder = outer / "folder"
    folder.mkdir()
    folder.chmod(mode)
    root = os.geteuid() == 0
    try:
        if root:
            os.seteuid(65534)
        yield folder
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)
        shutil.rmtree(outer)


@pytest.mark.parametrize("mode", [0o555, 0])
def test_folder_without_the_right_to_write(mode: int) -> None:
    """A folder that may not be written to, or not be entered, is told with the system's reason."""
    with unprivileged(mode) as folder, pytest.raises(OutputError, match="Permission") as caught:
        pack(table(), folder / "x.slab")
    assert type(caught.value) is OutputError


@pytest.mark.parametrize("name", ["file/x.slab", "x" * 300])
def test_impossible_paths(name: str, tmp_path: Path) -> None:
    """A path that cannot be made is an OutputError."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match=r"File exists|too long"):
        pack(table(), tmp_path / name)


def test_folders_above_are_made(tmp_path: Path) -> None:
    """Missing folders above the output are created."""
    assert pack(table(), tmp_path / "a" / "b" / "x.slab").path.is_dir()


# What is there already


def test_nothing_is_replaced_without_force(source: Path, out: Path) -> None:
    """A slab, a file, a directory or a link in the place of the output is left alone."""
    pack_shards(batches(table(1)), out)
    before = content(out)
    with pytest.raises(OutputExists, match="--force replaces a slab"):
        pack_shards(source, out)
    assert content(out) == before
    assert listing(out.parent) == ["x.slab"]


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def make_web_app(out: Path) -> None:
    """A directory that has a manifest.json, but of another kind."""
    out.mkdir()
    (out / MANIFEST).write_text('{"name": "my app", "start_url": "/"}')


def make_slab_with_notes(out: Path) -> None:
    """A slab in which somebody keeps a file."""
    pack(table(), out)
    (out / "notes.txt").write_text("precious")


def make_half_a_slab(out: Path) -> None:
    """A slab without its manifest."""
    pack(table(), out)
    (out / MANIFEST).unlink()


def make_link(out: Path) -> None:
    """A link to a slab."""
    pack(table(), out.parent.parent / "real.slab")
    out.symlink_to("../real.slab")


def make_directory_manifest(out: Path) -> None:
    """A directory in which manifest.json is a directory."""
    (out / MANIFEST / "deep").mkdir(parents=True)


@pytest.mark.parametrize("force", [True, False])
@pytest.mark.parametrize(
    "make",
    [
        Path.mkdir, Path.touch, make_web_app, make_slab_with_notes, make_half_a_slab, make_link,
        make_directory_manifest, lambda out: out.symlink_to("nowhere"),
    ],
)  # fmt: skip
def test_force_replaces_nothing_but_slabs(
    make: Callable[[Path], None], force: bool, source: Path, out: Path
) -> None:
    """Whatever is no slab, or more than one, is never removed, forced or not."""
    make(out)
    before = tree(out.parent.parent)
    with pytest.raises(OutputExists):
        pack_shards(source, out, force=force)
    assert tree(out.parent.parent) == before


def test_force_replaces_a_damaged_slab(source: Path, out: Path) -> None:
    """A slab whose manifest is damaged further on can be packed again in its place."""
    pack_shards(source, out)
    expected = content(out)
    os.truncate(out / MANIFEST, 200)
    pack_shards(source, out, force=True)
    assert content(out) == expected


def test_force_ignores_the_litter_of_file_managers(source: Path, out: Path) -> None:
    """What a file manager leaves in a slab does not protect it."""
    pack_shards(batches(table(1)), out)
    (out / ".DS_Store").write_bytes(b"")
    assert pack_shards(source, out, force=True).manifest.rows == ROWS
    assert not (out / ".DS_Store").exists()


def test_partial_that_is_not_ours(source: Path, out: Path) -> None:
    """A directory that only happens to be called NAME.partial is left alone."""
    left = partial_path(out)
    left.mkdir()
    (left / "thesis.tex").write_text("precious")
    before = tree(out.parent)
    with pytest.raises(OutputExists, match="not what a packer left"):
        pack_shards(source, out)
    assert tree(out.parent) == before
    (left / "thesis.tex").rename(left / "slab")
    with pytest.raises(OutputExists, match="not what a packer left"):
        pack_shards(source, out)
    assert (left / "slab").read_text() == "precious"


def test_partial_that_is_no_directory(source: Path, out: Path) -> None:
    """A file or a link called NAME.partial is left alone, and so is what the link leads to."""
    left = partial_path(out)
    left.write_text("precious")
    with pytest.raises(OutputExists, match="in the way"):
        pack_shards(source, out)
    assert left.read_text() == "precious"
    left.unlink()
    (out.parent / "other").mkdir()
    left.symlink_to("other")
    with pytest.raises(OutputExists, match="in the way"):
        pack_shards(source, out)
    assert listing(out.parent) == ["other", "x.slab.partial"]


# Others at work


def test_two_packers(source: Path, out: Path) -> None:
    """While a packer is at work, a second one for the same output is told so; the first goes on."""
    with packer(source, out) as process:
        go_on(process, 1)
        with pytest.raises(Busy, match=r"another packer is at work here\. Wait until it is done"):
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
