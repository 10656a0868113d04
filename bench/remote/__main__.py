"""Slabs at a distance: `python -m fieldslab.bench.remote [--quick] [--readme]`.

Photographs lie on a web server (nginx), behind a proxy that adds latency and limits bandwidth. An
epoch is read by obstore alone, which keeps nothing, by fieldslab into an empty cache, and by other
streaming formats. Each runs in a process of its own, and all take turns. `MARKS` says what is
expected. A server and the proxy need processor time, too: on few cores they slow down whoever is
near the limit. Each part has its time: no turn begins after that. In a checkout, `--readme` writes
`bench/results/remote.json`, and the tables of docs/explanation/benchmarks.md.
"""

import argparse
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from subprocess import PIPE, Popen, TimeoutExpired
from typing import Any

import numpy as np

from fieldslab.bench.loader import MIB, show
from fieldslab.bench.machine import Watch, busy, describe
from fieldslab.bench.peers.children import Child, Refusal, interpreter, python_path
from fieldslab.bench.peers.source import Workload, save
from fieldslab.bench.photographs import repeated_photographs
from fieldslab.bench.readme import RESULTS, publish
from fieldslab.bench.remote.large import SHARDS, write_large_manifest
from fieldslab.bench.remote.servers import (
    SlowNetwork,
    find_nginx,
    run_network,
    run_nginx,
    run_s3,
    upload,
    write_listing,
)
from fieldslab.bench.remote.table import ALONE, make_tables
from fieldslab.bench.timing import Ratio, interleave, ratio
from fieldslab.packer import pack
from fieldslab.reader import Loader, Shuffled, open_slab
from fieldslab.schemas.errors import MissingLibrary

