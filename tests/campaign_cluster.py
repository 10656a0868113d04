"""Kills at random moments whatever packs one slab together: `make campaign-cluster`.

Parts of a plan and `finish`; of Ray the driver, workers, and nodes. After each round the same work
is done again, unharmed: the slab must be the one that a single process packs, with nothing beside
it. What is wrong is printed with the round; the exit status then is 1.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from tests.campaigns import say
from tests.packer.tokenizing import TEXTS, trained

from fieldslab.packer import pack
from fieldslab.packer.options import parse_options
from fieldslab.packer.pack_options import PackOptions
from fieldslab.packer.pack_source import pack_plan
from fieldslab.packer.parts.packing import finish_parts, pack_part
from fieldslab.packer.parts.part_number import parse_part
from fieldslab.packer.parts.plan_file import write_plan_file
from fieldslab.packer.parts.shuffling import PASSES
from fieldslab.packer.plan import make_plan
from fieldslab.packer.source import Source, Unit
from fieldslab.schemas.errors import PartsMissing
from fieldslab.schemas.folder import load_manifest
from fieldslab.schemas.notices import FieldslabWarning

ROOT = Path(__file__).parents[1]
PARTS = 3
NODES = 2
STORE = 80 * 2**20
SLOW_SHARDS = 16
SECONDS = 0.2
"""That a slow shard takes."""


def describe(out: Path, expected: str) -> str:
    """What is wrong with a slab or beside it; nothing if all is right."""
    identity, left = load_manifest(out).id, sorted(os.listdir(out.parent))
    return "" if (identity, left) == (expected, [out.name]) else f"{identity}, {left}"


# Parts


def write_rows(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Rows with categories, nulls, a table and a dictionary, in twelve shards."""
    rng, count = np.random.default_rng(1), 1200
    weight = [None if row == 300 else float(row) for row in range(count)]
    columns = {
        "text": [f"a text like row {row} of them all, and {row % 17} more" for row in range(count)],
        "weight": pa.array(weight, pa.float32()),
        "name": pa.array([f"name {n}" for n in rng.integers(0, 50, count)]).dictionary_encode(),
        "long": pa.array([f"{row % 700}" * 70 for row in range(count)]).dictionary_encode(),
    }
    source = folder / "rows.parquet"
    pq.write_table(pa.table(columns), source, row_group_size=100)
    return source, {"shard_size": 1000, "nulls": ["weight=mask"], "compress": ["text"]}


