"""What every engine must do. A new engine of fieldslab is tested here by its name alone."""

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.installed import install
from tests.packer.packing import PYTHON, ROWS, SHARDS, content, listing, pack_shards, table
from tests.packer.write.engines.dying import DyingTask, DyingWork
from tests.packer.write.engines.waiting import pack_waiting

from fieldslab.packer.options import parse_options
from fieldslab.packer.pack_options import PackOptions
from fieldslab.packer.pack_source import pack_plan
from fieldslab.packer.parts.packing import finish_parts, pack_part
from fieldslab.packer.parts.part_number import parse_part
from fieldslab.packer.parts.plan_file import write_plan_file
from fieldslab.packer.plan import Plan, make_plan
from fieldslab.packer.source import find_source
from fieldslab.packer.write.attempts import DirectoryAttempts
from fieldslab.packer.write.engines.engine import ENGINES, find_engine
from fieldslab.packer.write.engines.processes import ProcessEngine
from fieldslab.packer.write.prepare import prepare_shared_data
from fieldslab.packer.write.result import PackResult
from fieldslab.packer.write.stream import ShardWork, ignore_progress
from fieldslab.schemas.errors import (
    MissingLibrary,
    OutputError,
    SourceInconsistent,
    SourceUnreadable,
    UsageError,
)
from fieldslab.schemas.folder import get_partial_path


@pytest.fixture(params=sorted(ENGINES.built_in.keys() - {"ray"}))
def engine(request: pytest.FixtureRequest) -> Any:
    """Each engine but Ray, which on_ray.py tests in the same way."""
    return request.param


@pytest.fixture(params=[*sorted(ENGINES.built_in.keys() - {"ray"}), "parts"])
def way(request: pytest.FixtureRequest) -> Any:
    """Each engine but Ray; and parts of a plan, which are packed one after the other."""
    return request.param


def plan_shards(source: Path, **options: Any) -> Plan:
    """A plan with a shard for each row group."""
    return make_plan(find_source(source), parse_options(shard_size=1000, **options))


def pack_by(engine: str, source: Path, out: Path, **options: Any) -> PackResult:
    """Pack a shard for each row group, two at a time."""
    if engine == "parts":
        plan = out.parent.parent / f"{uuid4()}.plan"
        write_plan_file([source], out, plan, cast(PackOptions, {"shard_size": 1000, **options}))
        for part in ("2/2", "1/2"):
            pack_part(plan, parse_part(part))
        return finish_parts(plan)
    return pack_plan(plan_shards(source, **options), out, jobs=2, engine=engine)


@pytest.fixture
def work(source: Path, tmp_path: Path) -> ShardWork:
    """The work of a plan, with an empty folder for its attempts."""
    plan = plan_shards(source)
    (tmp_path / "attempts").mkdir()
    return ShardWork(plan, prepare_shared_data(plan), DirectoryAttempts(tmp_path / "attempts"))


def get_folder(work: ShardWork) -> Path:
    """The folder of its attempts."""
    assert isinstance(work.attempts, DirectoryAttempts)
    return work.attempts.folder


def test_the_slab_does_not_depend_on_the_engine(
    way: str, source: Path, out: Path, tmp_path: Path
) -> None:
    """Every engine makes the same slab, byte for byte, and leaves nothing else."""
    pack_by(way, source, out)
    assert content(out) == content(pack_shards(source, tmp_path / "expected.slab").path)
    assert listing(out.parent) == ["x.slab"]


def test_each_record_and_each_row_comes_once(engine: str, work: ShardWork) -> None:
    """There is a record for each task, which names a whole attempt; progress tells of all rows."""
    rows: list[int] = []
    stream = find_engine(engine, 2, SHARDS).run(
        work, work.plan.tasks, lambda count, bytes: rows.append(count)
    )
    with closing(stream):
        records = list(stream)
        assert sum(rows) == ROWS
    assert sorted(record.index for record in records) == list(range(SHARDS))
    assert sum(record.rows for record in records) == ROWS
    assert listing(get_folder(work)) == sorted(record.attempt for record in records)


