"""What is timed of one peer and one workload, in the peer's own process."""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import xxhash

from fieldslab.bench.peers.peer import NotOffered, Peer
from fieldslab.bench.peers.source import Row, Workload

SINGLE_ROWS = 20
DIGESTS = "digests.json"


class Mismatch(Exception):
    """A peer returned something else than what it was given."""


def digest(source: Workload, row: Row) -> str:
    """Digest a row's bytes, field by field, to one number."""
    state = xxhash.xxh3_128()
    for name, column in source.columns.items():
        value = column.bytes_of(row[name])
        state.update(len(value).to_bytes(8, "little"))
        state.update(value)
    return state.hexdigest()


def write_digests(source: Workload) -> None:
    """Note the digests of all rows beside the source, once for all peers."""
    digests = [digest(source, source.row(row)) for row in range(len(source))]
    (source.folder / DIGESTS).write_text(json.dumps(digests))


def check(peer: Peer, seconds: float) -> dict[str, Any]:
    """Compare what the peer returns with the digests of its source; raises Mismatch.

    Sequential reading must give every row in its place. Random batches are compared until the
    time is over, single rows by a sample. A shuffled epoch may only have rows of the source: how
    many are lost or repeated is reported, since some loaders do that on purpose.
    """
    source = peer.source
    truth: list[str] = json.loads((source.folder / DIGESTS).read_text())
    order = np.random.default_rng(0).permutation(len(source))
    seen = {"sequential": _compare(peer, truth, range(len(source)), peer.sequential)}
    if seen["sequential"] != len(source):
        raise Mismatch(f"{seen['sequential']} rows in order, expected {len(source)}")

    def random() -> Iterator[Any]:
        end = time.perf_counter() + seconds
        for start in range(0, len(source), peer.batch):
            if start and time.perf_counter() > end:
                return
            yield peer.random_batch(order[start : start + peer.batch])

    def single() -> Iterator[Any]:
        for row in order[:SINGLE_ROWS].tolist():
            yield [peer.row_of(peer.row(row))]

    for name, batches in (("random", random), ("row", single)):
        try:
            seen[name] = _compare(peer, truth, order.tolist(), batches, name == "row")
        except NotOffered:
            seen[name] = 0
    return seen | _check_epoch(peer, Counter(truth), seconds)


def _compare(
    peer: Peer,
    truth: list[str],
    rows: Any,
    batches: Callable[[], Iterator[Any]],
    plain: bool = False,
) -> int:
    expected = iter(rows)
    seen = 0
    for batch in batches():
        for values in batch if plain else peer.rows_of(batch):
            row = next(expected, None)
            if row is None or digest(peer.source, values) != truth[row]:
                raise Mismatch(f"row {row} differs from the source")
            seen += 1
    return seen


def _check_epoch(peer: Peer, truth: Counter[str], seconds: float) -> dict[str, Any]:
    digests: Counter[str] = Counter()
    end = time.perf_counter() + seconds
    whole = True
    for batch in peer.loader(0, 1):
        digests.update(digest(peer.source, row) for row in peer.rows_of(batch))
        if time.perf_counter() > end:
            whole = digests.total() >= truth.total()
            break
    if unknown := digests.keys() - truth.keys():
        raise Mismatch(f"{len(unknown)} rows of a shuffled epoch are not in the source")
    lost = sum((truth - digests).values()) if whole else 0
    again = sum((digests - truth).values())
    return {"epoch": digests.total(), "lost": lost, "repeated": again}


def first_batch(peer: Peer) -> dict[str, Any]:
    """Measure seconds to open and read the first batch, random if the peer offers it."""
    started = time.perf_counter()
    peer.open()
    opened = time.perf_counter()
    rows = np.random.default_rng(9).permutation(len(peer.source))[: peer.batch]
    try:
        peer.random_batch(rows)
    except NotOffered:
        next(peer.sequential())
    return {"open": opened - started, "batch": time.perf_counter() - opened}


