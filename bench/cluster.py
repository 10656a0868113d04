"""What packing on a cluster costs beside packing on one machine, on two and four nodes of a core.

Run as a program: `python -m fieldslab.bench.cluster [--quick] [--json FILE]`. The cluster is Ray's
own, with all nodes on this machine: it measures the engine, not networks. Five things:

- photographs packed by the engine `ray`, beside as many processes; the cluster is up already;
- the driver's time for a task, of 10,000 tasks that do nothing;
- how many shards are packed again when a node is killed half-way;
- photographs packed straight to a bucket, beside a directory, and beside a directory whose files
  obstore alone then puts into the bucket; the server is moto, which is not fast;
- from the measured rates, a simulation of 50 TB on 64 machines.
"""

import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from fieldslab.bench import clustermodel
from fieldslab.bench.machine import Watch, load_in_words
from fieldslab.bench.pack import photographs
from fieldslab.bench.remote.servers import run_s3, upload
from fieldslab.bench.timing import interleave, program, ratio
from fieldslab.packer import pack
from fieldslab.packer.pack_options import Progress
from fieldslab.packer.write.engines.engine import find_engine
from fieldslab.packer.write.stream import ignore_progress

GIB = 2**30
STORE_BYTES = 80 * 2**20
"""Of Ray's object store on each node; a task's data never passes through it."""


class EmptyTask(NamedTuple):
    """A task that does nothing."""

    number: int
    source: str = ""


@dataclass(frozen=True)
class SleepingWork:
    """Tasks that take a while and leave a file for each time that they begin."""

    folder: Path
    seconds: float = 0.0

    def write(self, task: EmptyTask, progress: Progress = ignore_progress) -> int:
        """Sleep; returns the number of the task."""
        if self.seconds:
            (self.folder / f"{task.number}-{time.time_ns()}").touch()
            time.sleep(self.seconds)
        return task.number


