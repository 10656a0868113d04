"""Results as a measurement could have found them, for what is written about them."""

from typing import Any

from fieldslab.bench.slab.results import (
    BatchSize,
    Cold,
    Decode,
    Latency,
    Memory,
    Results,
    Speed,
    Spread,
    Subsets,
    Threads,
)
from fieldslab.bench.slab.strategies import ORDERS, STRATEGIES
from fieldslab.bench.slab.targets import targets


def spread(median: float, width: float = 0.1) -> Spread:
    """Times around a median, whose quartiles are `width` of it apart."""
    low, high = median * (1 - width / 2), median * (1 + width / 2)
    return Spread(100, median, median, low, high, 1.5 * median, 2 * median)


def speed(name: str, rows: float, seconds: float, row_bytes: float, width: float = 0.1) -> Speed:
    """A call that yields rows."""
    return Speed(name, rows, rows * row_bytes, spread(seconds, width))


def results(
    *,
    row_bytes: float = 100_000,
    row: float = 20e-6,
    per_row: float = 10e-6,
    memcpy: float = 8e-6,
    growth: int = 0,
    cold: float | None = 100e-6,
    blocked_gain: float = 4,
    stored: int = 10**9,
    width: float = 0.1,
    threads: tuple[float, ...] = (10e9, 18e9),
    fields: tuple[dict[str, Any], ...] = ({"name": "x"},),
    images: bool = False,
) -> Results:
    """Results; `per_row`, `memcpy` and `cold` are seconds a row."""
    sizes = [
        BatchSize(
            size,
            [speed(order, size, size * per_row, row_bytes, width) for order in ORDERS],
            speed("memcpy", size, size * memcpy, row_bytes),
        )
        for size in (16, 32, 64, 256)
    ]
    named = {"kind": "fixed", "dtype": "float32", "shape": [4], "codec": None, "compressed": False}
    outcome = Results(
        machine={
            "processor": "Testium <2000>",
            "cores": 2,
            "memory_bytes": 4 * 10**9,
            "system": "Linux 6",
            "python": "3.12.1",
            "libraries": {"numpy": "2.0"},
            "load": 0.5,
        },
        slab={
            "path": "/data/<b>train.slab",
            "id": "0" * 64,
            "rows": 10_000,
            "shards": 1,
            "stored_bytes": stored,
            "row_bytes": row_bytes,
            "measured_rows": 10_000,
            "fields": [named | field for field in fields],
        },
        method={
            "seconds": 1.0,
            "seed": 0,
            "timed": "all",
            "warm_up": "once",
            "spread": "quartiles",
            "memcpy": "of the same",
            "orders": {"random": "any"},
        },
        date="2000-01-01T00:00:00+00:00",
        latency=Latency(
            speed("slab[row]", 1, row, row_bytes),
            [speed(ahead, 1, 4 * row, row_bytes) for ahead in ("0", "1", "4", "16")],
            speed("memcpy", 1, memcpy, row_bytes),
            [1e3 * row * (1 + index % 7) for index in range(200)],
        ),
        batches=sizes,
        subsets=Subsets(
            10_000,
            64,
            [speed(strategy, 10_000, 10_000 * per_row, row_bytes) for strategy in STRATEGIES],
            speed("memcpy", 10_000, 10_000 * memcpy, row_bytes),
        ),
        threads=[
            Threads(index + 1, 64, rate / row_bytes, rate, 0.9 * rate, 1.1 * rate, 1.2 * rate)
            for index, rate in enumerate(threads)
        ],
        memory=Memory(64, [0, 10, 20], [10**8] * 2 + [10**8 + growth], [0, 10**8, 10**9], growth),
    )
    if cold is not None:
        faster = {"blocked": blocked_gain}
        outcome.cold = Cold(
            64,
            0.0,
            [speed(order, 64, 64 * cold / faster.get(order, 1), row_bytes) for order in ORDERS],
            [speed(order, 64, 64 * per_row, row_bytes) for order in ORDERS],
            spread(cold),
        )
    if images:
        ways = [
            speed("crop, flip, normalize", 64, 64 * 20 * per_row, row_bytes),
            speed("the same, 2 threads", 64, 64 * 11 * per_row, row_bytes),
        ]
        outcome.decode = [Decode("image", 64, ways, sizes[2].random, 0.0)]
    outcome.targets = targets(outcome)
    return outcome