def test_a_failing_shard(way: str, out: Path, tmp_path: Path) -> None:
    """What a shard raises is raised, with its row; no attempt is left, and a rerun is right."""
    rows = table().append_column("n", pa.array([str(row) for row in range(ROWS)]))
    wrong = rows.set_column(2, "n", pa.array([*rows["n"].to_pylist()[:-1], "many"]))
    source = tmp_path / "n.parquet"
    pq.write_table(wrong, source, row_group_size=ROWS // SHARDS)
    with pytest.raises(SourceInconsistent, match="many") as caught:
        pack_by(way, source, out, cast="n=f4")
    assert caught.value.context["row"] == ROWS - 1
    assert not out.exists()
    left = get_partial_path(out)
    assert not left.exists() or listing(left) == ["journal.jsonl", "slab"]
    pq.write_table(rows, source, row_group_size=ROWS // SHARDS)
    pack_by(way, source, out, cast="n=f4")
    expected = pack_shards(source, tmp_path / "expected.slab", cast="n=f4")
    assert content(out) == content(expected.path)


def test_a_second_attempt_while_the_first_is_there(engine: str, work: ShardWork) -> None:
    """A task can run again beside what an earlier attempt left: in another folder, same bytes."""
    task = work.plan.tasks[1]
    torn = get_folder(work) / "shard-00001-0badc0de"
    torn.mkdir()
    (torn / "00-x.values.npy").write_bytes(b"torn")
    attempts = []
    for _ in range(2):
        with closing(find_engine(engine, 2, SHARDS).run(work, [task], ignore_progress)) as stream:
            attempts += list(stream)
    first, second = (get_folder(work) / record.attempt for record in attempts)
    assert len({first, second, torn}) == 3
    assert attempts[0].root == attempts[1].root
    assert {path.name: path.read_bytes() for path in first.iterdir()} == {
        path.name: path.read_bytes() for path in second.iterdir()
    }
    assert (torn / "00-x.values.npy").read_bytes() == b"torn"


def test_cancellation(engine: str, work: ShardWork) -> None:
    """When a closed run has returned, nothing of it is at work, and it has not run every task."""
    before = set(psutil.Process().children(recursive=True))
    tasks = list(work.plan.tasks) * 100
    stream = find_engine(engine, 2, SHARDS).run(work, tasks, ignore_progress)
    next(stream)
    stream.close()
    left = {
        child
        for child in set(psutil.Process().children(recursive=True)) - before
        if "spawn_main" in " ".join(child.cmdline())
    }
    assert not left
    attempts = listing(get_folder(work))
    time.sleep(0.2)
    assert listing(get_folder(work)) == attempts
    assert len(attempts) < len(tasks)


# Killed


@contextmanager
def start_waiting(folder: Path, out: Path, engine: str) -> Iterator[subprocess.Popen[str]]:
    """The program waiting.py, as soon as a shard of it waits."""
    program = Path(__file__).with_name("waiting.py")
    with subprocess.Popen(
        [sys.executable, program, folder, out, engine],
        env=os.environ | PYTHON,  # the address of a cluster comes later
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not (folder / "waiting").exists() and process.poll() is None:
            time.sleep(0.01)
        yield process
        process.kill()


def kill_worker(process: subprocess.Popen[str]) -> bool:
    """Kill a worker of a packer, or the packer itself where it has none; whether it had."""
    workers = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if "spawn_main" in " ".join(child.cmdline())
    ]
    for victim in workers[:1] or [process]:
        victim.kill()
    return bool(workers)


def test_a_killed_worker(engine: str, out: Path, tmp_path: Path) -> None:
    """Where a worker dies, the pack ends with an error that names a shard; a rerun goes on."""
    with start_waiting(tmp_path, out, engine) as process:
        had_workers = kill_worker(process)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode != 0
    assert not out.exists()
    if had_workers:
        assert "a worker process died while it packed shard" in stderr
        assert not (get_partial_path(out) / "attempts").exists()
    (tmp_path / "go").touch()
    pack_waiting(tmp_path, out, engine)
    pack_waiting(tmp_path, tmp_path / "expected.slab", "here")
    assert content(out) == content(tmp_path / "expected.slab")
    assert listing(out.parent) == ["x.slab"]


def test_a_worker_that_dies_as_it_starts() -> None:
    """Where a worker dies before it has read its work, that is the same error; nobody waits."""
    tasks = [DyingTask(3), DyingTask(4)]
    with pytest.raises(SourceUnreadable, match="a worker process died while it packed shard 3"):
        list(ProcessEngine(1).run(DyingWork(), tasks, ignore_progress))
    assert not multiprocessing.active_children()


# Engines of other packages

BACKWARDS = """
from msgspec.structs import replace
from fieldslab.packer.write.engines.engine import Engine

class Backwards(Engine):
    '''The last task first, each of them twice.'''

    name = "backwards"

    def run(self, work, tasks, progress):
        for task in reversed(tasks):
            work.write(task)
            yield work.write(task, progress)

class Older(Backwards):
    '''Workers with another numpy.'''

    name = "older"

    def run(self, work, tasks, progress):
        for record in super().run(work, tasks, progress):
            yield replace(record, versions={**record.versions, "numpy": "1.26"})
"""
ENTRIES = """
[fieldslab.engines]
backwards = engines_elsewhere:Backwards
older = engines_elsewhere:Older
"""


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with two engines."""
    modules = {"engines_elsewhere": BACKWARDS}
    monkeypatch.syspath_prepend(install(tmp_path, "elsewhere", modules, ENTRIES))


@pytest.mark.usefixtures("elsewhere")
def test_an_engine_of_another_package(source: Path, out: Path, tmp_path: Path) -> None:
    """Its order and attempts that it does not hand out change nothing, and leave nothing."""
    pack_by("backwards", source, out)
    assert content(out) == content(pack_shards(source, tmp_path / "expected.slab").path)
    assert listing(out.parent) == ["x.slab"]


@pytest.mark.usefixtures("elsewhere")
def test_a_worker_with_other_versions(source: Path, out: Path) -> None:
    """Shards that another numpy wrote do not become part of the slab."""
    with pytest.raises(OutputError, match=r"other versions.*numpy 1\.26"):
        pack_by("older", source, out)
    assert listing(out.parent) == []


def test_an_unknown_engine(source: Path, out: Path) -> None:
    """The error names the engines that there are, and nothing is left."""
    with pytest.raises(UsageError, match="engine: no such engine 'dask'") as caught:
        pack_by("dask", source, out)
    assert {"here", "processes"} <= set(str(caught.value.context["expected"]).split(", "))
    assert listing(out.parent) == []


def test_ray_is_not_installed(source: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Ray, the error says how to install it, and nothing is left."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingLibrary, match=r"engine=\"ray\" needs Ray.*pip install 'ray"):
        pack_by("ray", source, out)
    assert listing(out.parent) == []
