"""Several threads that gather at once."""

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from threading import Barrier

import numpy as np

from fieldslab.bench.machine import usable_cores
from fieldslab.bench.slab.results import Threads
from fieldslab.bench.slab.subject import Subject
from fieldslab.bench.slab.turns import Turn

_ROUNDS = 5
_LEAST, _MOST = 4, 1024
"""Batches that are drawn for each thread, and gathered again and again."""


def counts(cores: int) -> list[int]:
    """Return numbers of threads to measure: 1, 2, 4 and so on, and all cores."""
    powers = [1 << power for power in range(cores.bit_length())]
    return sorted({count for count in powers if count < cores} | {cores})


def measure(subject: Subject, seconds: float) -> list[Threads]:
    """Measure random batches and memcpy in turns, from 1 thread to one a core."""
    numbers = counts(usable_cores())
    each = seconds / (len(numbers) * (_ROUNDS + 1) * 2)
    return [_threads(subject, number, each) for number in numbers]


def _threads(subject: Subject, number: int, seconds: float) -> Threads:
    size = subject.usual
    gathers = [_prepared(subject.gathers("random", size, lane), seconds) for lane in range(number)]
    copies = [
        _prepared(subject.copies("random", size, 500 + lane), seconds) for lane in range(number)
    ]
    gathered, copied = [], []
    with ThreadPoolExecutor(number) as pool:
        for turn in range(-1, _ROUNDS):
            rates = _together(pool, gathers, seconds), _together(pool, copies, seconds)
            if turn >= 0:
                gathered.append(rates[0])
                copied.append(rates[1])
    low, median, high = np.percentile(gathered, [25, 50, 75]).tolist()
    scale = size * subject.row_bytes
    return Threads(
        number,
        size,
        median * size,
        median * scale,
        low * scale,
        high * scale,
        float(np.median(copied)) * scale,
    )


def _prepared(turn: Turn, seconds: float) -> Turn:
    """The same call with arguments that are there already, so that threads do nothing else."""
    arguments: list[object] = []
    end = time.perf_counter() + seconds
    while len(arguments) < _LEAST or (len(arguments) < _MOST and time.perf_counter() < end):
        arguments.append(next(turn.arguments))
    return Turn(cycle(arguments), turn.call)


def _together(pool: ThreadPoolExecutor, turns: list[Turn], seconds: float) -> float:
    """Batches a second of all threads together."""
    barrier = Barrier(len(turns))

    def work(turn: Turn) -> float:
        barrier.wait()
        held = None
        done = 0
        started = time.perf_counter()
        while (took := time.perf_counter() - started) < seconds or not done:
            held = turn.call(next(turn.arguments))
            done += 1
        del held
        return done / took

    return sum(pool.map(work, turns))
