"""What the measures find, as plain values that JSON can hold."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

FORMAT = 1
"""Version of the JSON document; members are only added."""


@dataclass(frozen=True)
class Spread:
    """Many times of one call, in seconds: mean, median, quartiles, and the slowest."""

    calls: int
    mean: float
    median: float
    low: float
    high: float
    p95: float
    p99: float

    @staticmethod
    def of(seconds: Sequence[float]) -> "Spread":
        """Return the spread of at least one time."""
        low, median, high, p95, p99 = np.percentile(list(seconds), [25, 50, 75, 95, 99]).tolist()
        return Spread(len(seconds), float(np.mean(seconds)), median, low, high, p95, p99)


@dataclass(frozen=True)
class Speed:
    """A call that yields rows, again and again.

    Attributes
    ----------
    name
        What was called, or in which order rows came.
    rows, bytes
        What one call yields on average: rows, and bytes of their values.
    seconds
        How long a call takes.
    """

    name: str
    rows: float
    bytes: float
    seconds: Spread

    @property
    def rows_per_second(self) -> float:
        """Rows a second, at the median."""
        return self.rows / self.seconds.median

    @property
    def bytes_per_second(self) -> float:
        """Bytes a second, at the median."""
        return self.bytes / self.seconds.median

    def as_dict(self) -> dict[str, Any]:
        """With the rates."""
        rates = {
            "rows_per_second": self.rows_per_second,
            "gb_per_second": self.bytes_per_second / 1e9,
        }
        return asdict(self) | rates


@dataclass(frozen=True)
class Latency:
    """Single random rows.

    Attributes
    ----------
    direct
        `slab[row]`.
    ahead
        A `Loader` of batches of one row, by how many rows it prepares ahead.
    memcpy
        A copy of the bytes of one row.
    timeline
        Milliseconds of the first calls of `direct`, in order.
    """

    direct: Speed
    ahead: list[Speed]
    memcpy: Speed
    timeline: list[float]


@dataclass(frozen=True)
class BatchSize:
    """Batches of one size, by order, and a copy of the bytes of random ones."""

    rows: int
    orders: list[Speed]
    memcpy: Speed

    @property
    def random(self) -> Speed:
        """Batches of random rows."""
        return next(speed for speed in self.orders if speed.name == "random")

    @property
    def share_of_memcpy(self) -> float:
        """How fast random batches are beside a copy of their bytes: 1 is as fast."""
        return self.memcpy.seconds.median / self.random.seconds.median


@dataclass(frozen=True)
class Subsets:
    """Many rows in batches of `batch`, by strategy: one call is a whole subset."""

    rows: int
    batch: int
    strategies: list[Speed]
    memcpy: Speed


@dataclass(frozen=True)
class Memory:
    """Memory of the process while batches are gathered, in bytes.

    `anonymous` and `mapped` are samples over the batches counted in `batches`; `growth` is how
    much anonymous memory rose at most after the first batches.
    """

    batch: int
    batches: list[int]
    anonymous: list[int]
    mapped: list[int]
    growth: int


@dataclass(frozen=True)
class Cold:
    """The same batches twice by a `Loader`, first from the disk, then from memory.

    Attributes
    ----------
    batch
        Rows of a batch.
    left_in_memory
        Share of the slab's pages that the system kept when it was asked to drop them.
    cold, warm
        By strategy; a time is that of a whole pass, divided by its batches.
    first_row
        Single rows, each from the disk, without a loader.
    """

    batch: int
    left_in_memory: float
    cold: list[Speed]
    warm: list[Speed]
    first_row: Spread


@dataclass(frozen=True)
class Threads:
    """So many threads at once: rows and bytes a second of all together, and of their memcpy."""

    threads: int
    batch: int
    rows_per_second: float
    bytes_per_second: float
    low: float
    high: float
    memcpy_bytes_per_second: float
    """`low` and `high` are quartiles of `bytes_per_second`."""


@dataclass(frozen=True)
class Decode:
    """Batches of one image field decoded.

    Attributes
    ----------
    ways
        What is done to the images; the last is the one before it, by a loader with all cores.
        Bytes are the encoded ones.
    raw
        Such batches gathered as encoded bytes.
    failed
        Share of the images that could not be decoded.
    """

    field: str
    batch: int
    ways: list[Speed]
    raw: Speed
    failed: float

    @property
    def training(self) -> Speed:
        """All that training wants of an image, by one thread."""
        return self.ways[-2]


@dataclass(frozen=True)
class Target:
    """What is asked of a reader; `found` and `limit` are in `unit`."""

    name: str
    unit: str
    found: float
    limit: float
    at_most: bool
    points: float
    """0 to `targets.POINTS`."""

    @property
    def met(self) -> bool:
        """Whether it is reached."""
        return self.found <= self.limit if self.at_most else self.found >= self.limit


@dataclass(frozen=True)
class Advice:
    """What to do, or what to know: `kind` is "do", "know" or "good"."""

    kind: str
    text: str


@dataclass
class Results:
    """Everything that was measured on one slab; what does not apply is None, with a note."""

    machine: dict[str, Any]
    slab: dict[str, Any]
    method: dict[str, Any]
    date: str
    latency: Latency
    batches: list[BatchSize]
    subsets: Subsets
    threads: list[Threads]
    memory: Memory | None = None
    cold: Cold | None = None
    decode: list[Decode] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    advice: list[Advice] = field(default_factory=list)

    @property
    def score(self) -> int:
        """Points of all targets, of 100."""
        return round(sum(target.points for target in self.targets))

    @property
    def largest(self) -> BatchSize:
        """The largest batches that were measured."""
        return self.batches[-1]

    @property
    def fastest(self) -> BatchSize:
        """The size of batches at which random rows come fastest."""
        return max(self.batches, key=lambda size: size.random.rows_per_second)

    def as_dict(self) -> dict[str, Any]:
        """Return the document that `--json` writes."""
        return {"format": FORMAT, "score": self.score, **_plain(self)}


def _plain(value: Any) -> Any:
    """Dataclasses as dicts, with the rates of every `Speed` and the verdict on every target."""
    if isinstance(value, Speed):
        return value.as_dict()
    if isinstance(value, Target):
        return asdict(value) | {"met": value.met}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return value