def random_rate(peer: Peer, seconds: float, seed: int) -> dict[str, Any]:
    """Measure batches of random rows: rows and median seconds; no row twice in a batch.

    The median, so that a process that is kept waiting by another program is not called slow. The
    first batch warms the caches; where it alone takes longer than `seconds`, it is the figure.
    """
    count = min(peer.batch, len(peer.source))
    permuted = np.random.default_rng(seed).permutation(len(peer.source))
    starts = range(0, len(permuted) - count + 1, count)
    batches = [permuted[start : start + count] for start in starts]
    started = time.perf_counter()
    peer.random_batch(batches[-1])
    warming = time.perf_counter() - started
    if warming > seconds:
        return {"rows": count, "seconds": warming}
    spent: list[float] = []
    end = time.perf_counter() + seconds
    for batch in cycle(batches):
        started = time.perf_counter()
        peer.random_batch(batch)
        now = time.perf_counter()
        spent.append(now - started)
        if now > end:
            break
    return {"rows": count, "seconds": median(spent)}


def sequential_rate(peer: Peer, seconds: float, seed: int) -> dict[str, Any]:
    """Measure rows a second in order, from the request for the first batch on."""
    count = 0
    started = now = time.perf_counter()
    while now - started < seconds:
        for batch in peer.sequential():
            count += _count(batch)
            now = time.perf_counter()
            if now - started >= seconds:
                break
    return {"rows": count, "seconds": now - started}


def row_latency(peer: Peer, seconds: float, seed: int) -> dict[str, Any]:
    """Measure the median seconds of a single random row."""
    rows = np.random.default_rng(seed).integers(0, len(peer.source), 2000).tolist()
    peer.row(rows[-1])
    spent: list[float] = []
    end = time.perf_counter() + seconds
    for row in rows:
        started = time.perf_counter()
        peer.row(row)
        now = time.perf_counter()
        spent.append(now - started)
        if now > end:
            break
    return {"rows": 1, "seconds": median(spent)}


def loader_rate(peer: Peer, seconds: float, seed: int, workers: int) -> dict[str, Any]:
    """Measure rows a second of shuffled epochs, and memory meanwhile.

    In an epoch the clock starts after the first batch, and after as many more as may have waited
    in queues behind it: a quarter of the epoch, unless that takes longer than `seconds`. A short
    epoch is repeated until they are over.
    """
    begun = time.perf_counter()
    rows, spent, memory = 0, 0.0, 0
    while not rows or time.perf_counter() - begun < seconds:
        asked = time.perf_counter()
        batches = peer.loader(workers, seed)
        early = _count(next(batches))
        first = time.perf_counter()
        for batch in batches:
            if early > len(peer.source) // 4 or time.perf_counter() - first > seconds:
                break
            early += _count(batch)
        started = now = time.perf_counter()
        for batch in batches:
            rows += _count(batch)
            now = time.perf_counter()
            if now - started > seconds:
                break
        spent += now - started
        memory = memory or anonymous()
        if not rows:
            raise RuntimeError("its epoch ended within a quarter of the rows")
        del batch, batches
    return {"rows": rows, "seconds": spent, "start": first - asked, "memory": memory}


def _count(batch: Any) -> int:
    # A mapping of columns, a tuple that begins with row numbers, a table, or a list of rows.
    if isinstance(batch, Mapping):
        return len(next(iter(batch.values())))
    if isinstance(batch, tuple):
        return len(batch[0])
    return getattr(batch, "num_rows", None) or len(batch)


def anonymous() -> int:
    """Return bytes of memory that belong to this process and its workers alone (RssAnon)."""
    total = 0
    todo = [os.getpid()]
    while todo:
        process = Path(f"/proc/{todo.pop()}")
        try:
            lines = (process / "status").read_text().splitlines()
            for children in process.glob("task/*/children"):
                todo += map(int, children.read_text().split())
        except OSError:
            continue  # it has ended, or this system has no /proc
        total += sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024
    return total
