"""Slabs at a distance: `python -m fieldslab.bench.remote [--quick] [--json FILE]`.

Photographs lie on a web server (nginx), behind a proxy that adds latency and limits bandwidth. An
epoch is read by obstore alone, which keeps nothing, by fieldslab into an empty cache, and by other
streaming formats. Each runs in a process of its own, and all take turns. `MARKS` says what is
expected. A server and the proxy need processor time, too: on few cores they slow down whoever is
near the limit.
"""

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from subprocess import TimeoutExpired
from subprocess import run as run_process
from typing import Any

import numpy as np

from fieldslab.bench.loader import MIB, show
from fieldslab.bench.machine import Watch, busy, describe
from fieldslab.bench.peers.children import Child, Refusal, interpreter, python_path
from fieldslab.bench.peers.source import Workload, save
from fieldslab.bench.photographs import repeated_photographs
from fieldslab.bench.remote.servers import (
    SlowNetwork,
    find_nginx,
    run_network,
    run_nginx,
    run_s3,
    upload,
    write_listing,
)
from fieldslab.bench.timing import Ratio, interleave, program, ratio
from fieldslab.packer import pack
from fieldslab.reader import Loader, Shuffled, open_slab
from fieldslab.schemas.errors import MissingLibrary

LATENCIES = (0.0, 0.005, 0.02, 0.1)
BANDWIDTH = 250e6
"""Bytes a second: 2 Gbit/s, about what a machine gets from a bucket for one of its GPUs."""
USUAL = 0.02
PROCESSES, WORKERS = 4, 8
PATIENCE = 300.0
"""Seconds that an epoch may take; then that is reported."""
PEERS = ("LitData", "MosaicML Streaming", "Lance")
MARKS = {
    "20 ms, 250 MB/s: first epoch / obstore alone": "at least 0.8",
    "20 ms, 250 MB/s: bytes fetched / bytes used": "at most 1.1",
    "second epoch, whole mirror / local slab": "at least 0.97",
    f"{PROCESSES} processes on one cache: bytes fetched / bytes of the slab": "at most 1.1",
    f"{WORKERS} workers on one cache: bytes fetched / bytes of the slab": "at most 1.1",
}


@dataclass
class Bench:
    """What all measurements share.

    Attributes
    ----------
    folder
        Where slabs, other formats and caches lie.
    network
        The proxy before nginx, which serves the folder.
    rounds
        Turns of each measurement.
    """

    folder: Path
    network: SlowNetwork
    rounds: int
    numbers: Iterator[int]
    watch: Watch

    @contextmanager
    def make_cache(self) -> Iterator[Path]:
        """Give an empty cache directory, and remove it."""
        cache = self.folder / f"cache-{next(self.numbers)}"
        try:
            yield cache
        finally:
            shutil.rmtree(cache, ignore_errors=True)

    def read(
        self, name: str, url: str, latency: float, bandwidth: float | None, **options: Any
    ) -> dict[str, float]:
        """Let a reader read an epoch; see `readers.measure`. Raises Refusal."""
        self.watch.look()
        with self.make_cache() as cache:
            self.network.set(latency, bandwidth)
            result = read(name, url, cache, options)
            traffic = self.network.set(0)
        return result | {"requests": traffic.requests, "fetched": traffic.bytes}