@contextmanager
def start_cluster(nodes: int = 2) -> Iterator[Any]:
    """Start a head without cores and some nodes with a core each, and connect to it."""
    import ray
    from ray.cluster_utils import Cluster

    paths = [str(Path(pack.__code__.co_filename).parents[3]), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    head = {"num_cpus": 0, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    cluster: Any = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(nodes):
        cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield cluster
    finally:
        shut_down: Any = ray.shutdown
        shut_down()
        cluster.shutdown()


def measure_overhead(folder: Path, size: int, rounds: int, nodes: int) -> dict[str, Any]:
    """Pack photographs in this process, by a process for each node, and by Ray on the nodes."""
    source = folder / "source.parquet"
    if not source.exists():
        photographs(source, size, 16)
    slab, written = folder / "out.slab", 0

    def pack_by(**options: Any) -> None:
        nonlocal written
        shutil.rmtree(slab, ignore_errors=True)
        written = pack(source, slab, shard_size=size // 16, **options).bytes

    seconds = interleave(
        {
            "one process": lambda: pack_by(),
            "processes": lambda: pack_by(jobs=nodes),
            "ray": lambda: pack_by(engine="ray", jobs=nodes),
        },
        rounds,
    )
    shutil.rmtree(slab)
    return {
        "gb": written / 1e9,
        "one_process_bytes_s": written / median(seconds["one process"]),
        "processes_s": median(seconds["processes"]),
        "ray_s": median(seconds["ray"]),
        "ratio": ratio(seconds["ray"], seconds["processes"]),
    }


def measure_tasks(folder: Path, count: int) -> dict[str, float]:
    """Run many tasks that do nothing: seconds, and the driver's processor time, of each."""
    tasks = [EmptyTask(number) for number in range(count)]
    engine = find_engine("ray", None, count)
    for repeat in (tasks[:200], tasks):  # the first ones start the workers
        started, processor = time.perf_counter(), time.process_time()
        with closing(engine.run(SleepingWork(folder), repeat, ignore_progress)) as records:
            done = sum(1 for _ in records)
    assert done == count
    return {
        "ms": (time.perf_counter() - started) / count * 1e3,
        "processor_ms": (time.process_time() - processor) / count * 1e3,
    }


def measure_recovery(folder: Path, cluster: Any, count: int) -> dict[str, float]:
    """Kill a node when half of the tasks are done: how many tasks began twice."""
    folder.mkdir()
    tasks = [EmptyTask(number) for number in range(count)]
    engine = find_engine("ray", 2, count)
    victim = next(node for node in cluster.list_all_nodes() if node is not cluster.head_node)
    kill = threading.Thread(
        target=cluster.remove_node, args=(victim,), kwargs={"allow_graceful": False}
    )
    with closing(engine.run(SleepingWork(folder, 0.5), tasks, ignore_progress)) as records:
        for done, _ in enumerate(records, 1):
            if done == count // 2:
                kill.start()
    kill.join()
    begun = [path.name.partition("-")[0] for path in folder.iterdir()]
    return {"tasks": count, "begun_again": len(begun) - count, "of_the_node": 1}


def measure_bucket(folder: Path, size: int, rounds: int) -> dict[str, Any]:
    """Pack photographs to a directory and to a bucket of a server on this machine."""
    import obstore as library

    obstore: Any = library
    source, slab = folder / "source.parquet", folder / "out.slab"
    if not source.exists():
        photographs(source, size, 16)
    with run_s3() as port:
        upload(folder / "nothing", port, "bench")
        options = {"endpoint": f"http://127.0.0.1:{port}", "region": "us-east-1"}
        options |= {"access_key_id": "bench", "secret_access_key": "bench"}
        bucket = obstore.store.S3Store(
            "bench", **options, client_options={"allow_http": True, "timeout": "600s"}
        )
        written = 0

        def pack_to(place: Path | str, **more: Any) -> None:
            nonlocal written
            shutil.rmtree(slab, ignore_errors=True)
            written = pack(source, place, shard_size=size // 16, **more).bytes

        def empty() -> None:
            for batch in obstore.list(bucket):
                obstore.delete(bucket, [info["path"] for info in batch])

        def pack_to_bucket() -> None:
            pack_to("s3://bench/out.slab", storage_options=options, scratch=folder)
            empty()

        def pack_and_put() -> None:
            pack_to(slab)
            for path in sorted(slab.rglob("*.npy")):
                obstore.put(bucket, str(path.relative_to(folder)), path)
            empty()

        ways = {"directory": lambda: pack_to(slab), "bucket": pack_to_bucket, "put": pack_and_put}
        seconds = interleave(ways, rounds)
    shutil.rmtree(slab, ignore_errors=True)
    return {
        "gb": written / 1e9,
        "bucket_bytes_s": written / median(seconds["bucket"]),
        "beside_directory": ratio(seconds["bucket"], seconds["directory"]),
        "beside_directory_and_put": ratio(seconds["bucket"], seconds["put"]),
    }


def run(quick: bool = False) -> dict[str, Any]:
    """Measure everything and print it; the result is ready for JSON."""
    size, rounds, count = (GIB // 4, 3, 2000) if quick else (4 * GIB, 3, 10_000)
    overhead, watch = {}, Watch()
    with tempfile.TemporaryDirectory(prefix="fieldslab-bench-") as name:
        folder = Path(name)
        (folder / "to a bucket").mkdir()
        bucket = measure_bucket(folder / "to a bucket", min(size, GIB), rounds)
        shutil.rmtree(folder / "to a bucket")
        for nodes in (4, 2):
            watch.look(1)
            with start_cluster(nodes) as cluster:
                overhead[nodes] = measure_overhead(folder, size, rounds, nodes)
                if nodes == 2:
                    tasks = measure_tasks(folder, count)
                    recovery = measure_recovery(folder / "begun", cluster, 24)
    machine = watch.found()
    print(load_in_words(machine))
    core = overhead[2]["one_process_bytes_s"]
    for nodes, result in overhead.items():
        gigabytes = result["gb"]
        print(f"photographs, {gigabytes:.1f} GB, ray / --jobs {nodes}: {result['ratio']}")
    print(f"a task of {count:,}: {tasks['ms']:.2f} ms, driver {tasks['processor_ms']:.2f} ms")
    print(f"a node killed half-way: {recovery['begun_again']} of {recovery['tasks']} tasks again")
    print(
        f"to a bucket, {bucket['gb']:.1f} GB, {bucket['bucket_bytes_s'] / 1e6:.0f} MB/s: "
        f"{bucket['beside_directory']} of a directory, {bucket['beside_directory_and_put']} of a "
        "directory and obstore"
    )
    scenarios = {}
    for label, cluster_ in clustermodel.list_scenarios(core, tasks["ms"] / 1e3).items():
        outcome = clustermodel.simulate(cluster_)
        limits = cluster_.compute_limits()
        slowest = max(limits, key=lambda name: limits[name])
        repeated = clustermodel.simulate(cluster_, lost_nodes=1)
        scenarios[label] = {"hours": outcome.seconds / 3600, "busy": outcome.busy, **limits}
        print(
            f"{label:<40} {outcome.seconds / 3600:6.2f} h, bound by {slowest}"
            f" ({limits[slowest] / 3600:.2f} h); cores taken {outcome.busy:.0%}; a node lost: "
            f"{repeated.seconds / 3600:.2f} h"
        )
    return {
        "machine": machine,
        "overhead": overhead,
        "tasks": tasks,
        "recovery": recovery,
        "bucket": bucket,
        "model": scenarios,
    }


if __name__ == "__main__":
    program(run, __doc__)
