"""Batches of several sizes in several orders, and whole subsets."""

from collections.abc import Iterator
from itertools import repeat

import numpy as np

from fieldslab.bench.slab.results import BatchSize, Speed, Spread, Subsets
from fieldslab.bench.slab.strategies import ORDERS, STRATEGIES, subset
from fieldslab.bench.slab.subject import Subject
from fieldslab.bench.slab.turns import Turn, take_turns
from fieldslab.bench.spans import Spans, written_pages

SUBSET = 50_000
"""Rows of a subset, where there are as many."""
_ROUNDS = 5


def measure(subject: Subject, seconds: float) -> list[BatchSize]:
    """Measure batches of each size: random, stratified, blocked, sequential, and a memcpy."""
    each = seconds / len(subject.sizes)
    return [_size(subject, rows, each) for rows in subject.sizes]


def _size(subject: Subject, rows: int, seconds: float) -> BatchSize:
    turns = {order: subject.gathers(order, rows, lane) for lane, order in enumerate(ORDERS)}
    turns["memcpy"] = subject.copies("random", rows)
    times_by_name = take_turns(turns, seconds)
    speeds = {
        name: Speed(name, rows, rows * subject.row_bytes, Spread.of(times))
        for name, times in times_by_name.items()
    }
    return BatchSize(rows, [speeds[order] for order in ORDERS], speeds["memcpy"])


def measure_subsets(subject: Subject, seconds: float, rate: float) -> Subsets:
    """Measure subsets by each strategy, batch by batch, and a memcpy of a random one.

    `rate` is how many rows a second are to be expected: subsets are smaller than `SUBSET` where
    they would take longer than there is.
    """
    within = rate * seconds / (_ROUNDS * (len(STRATEGIES) + 1))
    batch = subject.usual
    rows = int(min(SUBSET, len(subject.slab), max(within, 4 * batch)))

    def gather_all(chosen: list[np.ndarray]) -> None:
        held = None
        for batch_rows in chosen:
            held = subject.gather(batch_rows)
        del held

    turns = {
        strategy: Turn(_subsets(subject, strategy, rows, batch), gather_all)
        for strategy in STRATEGIES
    }
    spans = [
        Spans(subject.slab, batch_rows, subject.fields)
        for batch_rows in _cut(
            subset("random", len(subject.slab), rows, batch, subject.seed + 7), batch
        )
    ]
    target = written_pages(max(span.nbytes for span in spans))

    def copy_all(chosen: list[Spans]) -> None:
        for span in chosen:
            span.copy(target)

    turns["memcpy"] = Turn(repeat(spans), copy_all)
    times_by_name = take_turns(turns, seconds, least=3)
    speeds = [
        Speed(name, rows, rows * subject.row_bytes, Spread.of(times))
        for name, times in times_by_name.items()
    ]
    return Subsets(rows, batch, speeds[:-1], speeds[-1])


def _subsets(subject: Subject, strategy: str, rows: int, batch: int) -> Iterator[list[np.ndarray]]:
    seed = subject.seed
    while True:
        yield _cut(subset(strategy, len(subject.slab), rows, batch, seed), batch)
        seed += 1


def _cut(rows: np.ndarray, batch: int) -> list[np.ndarray]:
    return [rows[start : start + batch] for start in range(0, len(rows), batch)]