def read(name: str, url: str, cache: Path, options: dict[str, Any]) -> dict[str, float]:
    """Run a reader in a process of its own. Raises Refusal."""
    request = {"name": name, "url": url, "cache": str(cache), "options": options}
    environment = os.environ | {
        "PYTHONPATH": python_path(),
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    command = [interpreter(name) if name in PEERS else sys.executable, "-P", "-m"]
    command += ["fieldslab.bench.remote.readers", json.dumps(request)]
    try:
        child = run_process(
            command, capture_output=True, text=True, env=environment, timeout=PATIENCE
        )
    except TimeoutExpired:
        raise Refusal("failed", f"no end within {PATIENCE:.0f} s") from None
    if not child.stdout:  # after it, threads of obstore may abort the interpreter's end
        raise Refusal("failed", f"{explain(child.stderr)} (exit status {child.returncode})")
    result: dict[str, float] = json.loads(child.stdout.splitlines()[-1])
    return result


def explain(text: str) -> str:
    """Return the line of a traceback that says what went wrong, or the last line."""
    lines = text.strip().splitlines() or ["it ended without a word"]
    return next(
        (line for line in lines if re.match(r"\w[\w.]*(Error|Exception)\b", line)), lines[-1]
    )


def measure_epochs(bench: Bench, slab: str, local: Path, quick: bool) -> dict[str, Any]:
    """Measure the first epoch beside obstore alone, at every latency, with and without a limit."""
    results: dict[str, Any] = {}
    url = f"{bench.network.address}/{slab}"
    files = {str(path.relative_to(local)): path.stat().st_size for path in local.rglob("*.npy")}
    bench.read("fieldslab", url, 0, None)  # compiles, if that is still to be done
    settings = [(latency, BANDWIDTH) for latency in ((USUAL,) if quick else LATENCIES)]
    for latency, bandwidth in [*settings, (USUAL, None)]:
        rounds = [
            (
                bench.read("obstore", url, latency, bandwidth, files=files),
                bench.read("fieldslab", url, latency, bandwidth),
            )
            for _ in range(bench.rounds)
        ]
        alone, ours = ([pair[who] for pair in rounds] for who in (0, 1))
        limit = "no limit" if bandwidth is None else f"{bandwidth / 1e6:.0f} MB/s"
        where = f"{latency * 1e3:.0f} ms, {limit}"
        results[f"{where}: first epoch / obstore alone"] = ratio(
            [each["seconds"] for each in ours], [each["seconds"] for each in alone]
        )
        results |= {f"{where}: {name}": value for name, value in summarize(ours).items()}
        rates = [each["fetched"] / each["seconds"] / 1e6 for each in alone]
        results[f"{where}: obstore alone, MB/s"] = spread(rates)
    return results


def summarize(rounds: list[dict[str, float]]) -> dict[str, Any]:
    """Summarize figures of a reader as medians with quartiles."""
    figures: dict[str, Callable[[dict[str, float]], float]] = {
        "MB/s": lambda each: each["bytes"] / each["seconds"] / 1e6,
        "first batch, s": lambda each: each["first"],
        "bytes fetched / bytes used": lambda each: each["fetched"] / each["bytes"],
        "requests / GB": lambda each: each["requests"] / each["bytes"] * 1e9,
        "memory, MB": lambda each: each["memory"] / 1e6,
    }
    return {name: spread([figure(each) for each in rounds]) for name, figure in figures.items()}


def spread(values: list[float]) -> Ratio:
    """Return median and quartiles."""
    low, middle, high = np.percentile(values, [25, 50, 75]).tolist()
    return Ratio(middle, low, high)


def measure_second_epoch(bench: Bench, slab: str, local: Path, rounds: int) -> dict[str, Any]:
    """Measure epochs of a whole mirror and of the slab itself, in turns in this process."""
    with bench.make_cache() as cache:
        remote = open_slab(f"{bench.network.address}/{slab}", cache_dir=cache)
        calls = {}
        for name, opened in (("mirror", remote), ("local", open_slab(local))):
            calls[name] = make_epochs(Loader(opened, 64, Shuffled(0), threads=2))
        seconds = interleave(calls, rounds)
    return {"second epoch, whole mirror / local slab": ratio(seconds["mirror"], seconds["local"])}


def make_epochs(loader: Loader) -> Callable[[], None]:
    """Read an epoch with each call."""

    def read_epoch() -> None:
        for _ in loader:
            pass

    return read_epoch


def measure_limit(bench: Bench, slab: str, size: int) -> dict[str, Any]:
    """Measure a cache of a quarter of the slab, with an order that reads a few shards at a time."""
    url = f"{bench.network.address}/{slab}"
    rounds = [
        bench.read("fieldslab", url, USUAL, BANDWIDTH, window=2, limit=size // 4)
        for _ in range(bench.rounds)
    ]
    return {f"cache of a quarter, Near: {name}": v for name, v in summarize(rounds).items()}


def measure_sharing(bench: Bench, slab: str, size: int) -> dict[str, Any]:
    """Measure processes and DataLoader workers on one cache: what they fetch together."""
    url = f"{bench.network.address}/{slab}"
    together = bench.read("workers", url, USUAL, BANDWIDTH, workers=WORKERS)
    with bench.make_cache() as cache, ThreadPoolExecutor(PROCESSES) as threads:
        bench.network.set(USUAL, BANDWIDTH)
        for child in [threads.submit(read, "fieldslab", url, cache, {}) for _ in range(PROCESSES)]:
            child.result()
        traffic = bench.network.set(0)
    label = "on one cache: bytes fetched / bytes of the slab"
    return {
        f"{PROCESSES} processes {label}": traffic.bytes / size,
        f"{WORKERS} workers {label}": together["fetched"] / size,
    }


def measure_s3(bench: Bench, local: Path) -> dict[str, Any]:
    """Measure the first epoch from moto's S3, whose server is written in Python and the limit."""
    with run_s3() as port, run_network(port) as network:
        upload(local, port, "slabs")
        storage = {"endpoint": network.address, "region": "us-east-1", "skip_signature": True}
        own = Bench(bench.folder, network, bench.rounds, bench.numbers, bench.watch)
        rounds = [
            own.read("fieldslab", "s3://slabs", USUAL, BANDWIDTH, storage=storage)
            for _ in range(bench.rounds)
        ]
    return {f"S3 of moto, 20 ms: {name}": value for name, value in summarize(rounds).items()}


def measure_peers(bench: Bench, source: Workload) -> dict[str, Any]:
    """Measure other formats on the same server, as they come, an epoch into an empty cache."""
    results: dict[str, Any] = {}
    for peer in PEERS:
        place = f"20 ms, 250 MB/s, {peer}"
        bucket = bench.folder / peer.split()[0].lower().replace("mosaicml", "mds")
        try:
            with_child(peer, source, bucket)
            path = "data.lance" if peer == "Lance" else "data"
            if peer == "Lance":
                write_listing(bench.folder, "data.lance/_versions")
            rounds = [
                bench.read(peer, bench.network.address, USUAL, BANDWIDTH, path=path)
                for _ in range(bench.rounds)
            ]
            results |= {f"{place}: {name}": v for name, v in summarize(rounds).items()}
        except Refusal as refusal:
            print(f"{peer} is {refusal.kind}: {refusal}", file=sys.stderr)
        finally:
            shutil.rmtree(bucket, ignore_errors=True)
    return results


def with_child(peer: str, source: Workload, folder: Path) -> None:
    """Convert the photographs into a peer's format. Raises Refusal."""
    child = Child(peer)
    try:
        child.ask("convert", source=str(source.folder), folder=str(folder))
    finally:
        child.close()


def run(quick: bool = False) -> dict[str, Any]:
    """Measure everything and print it; the result is ready for JSON."""
    find_nginx()
    size, rounds = (96 * MIB, 3) if quick else (512 * MIB, 5)
    watch = Watch()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="fieldslab-bench-") as name:
        folder = Path(name)
        images = list(repeated_photographs(size))
        labels = np.arange(len(images), dtype=np.int64)
        columns = {"image": images, "label": labels}
        source = save(folder / "source", "photographs", "photographs", 64, columns)
        del images, columns
        local = folder / "photographs.slab"
        pack(source.batches(), local, shard_size=size // 16, shuffle=0)
        stored = sum(path.stat().st_size for path in local.rglob("*") if path.is_file())
        with run_nginx(folder, folder / "nginx") as port, run_network(port) as network:
            bench = Bench(folder, network, rounds, count(), watch)
            parts: list[Callable[[], dict[str, Any]]] = [
                lambda: measure_epochs(bench, local.name, local, quick),
                lambda: measure_second_epoch(bench, local.name, local, 2 * rounds + 1),
                lambda: measure_limit(bench, local.name, stored),
                lambda: measure_sharing(bench, local.name, stored),
                lambda: measure_s3(bench, local),
                lambda: measure_peers(bench, source),
            ]
            for measure_part in parts:
                part = measure_part()
                show(part, MARKS)
                results |= part
    machine = describe(("fieldslab", "obstore", "litdata", "pylance")) | watch.found()
    if (warning := busy(machine)) is not None:
        print(warning)
    return {"machine": machine, **results}


if __name__ == "__main__":
    try:
        program(run, __doc__)
    except MissingLibrary as error:
        print(f"Slabs at a distance are left out: {error}", file=sys.stderr)
