"""What a loader measures of itself."""

import time
from collections import deque
from dataclasses import asdict, dataclass, field
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from fieldslab.reader import forks

_REMEMBERED = 4096
"""Percentiles are those of this many latest batches."""
COUNTED_TOGETHER = 64
"""Batches after which a recorder counts what was added."""


class PreparedBatch(NamedTuple):
    """A batch as the user gets it; its rows, gathered bytes, seconds by stage, and failures.

    `tokens` and `padded` are those of `Order.count_tokens`.
    """

    batch: Any
    rows: int
    bytes: int
    stages: dict[str, float]
    failures: int
    tokens: int = 0
    padded: int = 0


class Stopwatch:
    """Seconds of the stages that make one batch."""

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}
        self._last = time.perf_counter()

    def record_stage(self, stage: str) -> None:
        """Book the time since the last call under a stage."""
        now = time.perf_counter()
        self.stages[stage] = self.stages.get(stage, 0.0) + now - self._last
        self._last = now


@dataclass(frozen=True)
class Percentiles:
    """Milliseconds that half, 95 % and 99 % of the batches stayed within."""

    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0


@dataclass(frozen=True)
class Stats:
    """An epoch so far, or the one that ended last.

    Attributes
    ----------
    batches, rows, bytes
        What was handed over; bytes as gathered or decoded, before transforms.
    failures
        Images that could not be decoded, and values that are damaged (`open_slab(on_damage=...)`):
        they were filled or left out.
    seconds
        From the start of the epoch to the last batch handed over.
    wait_seconds, wait_percent
        How long the consumer waited for data, and how much of `seconds` that is.
    prepare_ms, wait_ms
        Time that it took to make a batch in a worker, and that the consumer waited for one.
    stages
        Seconds spent in each stage, summed over all workers.
    prefetch, threads
        With prefetch="auto", what was chosen last; otherwise None.
    tokens, padded_tokens, padding_percent
        With an order such as `TokenBudget`: the tokens of all batches, how many there are when each
        batch is padded to its longest row, and how much of that is padding.
    """

    batches: int = 0
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0
    wait_seconds: float = 0.0
    prepare_ms: Percentiles = Percentiles()
    wait_ms: Percentiles = Percentiles()
    stages: dict[str, float] = field(default_factory=dict)
    failures: int = 0
    prefetch: int | None = None
    threads: int | None = None
    tokens: int = 0
    padded_tokens: int = 0

    @property
    def rows_per_second(self) -> float:
        """Rows handed over in a second."""
        return self.rows / self.seconds if self.seconds else 0.0

    @property
    def gb_per_second(self) -> float:
        """Gathered bytes handed over in a second, in 10**9."""
        return self.bytes / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def wait_percent(self) -> float:
        """Part of the time in which the consumer waited for data."""
        return 100 * self.wait_seconds / self.seconds if self.seconds else 0.0

    @property
    def padding_percent(self) -> float:
        """Part of all padded tokens that is padding."""
        padding = self.padded_tokens - self.tokens
        return 100 * padding / self.padded_tokens if self.padded_tokens else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return every number, ready for JSON or a logger."""
        derived = ("rows_per_second", "gb_per_second", "wait_percent", "padding_percent")
        return asdict(self) | {name: getattr(self, name) for name in derived}

    def __str__(self) -> str:
        prepare, wait = self.prepare_ms, self.wait_ms
        lines = [
            f"{self.batches:,} batches, {self.rows:,} rows in {self.seconds:.2f} s: "
            f"{self.rows_per_second:,.0f} rows/s, {self.gb_per_second:.2f} GB/s",
            f"waited for data {self.wait_percent:.1f} % of the time",
            f"prepare ms  p50 {prepare.p50:.2f}  p95 {prepare.p95:.2f}  p99 {prepare.p99:.2f}",
            f"wait ms     p50 {wait.p50:.2f}  p95 {wait.p95:.2f}  p99 {wait.p99:.2f}",
        ]
        for stage, seconds in self.stages.items():
            lines.append(f"{stage:<11} {1e3 * seconds / max(self.batches, 1):.2f} ms a batch")
        if self.prefetch is not None:
            lines.append(f"chosen: prefetch={self.prefetch}, threads={self.threads}")
        if self.padded_tokens:
            lines.append(
                f"{self.tokens:,} tokens; of batches, {self.padding_percent:.1f} % is padding"
            )
        if self.failures:
            lines.insert(1, f"{self.failures:,} images could not be decoded, or values are damaged")
        return "\n".join(lines)


class Recorder:
    """Collects the numbers of one epoch.

    The consumer's thread adds a batch by an append, and calls `count_added` after several: between
    two training steps, nothing is in the caches, and each line takes ten times as long.

    Attributes
    ----------
    added
        Of batches that are not counted yet: when the consumer asked for it and when it got it
        (`time.perf_counter`), and `PreparedBatch` without the batch itself.
    """

    def __init__(self) -> None:
        self._started = self._last = time.perf_counter()
        self.added: deque[tuple[float, float, tuple[int, int, dict[str, float], int, int, int]]] = (
            deque()
        )
        self._batches = self._rows = self._bytes = self._failures = 0
        self._tokens = self._padded = 0
        self._waited = 0.0
        self._stages: dict[str, float] = {}
        self._prepares: deque[float] = deque(maxlen=_REMEMBERED)
        self._waits: deque[float] = deque(maxlen=_REMEMBERED)
        self._lock = Lock()
        forks.register_for_forks(self)

    def compute_stats(self) -> Stats:
        """Compute the statistics so far."""
        self.count_added()
        return Stats(
            self._batches,
            self._rows,
            self._bytes,
            self._last - self._started if self._batches else 0.0,
            self._waited,
            _compute_percentiles(self._prepares),
            _compute_percentiles(self._waits),
            dict(self._stages),
            self._failures,
            tokens=self._tokens,
            padded_tokens=self._padded,
        )

    def after_fork(self) -> None:
        """See `forks`."""
        self._lock = Lock()

    def count_added(self) -> None:
        """Count the batches that were added since the last call."""
        with self._lock:
            while self.added:
                asked_at, self._last, counted = self.added.popleft()
                rows, nbytes, stages, failures, tokens, padded = counted
                waited = self._last - asked_at
                self._batches += 1
                self._rows += rows
                self._bytes += nbytes
                self._failures += failures
                self._tokens += tokens
                self._padded += padded
                self._waited += waited
                self._waits.append(waited)
                self._prepares.append(sum(stages.values()))
                for stage, seconds in stages.items():
                    self._stages[stage] = self._stages.get(stage, 0.0) + seconds


def _compute_percentiles(seconds: deque[float]) -> Percentiles:
    if not seconds:
        return Percentiles()
    p50, p95, p99 = (1e3 * np.percentile(list(seconds), [50, 95, 99])).tolist()
    return Percentiles(p50, p95, p99)