def write_texts(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Texts that are joined, whose tokens are counted first."""
    source, tokenizer = folder / "texts.parquet", folder / "tokenizer.json"
    trained().save(str(tokenizer))
    pq.write_table(pa.table({"text": TEXTS}), source, row_group_size=30)
    options = {"tokenize": {"text": tokenizer}, "pack_sequences": 16, "keep_boundaries": True}
    return source, {**options, "shard_size": 1000}


def write_shuffled(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The same rows, shuffled: in two passes."""
    source, options = write_rows(folder)
    return source, {**options, "shuffle": 7}


KINDS = {"rows": write_rows, "texts": write_texts, "shuffled": write_shuffled}


def start(work: Callable[[], Any]) -> int:
    """Fork a process that does some work: its id."""
    process = os.fork()
    if process == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001  # nothing of the parent may run here
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return process


def was_killed(process: int) -> bool:
    """Wait for a process: whether it was killed. Raises RuntimeError where it failed by itself."""
    _, status = os.waitpid(process, 0)
    if status not in (0, signal.SIGKILL):
        raise RuntimeError(f"a process ended with status {status}")
    return status != 0


class PartsScene:
    """A plan, and processes that pack its parts at the same time."""

    def __init__(self, folder: Path, kind: str, rng: random.Random) -> None:
        """Pack once undisturbed, which also tells how long that takes."""
        source, self.options = KINDS[kind](folder)
        self.folder, self.source, self.rng = folder, source, rng
        self.place = folder / f"{kind}-place"
        self.out, self.plan = self.place / "x.slab", folder / f"{kind}.plan"
        self.expected = pack(source, folder / f"{kind}.slab", **self.options).manifest.id
        write_plan_file([source], self.out, self.plan, cast(PackOptions, self.options))
        self.seconds = 0.0
        self.seconds = self.disturb(0, Counter())

    def disturb(self, kills: int, killed: Counter[str]) -> float:
        """Pack all parts and finish, with so many kills at random: seconds until all was packed."""
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()
        begun = time.monotonic()
        passes = PASSES if "shuffle" in self.options else 1
        for _ in range(passes):
            kills = self.pack_parts(kills, self.seconds / passes, killed)
        seconds = time.monotonic() - begun
        if self.seconds:
            finisher = start(partial(finish_parts, self.plan))
            time.sleep(self.rng.uniform(0, self.seconds / 3))
            os.kill(finisher, signal.SIGKILL)
            killed["finish"] += was_killed(finisher)
        finish_parts(self.plan)
        return seconds

    def pack_parts(self, kills: int, seconds: float, killed: Counter[str]) -> int:
        """Pack all parts, with so many kills within seconds: how many are left."""
        waiting = [*range(1, PARTS + 1)]
        while waiting:
            processes = {start(partial(self.pack_part, part)): part for part in waiting}
            moments = sorted(self.rng.uniform(0, seconds) for _ in range(kills))
            victims = self.rng.sample(sorted(processes), min(kills, len(processes)))
            started = time.monotonic()
            for moment, victim in zip(moments, victims, strict=False):
                time.sleep(max(0.0, started + moment - time.monotonic()))
                os.kill(victim, signal.SIGKILL)  # not waited for yet, so the id is still its own
            waiting = [part for process, part in processes.items() if was_killed(process)]
            killed["part"] += len(waiting)
            kills = max(0, kills - len(waiting))
        return kills

    def pack_part(self, number: int) -> None:
        """Pack a part. What it misses of the first pass, another one is packing."""
        with suppress(PartsMissing):
            pack_part(self.plan, parse_part(f"{number}/{PARTS}"))


def campaign_parts(
    folder: Path,
    kills: int,
    rng: random.Random,
    until: float,
    kinds: Sequence[str] = tuple(KINDS),
) -> tuple[Counter[str], int]:
    """Kill parts and finish: how often, and how many problems there were."""
    killed, problems = Counter[str](), 0
    scenes = [PartsScene(folder, kind, rng) for kind in kinds]
    while killed.total() < kills and time.monotonic() < until:
        scene = rng.choice(scenes)
        scene.disturb(rng.randrange(1, 4), killed)
        if problem := describe(scene.out, scene.expected):
            problems += 1
            say(f"parts, after {killed.total()} kills: {problem}")
    return killed, problems


# Ray


class Slow(Source):
    """Units of ten rows that take a while."""

    name = "slow"
    rereadable = True

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.schema = pa.schema([("x", pa.int64())])
        self.units = [Unit(f"unit {number}", 10, 80, number) for number in range(SLOW_SHARDS)]

    def read(self, unit: Unit, columns: list[int], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Ten rows, after a while."""
        time.sleep(self.seconds)
        yield pa.record_batch([pa.array(np.arange(10) + unit.key)], schema=self.schema)

    def fingerprint(self) -> list[dict[str, Any]]:
        """Always the same."""
        return [{"path": "slow"}]


def pack_slowly(out: Path, engine: str, seconds: float = 0) -> str:
    """Pack those rows, a shard for each unit: the id."""
    plan = make_plan(Slow(seconds), parse_options(shard_size=1))
    return pack_plan(plan, out, engine=engine).manifest.id


@contextmanager
def start_cluster() -> Iterator[Any]:
    """A head without cores, and two nodes with a core each."""
    from ray.cluster_utils import Cluster

    os.environ["PYTHONPATH"] = f"{ROOT / '.ns'}:{ROOT}"
    head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
    cluster: Any = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(NODES):
        cluster.add_node(num_cpus=1, object_store_memory=STORE)
    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        yield cluster
    finally:
        del os.environ["RAY_ADDRESS"]
        cluster.shutdown()


def find_workers(cluster: Any) -> list[psutil.Process]:
    """Find the processes of this cluster that run tasks."""
    raylets = [node.all_processes["raylet"][0].process.pid for node in cluster.list_all_nodes()]
    children = [child for pid in raylets for child in psutil.Process(pid).children(recursive=True)]
    workers = []
    for child in children:
        with suppress(psutil.Error):
            if "ray::_run_task" in " ".join(child.cmdline()):
                workers.append(child)
    return workers


def kill_of_ray(
    kind: str, cluster: Any, driver: "subprocess.Popen[str]", rng: random.Random
) -> bool:
    """Kill a driver, a worker, or a node; whether there was one."""
    if kind == "driver":
        driver.kill()
    elif kind == "worker":
        workers = find_workers(cluster)
        if not workers:
            return False
        rng.choice(workers).kill()
    else:
        nodes = [node for node in cluster.list_all_nodes() if node is not cluster.head_node]
        cluster.remove_node(rng.choice(nodes), allow_graceful=False)
        cluster.add_node(num_cpus=1, object_store_memory=STORE)
    return True


def campaign_ray(
    folder: Path, kills: int, rng: random.Random, until: float
) -> tuple[Counter[str], int]:
    """Kill drivers, workers and nodes of Ray: how often, and how many problems there were."""
    expected = pack_slowly(folder / "slow.slab", "here")
    place = folder / "ray"
    out = place / "x.slab"
    killed, problems = Counter[str](), 0
    with start_cluster() as cluster:
        while killed.total() < kills and time.monotonic() < until:
            kind = ("worker", "driver", "node")[killed.total() % 3]
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            command = [sys.executable, "-m", "tests.campaign_cluster", "--driver", str(out)]
            with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as driver:
                while not any(place.glob("*/attempts/*/*")) and driver.poll() is None:
                    time.sleep(0.01)
                time.sleep(rng.uniform(0, SECONDS * SLOW_SHARDS / NODES))
                if driver.poll() is None and kill_of_ray(kind, cluster, driver, rng):
                    killed[kind] += 1
                _, stderr = driver.communicate(timeout=300)
            if driver.returncode not in (0, -signal.SIGKILL):
                problems += 1
                say(f"Ray, {kind}, after {killed.total()} kills: {stderr}")
            if driver.returncode:
                subprocess.run(command, cwd=ROOT, check=True, timeout=300)
            if problem := describe(out, expected):
                problems += 1
                say(f"Ray, {kind}, after {killed.total()} kills: {problem}")
            if killed.total() % 10 == 0:
                say(f"Ray: {killed.total()} kills, {problems} problems")
    return killed, problems


def main() -> int:
    """Kill; the exit status tells whether anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", type=int, default=140, help="kills of parts and finish")
    parser.add_argument("--ray", type=int, default=60, help="kills of drivers, workers and nodes")
    parser.add_argument("--kind", choices=KINDS, action="append", help="what parts pack")
    parser.add_argument("--seed", type=int, default=15)
    parser.add_argument("--minutes", type=float, default=600, help="at most (600)")
    parser.add_argument("--driver", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.driver is not None:
        pack_slowly(given.driver, "ray", SECONDS)
        return 0
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # processes are forked
    warnings.simplefilter("ignore", FieldslabWarning)
    rng, killed, found = random.Random(given.seed), Counter[str](), 0
    until = time.monotonic() + 60 * given.minutes
    with tempfile.TemporaryDirectory() as name:
        parts = partial(campaign_parts, kinds=given.kind or tuple(KINDS))
        for campaign, kills in ((parts, given.parts), (campaign_ray, given.ray)):
            if kills:
                more, problems = campaign(Path(name), kills, rng, until)
                killed, found = killed + more, found + problems
    say(f"seed {given.seed}: {killed.total()} kills ({dict(killed)}), {found} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