LATENCIES = (0.0, 0.005, 0.02, 0.1)
BANDWIDTH = 250e6
"""Bytes a second: 2 Gbit/s, about what a machine gets from a bucket for one of its GPUs."""
USUAL = 0.02
USUAL_NETWORK = "20 ms, 250 MB/s"
PROCESSES, WORKERS = 4, 8
PATIENCE = 60.0
"""Seconds that an epoch may take; then that is reported."""
PEERS = ("LitData", "MosaicML Streaming", "Lance")
OPENING = f"opening {SHARDS:,} shards at 20 ms"
MARKS = {
    f"{USUAL_NETWORK}: first epoch / obstore alone": "at least 0.8",
    f"{USUAL_NETWORK}: bytes fetched / bytes used": "at most 1.1",
    "second epoch, whole mirror / local slab": "at least 0.97",
    f"{OPENING}: s": "at most 0.5",
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
    quick
        Whether time and turns are few.
    """

    folder: Path
    network: SlowNetwork
    quick: bool
    numbers: Iterator[int]
    watch: Watch

    def take_turns(self, seconds: float) -> Iterator[int]:
        """Count turns: no new one begins after so many seconds, or a fifth of them if quick."""
        end = time.monotonic() + (seconds / 5 if self.quick else seconds)
        for turn in range(2 if self.quick else 7):
            if turn and time.monotonic() > end:
                return
            yield turn

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
    with Popen(
        command, stdout=PIPE, stderr=PIPE, text=True, env=environment, start_new_session=True
    ) as child:
        try:
            output, messages = child.communicate(timeout=PATIENCE)
        except TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)  # its workers, too, who hold the pipes
            raise Refusal("failed", f"no end within {PATIENCE:.0f} s") from None
    if not output:  # after it, threads of obstore may abort the interpreter's end
        raise Refusal("failed", f"{explain(messages)} (exit status {child.returncode})")
    result: dict[str, float] = json.loads(output.splitlines()[-1])
    return result


def explain(text: str) -> str:
    """Return the line of a traceback that says what went wrong, or the last line."""
    lines = text.strip().splitlines() or ["it ended without a word"]
    return next(
        (line for line in lines if re.match(r"\w[\w.]*(Error|Exception)\b", line)), lines[-1]
    )


def measure_epochs(bench: Bench, local: Path) -> dict[str, Any]:
    """Measure the first epoch beside obstore alone, at every latency, with and without a limit."""
    results: dict[str, Any] = {}
    url = f"{bench.network.address}/{local.name}"
    files = {str(path.relative_to(local)): path.stat().st_size for path in local.rglob("*.npy")}
    bench.read("fieldslab", url, 0, None)  # compiles, if that is still to be done
    settings = [(latency, BANDWIDTH) for latency in ((USUAL,) if bench.quick else LATENCIES)]
    for latency, bandwidth in [*settings, (USUAL, None)]:
        where = name_network(latency, bandwidth)
        ours, alone = [], []
        for turn in bench.take_turns(45 if where == USUAL_NETWORK else 20):
            for mine in (True, False) if turn % 2 else (False, True):
                if mine:
                    ours.append(bench.read("fieldslab", url, latency, bandwidth))
                else:
                    alone.append(bench.read("obstore", url, latency, bandwidth, files=files))
        results[f"{where}: first epoch / obstore alone"] = ratio(
            [each["seconds"] for each in ours], [each["seconds"] for each in alone]
        )
        results |= {f"{where}: {name}": value for name, value in summarize(ours).items()}
        results |= {f"{where}, {ALONE}: {name}": v for name, v in summarize(alone).items()}
    return results


def name_network(latency: float, bandwidth: float | None) -> str:
    """Return latency and bandwidth in words."""
    limit = "no limit" if bandwidth is None else f"{bandwidth / 1e6:.0f} MB/s"
    return f"{latency * 1e3:.0f} ms, {limit}"


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


def measure_second_epoch(bench: Bench, local: Path) -> dict[str, Any]:
    """Measure epochs of a whole mirror and of the slab itself, in turns in this process."""
    with bench.make_cache() as cache:
        remote = open_slab(f"{bench.network.address}/{local.name}", cache_dir=cache)
        calls = {}
        for name, opened in (("mirror", remote), ("local", open_slab(local))):
            calls[name] = make_epochs(Loader(opened, 64, Shuffled(0), threads=2))
        seconds = interleave(calls, 5 if bench.quick else 21)
    return {"second epoch, whole mirror / local slab": ratio(seconds["mirror"], seconds["local"])}


def measure_opening(bench: Bench, local: Path) -> dict[str, Any]:
    """Measure opening a slab of 10 TB."""
    large = bench.folder / "large.slab"
    write_large_manifest(local, large)
    url = f"{bench.network.address}/{large.name}"
    rounds = [bench.read("opening", url, USUAL, BANDWIDTH) for _ in bench.take_turns(10)]
    return {
        f"{OPENING}: s": spread([each["seconds"] for each in rounds]),
        f"{OPENING}: requests": spread([each["requests"] for each in rounds]),
        f"{OPENING}: MB": spread([each["fetched"] / 1e6 for each in rounds]),
    }


def make_epochs(loader: Loader) -> Callable[[], None]:
    """Read an epoch with each call."""

    def read_epoch() -> None:
        for _ in loader:
            pass

    return read_epoch


def measure_limit(bench: Bench, local: Path, size: int) -> dict[str, Any]:
    """Measure a cache of half of the slab, with an order that reads a few shards at a time."""
    url = f"{bench.network.address}/{local.name}"
    options = {"window": 2, "limit": size // 2, "epochs": 3}
    rounds = [
        bench.read("fieldslab", url, USUAL, BANDWIDTH, **options) for _ in bench.take_turns(15)
    ]
    name = "3 epochs of Near, cache of half the slab"
    return {f"{name}: {figure}": value for figure, value in summarize(rounds).items()}


def measure_sharing(bench: Bench, local: Path, size: int) -> dict[str, Any]:
    """Measure processes and DataLoader workers on one cache: what they fetch together."""
    url = f"{bench.network.address}/{local.name}"
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


def measure_s3(bench: Bench, source: Workload) -> dict[str, Any]:
    """Measure less data on moto's S3, whose server is written in Python and the limit."""
    local = bench.folder / "small.slab"
    pack(source.batches(), local, shard_size=4 * MIB, shuffle=0)
    with run_s3() as port, run_network(port) as network:
        upload(local, port, "slabs")
        storage = {"endpoint": network.address, "region": "us-east-1"}
        own = Bench(bench.folder, network, bench.quick, bench.numbers, bench.watch)
        rounds = [
            own.read("fieldslab", "s3://slabs", USUAL, BANDWIDTH, storage=storage)
            for _ in own.take_turns(15)
        ]
    return {f"S3 of moto, 20 ms: {name}": value for name, value in summarize(rounds).items()}


def measure_peers(bench: Bench, source: Workload) -> dict[str, Any]:
    """Measure other formats on the same server, as they come, an epoch into an empty cache."""
    results: dict[str, Any] = {}
    for peer in PEERS:
        place = f"{USUAL_NETWORK}, {peer}"
        bucket = bench.folder / peer.split()[0].lower().replace("mosaicml", "mds")
        try:
            with_child(peer, source, bucket)
            path = "data.lance" if peer == "Lance" else "data"
            if peer == "Lance":
                write_listing(bench.folder, "data.lance/_versions")
            rounds = [
                bench.read(peer, bench.network.address, USUAL, BANDWIDTH, path=path)
                for _ in bench.take_turns(15)
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


def save_photographs(folder: Path, size: int) -> Workload:
    """Write about `size` bytes of photographs, with labels, for all formats to be made of."""
    images = list(repeated_photographs(size))
    columns = {"image": images, "label": np.arange(len(images), dtype=np.int64)}
    return save(folder, "photographs", "photographs", 64, columns)


def run(quick: bool = False) -> dict[str, Any]:
    """Measure everything and print it; the result is ready for JSON."""
    find_nginx()
    size = (96 if quick else 512) * MIB
    watch = Watch()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="fieldslab-bench-") as name:
        folder = Path(name)
        source = save_photographs(folder / "source", size)
        local = folder / "photographs.slab"
        pack(source.batches(), local, shard_size=size // 16, shuffle=0)
        stored = sum(path.stat().st_size for path in local.rglob("*") if path.is_file())
        with run_nginx(folder, folder / "nginx") as port, run_network(port) as network:
            bench = Bench(folder, network, quick, count(), watch)
            parts: list[Callable[[], dict[str, Any]]] = [
                lambda: measure_epochs(bench, local),
                lambda: measure_second_epoch(bench, local),
                lambda: measure_opening(bench, local),
                lambda: measure_limit(bench, local, stored),
                lambda: measure_sharing(bench, local, stored),
                lambda: measure_s3(bench, save_photographs(folder / "less", 48 * MIB)),
                lambda: measure_peers(bench, source),
            ]
            for measure_part in parts:
                try:
                    part = measure_part()
                except Refusal as refusal:
                    print(f"not measured: {refusal}", file=sys.stderr)
                    continue
                show(part, MARKS)
                results |= part
    machine = describe(("fieldslab", "obstore", "litdata", "pylance")) | watch.found()
    if (warning := busy(machine)) is not None:
        print(warning)
    return {"machine": machine, "usual": USUAL_NETWORK, "bytes": stored, **results}


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less data, fewer turns")
    parser.add_argument("--readme", action="store_true", help="write the tables in docs/")
    options = parser.parse_args()
    try:
        results = run(options.quick)
    except MissingLibrary as error:
        print(f"Slabs at a distance are left out: {error}", file=sys.stderr)
        return 0
    if options.readme:
        (RESULTS / "remote.json").write_text(json.dumps(results, indent=2) + "\n")
        publish("remote", make_tables(results, PEERS, MARKS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
