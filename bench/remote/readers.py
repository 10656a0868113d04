"""Who reads at a distance: an epoch each, through obstore alone, fieldslab, and other formats.

`python -m fieldslab.bench.remote.readers JSON` runs one of them once in a process of its own, and
prints what `measure` found. Imports are not timed.
"""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np

PART = 4 * 2**20
REQUESTS = 64
BATCH = 64
WORKERS = 2


def read_obstore(url: str, cache: str, **options: Any) -> Iterator[int]:
    """Fetch all bytes of the slab's arrays in pieces of 4 MiB, 64 at a time; keep none."""
    import obstore
    from obstore.store import HTTPStore

    store = HTTPStore(url, client_options={"allow_http": True})
    parts = [
        (name, start, min(start + PART, size))
        for name, size in options["files"].items()
        for start in range(0, size, PART)
    ]

    async def fetch_all() -> None:
        limit = asyncio.Semaphore(REQUESTS)

        async def fetch(name: str, start: int, stop: int) -> None:
            async with limit:
                await obstore.get_range_async(store, name, start=start, end=stop)

        await asyncio.gather(*(fetch(*part) for part in parts))

    yield 0
    asyncio.run(fetch_all())
    yield sum(stop - start for _, start, stop in parts)


def read_slab(url: str, cache: str, **options: Any) -> Iterator[int]:
    """Load a shuffled epoch of a mirror in two threads; with `window`, in the order `Near`."""
    from fieldslab.reader import Loader, Near, Shuffled, open_slab

    yield 0
    storage = options.get("storage")
    limit = options.get("limit")
    slab = open_slab(url, cache_dir=cache, cache_limit=limit, storage_options=storage)
    order = Near(1, options["window"]) if options.get("window") else Shuffled(0)
    with Loader(slab, BATCH, order, threads=WORKERS) as loader:
        for batch in chain.from_iterable(repeat(loader, options.get("epochs", 1))):
            yield sum(batch[name].nbytes for name in batch)


def read_manifest(url: str, cache: str, **options: Any) -> Iterator[int]:
    """Open a slab, and read nothing of it."""
    from fieldslab.reader import open_slab

    yield 0
    yield len(open_slab(url, cache_dir=cache))


def read_slab_workers(url: str, cache: str, **options: Any) -> Iterator[int]:
    """Load an epoch with a DataLoader whose workers share one mirror."""
    import torch
    from torch.utils.data import DataLoader

    from fieldslab.reader import open_slab
    from fieldslab.reader.torch import SlabDataset, collate

    yield 0
    data = SlabDataset(open_slab(url, cache_dir=cache))
    torch.set_num_threads(1)
    settings = {"shuffle": True, "num_workers": options["workers"], "collate_fn": collate}
    yield from (len(batch["label"]) for batch in DataLoader(data, BATCH, **settings))


def read_litdata(url: str, cache: str, **options: Any) -> Iterator[int]:
    """Load with StreamingDataset and StreamingDataLoader, shuffled, with two workers."""
    from litdata import StreamingDataLoader, StreamingDataset, streaming
    from litdata.streaming.resolver import Dir

    from fieldslab.bench.peers.formats.litdata import Owned

    options_of_client: Any = streaming.downloader._OBSTORE_CLIENT_OPTIONS
    options_of_client["allow_http"] = True  # its own options leave only https
    yield 0
    data = StreamingDataset(
        Dir(path=cache, url=f"s3://litdata/{options['path']}"),
        shuffle=True,
        serializers={"bytes": Owned()},
        storage_options={"endpoint_url": url, "region_name": "us-east-1"},
    )
    loader = StreamingDataLoader(
        data, batch_size=BATCH, num_workers=WORKERS, collate_fn=list, drop_last=False
    )
    yield from (sum(len(row["image"]) for row in batch) for batch in loader)


def read_mds(url: str, cache: str, **options: Any) -> Iterator[int]:
    """Load with StreamingDataset and StreamingDataLoader, shuffled, with two workers."""
    import fieldslab.bench.peers.formats.mds  # noqa: F401 - imports it despite a broken torchvision

    streaming: Any = sys.modules["streaming"]

    yield 0
    os.environ["S3_ENDPOINT_URL"] = url
    streaming.base.util.clean_stale_shared_memory()
    data = streaming.StreamingDataset(
        remote=f"s3://mds/{options['path']}",
        local=cache,
        batch_size=BATCH,
        shuffle=True,
        num_canonical_nodes=1,
    )
    loader = streaming.StreamingDataLoader(
        data, batch_size=BATCH, num_workers=WORKERS, collate_fn=list
    )
    yield from (sum(len(row["image"]) for row in batch) for batch in loader)


def read_lance(url: str, cache: str, **options: Any) -> Iterator[int]:
    """Take 64 random rows at a time in two threads; Lance keeps nothing on the disk."""
    from concurrent.futures import ThreadPoolExecutor

    import lance

    yield 0
    data = lance.dataset(
        f"s3://lance/{options['path']}",
        storage_options={
            "aws_endpoint": url,
            "aws_region": "us-east-1",
            "aws_access_key_id": "nobody",
            "aws_secret_access_key": "nothing",
            "allow_http": "true",
        },
    )
    rows = np.random.default_rng(0).permutation(data.count_rows())
    batches = [rows[start : start + BATCH].tolist() for start in range(0, len(rows), BATCH)]
    with ThreadPoolExecutor(WORKERS) as threads:
        for table in threads.map(data.take, batches):
            yield int(table.nbytes)


READERS: dict[str, Callable[..., Iterator[int]]] = {
    "obstore": read_obstore,
    "fieldslab": read_slab,
    "opening": read_manifest,
    "workers": read_slab_workers,
    "LitData": read_litdata,
    "MosaicML Streaming": read_mds,
    "Lance": read_lance,
}


def measure(name: str, url: str, cache: str, options: dict[str, Any]) -> dict[str, float]:
    """Measure seconds to the first batch and of the epoch, its bytes, and peak RssAnon."""
    batches = READERS[name](url, cache, **options)
    next(batches)  # libraries are imported
    watch = MemoryWatch()
    started = time.perf_counter()
    first = None
    total = 0
    for count in batches:
        first = time.perf_counter() - started if first is None else first
        total += count
    seconds = time.perf_counter() - started
    return {"first": first or seconds, "seconds": seconds, "bytes": total, "memory": watch.end()}


class MemoryWatch:
    """Looks at the memory of this process and of those it started, ten times a second."""

    def __init__(self) -> None:
        self._most = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def end(self) -> int:
        """Return the most bytes there were."""
        self._ended.set()
        self._thread.join()
        return self._most

    def _look(self) -> None:
        while True:
            self._most = max(self._most, sum(map(read_memory, list_family(os.getpid()))))
            if self._ended.wait(0.1):
                return


def list_family(process: int) -> list[int]:
    """Return a process and all it started, as far as they live."""
    family = [process]
    for number in family:
        for path in Path(f"/proc/{number}/task").glob("*/children"):
            try:
                family += map(int, path.read_text().split())
            except OSError:
                continue
    return family


def read_memory(process: int) -> int:
    """Return the bytes of memory that are a process's own; 0 for one that ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))), flush=True)
