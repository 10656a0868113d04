"""What batch size, threads and prefetch suit a slab, a machine and a training step.

Every recommendation is measured, on random rows of the slab itself:

- the smallest batch size that is nearly as fast as any, where none is given;
- as few threads as keep a step of known length fed, or else are nearly as fast as any number;
- enough prefetch to cover the slowest of a hundred batches;
- all of that within a quarter of the memory that is free, or what is allowed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any, Literal

from fieldslab.reader.loading.loader import MOST_THREADS
from fieldslab.reader.probe import SAMPLE_ROWS, Probe
from fieldslab.reader.rows import check_integer
from fieldslab.reader.slab import Slab
from fieldslab.reader.stored.sizes import count_stored_bytes
from fieldslab.schemas.cores import count_usable_cores
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.memory import count_available_bytes

ENOUGH = 0.9
"""What is so near to the best is as good."""
SPARE = 1.25
"""How many times as fast as steps take batches, threads should prepare them."""
PREFETCH = 3, 8
"""Prefetch without further knowledge, and at most."""
FEWEST_BATCHES = 16
"""Least number of batches in an epoch if the batch size is chosen here."""


@dataclass(frozen=True)
class Measurements:
    """What was measured; rates are rows and 10**9 bytes in a second.

    Attributes
    ----------
    rows, bytes
        How many random rows were looked at, and their bytes.
    first_touch_gb, gather_gb
        Gathers when these rows were touched first (read from disk if need be, and verified), and
        again, in one thread.
    gather_rows
        Rows a second by batch size.
    loader_gb
        A loader with an idle consumer, by threads.
    prepare_ms, prepare_p99_ms
        To make a batch of the recommended size, transforms included: half of them, and 99 %.
    wait_percent
        How much of its time a step of `step_ms` waited for data, with what is recommended.
    """

    rows: int
    bytes: int
    first_touch_gb: float
    gather_gb: float
    gather_rows: dict[int, float]
    loader_gb: dict[int, float]
    prepare_ms: float
    prepare_p99_ms: float
    wait_percent: float | None


@dataclass(frozen=True)
class Advice:
    """Options for `Loader`, what they take, and why.

    Attributes
    ----------
    batch_bytes, memory_bytes
        Bytes of a batch as gathered; of all batches that are alive at a time.
    slab_bytes, free_bytes
        Bytes of the fields; of the machine's memory that is free.
    cores
        Processors that this process may use.
    decoded
        Image fields that were decoded as `decode` says.
    unindexed
        By image field: how many of the rows looked at are JPEG without an index, if any.
    blocked
        Whether the fields exceed the free memory, so that `Blocked` is the order for them.
    """

    path: str
    rows: int
    batch_size: int
    threads: int
    prefetch: int
    batch_bytes: int
    memory_bytes: int
    slab_bytes: int
    free_bytes: int
    cores: int
    step_ms: float | None
    decoded: tuple[str, ...]
    unindexed: dict[str, int]
    blocked: bool
    measured: Measurements

    def as_dict(self) -> dict[str, Any]:
        """Return every number, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        measured = self.measured
        loaders = ", ".join(f"{gb:.2f} with {n}" for n, gb in measured.loader_gb.items())
        lines = [
            f"{self.path}: {self.rows:,} rows, {_format_size(self.slab_bytes)}; "
            f"{_format_size(self.free_bytes)} of memory free, {self.cores} cores",
            "",
            f"batch size  {self.batch_size:<6} {_format_size(self.batch_bytes)} a batch",
            f"threads     {self.threads:<6} one prepares a batch in {measured.prepare_ms:.2f} ms, "
            f"99 % within {measured.prepare_p99_ms:.2f} ms",
            f"prefetch    {self.prefetch:<6} {_format_size(self.memory_bytes)} for "
            f"{self.prefetch + self.threads} batches at a time",
        ]
        for name, count in self.unindexed.items():
            lines.append(
                f"images      {name}: {count:,} of {measured.rows:,} are JPEG without an index, as "
                "progressive ones are: crops of large ones take ten times longer. The image form "
                "`baseline` avoids that without loss: pack them with it"
            )
        if self.blocked:
            lines.append("order       Blocked: the data is larger than the memory that is free")
        lines += [
            "",
            f"measured on {measured.rows:,} random rows, {_format_size(measured.bytes)}:",
            f"gather      {measured.first_touch_gb:.2f} GB/s at first touch, "
            f"{measured.gather_gb:.2f} GB/s then",
            f"loader      {loaders} thread(s), GB/s",
        ]
        if self.step_ms is not None:
            lines.append(
                f"data wait   {measured.wait_percent:.1f} % of the time, "
                f"at {self.step_ms:g} ms a step"
            )
        order = ", Blocked()" if self.blocked else ""
        order += ", decode=decode" if self.decoded else ""
        options = f"prefetch={self.prefetch}, threads={self.threads}"
        lines += ["", f"Loader(slab, {self.batch_size}{order}, {options})"]
        return "\n".join(lines)


def advise(
    slab: Slab,
    batch_size: int | None = None,
    *,
    fields: Sequence[str] | None = None,
    transforms: Sequence[Callable[..., Mapping[str, Any]]] = (),
    decode: Mapping[str, Any] | None = None,
    step_ms: float | None = None,
    memory: int | None = None,
    seconds: float = 0.2,
    output: Literal["numpy", "torch"] = "numpy",
) -> Advice:
    """Measure a slab on this machine, some seconds long, and recommend options for `Loader`.

    Parameters
    ----------
    batch_size
        Rows in a batch, where the training decides; chosen by speed if not given.
    fields, transforms, decode, output
        As for `Loader`.
    step_ms
        How long a training step takes; threads are as few as keep up with it.
    memory
        Bytes that all batches together may take: a quarter of what is free if not given.
    seconds
        How long each measurement takes, about.

    Raises
    ------
    UsageError
        The slab has no rows, or not even two batches of one row fit.
    UnknownField, DamagedArray
        As `Loader` and `Slab.gather` raise them.
    """
    if not len(slab):
        raise UsageError("the slab has no rows to measure", file=slab.path)
    if step_ms is not None and not 0 < step_ms < 1e6:
        raise UsageError("`step_ms` must be a positive number of milliseconds", found=step_ms)
    free, cores = count_available_bytes(), count_usable_cores()
    room = free // 4 if memory is None else check_integer("memory", memory, least=1)
    names = slab.names(fields)
    probe = Probe(slab, names, transforms, decode, seconds, output)
    if batch_size is None:
        size, rates = _choose_batch_size(probe, len(slab) // FEWEST_BATCHES, room // 2)
    else:
        size = check_integer("batch_size", batch_size, least=1)
        rates = {size: probe.measure_gather_speed(size)}
    batch_bytes = probe.measure_ready_bytes(size)
    alive = room // max(batch_bytes, 1)
    if alive < 2:
        raise UsageError(
            f"two batches of {size} rows need more memory than there is",
            expected=_format_size(2 * batch_bytes),
            found=_format_size(room),
            hint="Choose a smaller batch size, or fewer fields.",
        )
    prepare = probe.measure_loader(size, threads=1, prefetch=0).prepare_ms
    speeds = {
        threads: probe.measure_loader(size, threads, PREFETCH[0]).gb_per_second
        for threads in range(1, min(cores, MOST_THREADS, alive - 1) + 1)
    }
    threads = _choose_threads(speeds, prepare.p50, step_ms)
    prefetch = max(min(_choose_prefetch(prepare.p99, step_ms), alive - threads), 1)
    wait = None
    if step_ms is not None:
        wait = probe.measure_loader(size, threads, prefetch, step_ms / 1e3).wait_percent
    row = probe.bytes / probe.rows
    measured = Measurements(
        rows=probe.rows,
        bytes=probe.bytes,
        first_touch_gb=probe.bytes / probe.first_touch / 1e9,
        gather_gb=max(rates.values()) * row / 1e9,
        gather_rows=rates,
        loader_gb=speeds,
        prepare_ms=prepare.p50,
        prepare_p99_ms=prepare.p99,
        wait_percent=wait,
    )
    images = [name for name in names if slab.fields[name].kind == "image"]
    unindexed = {name: probe.count_unindexed(name) for name in images}
    total = count_stored_bytes(slab.manifest, [slab.fields[name] for name in names], len(slab))
    return Advice(
        path=str(slab.path),
        rows=len(slab),
        batch_size=size,
        threads=threads,
        prefetch=prefetch,
        batch_bytes=round(row * size),
        memory_bytes=(prefetch + threads) * batch_bytes,
        slab_bytes=total,
        free_bytes=free,
        cores=cores,
        step_ms=step_ms,
        decoded=tuple(decode or ()),
        unindexed={name: count for name, count in unindexed.items() if count},
        blocked=total > free,
        measured=measured,
    )


def _choose_batch_size(probe: Probe, most: int, room: int) -> tuple[int, dict[int, float]]:
    """Choose the smallest power of two that is nearly as fast as any, by rows per second."""
    rates: dict[int, float] = {}
    size = 1
    while size == 1 or (
        size <= min(most, SAMPLE_ROWS) and probe.measure_gathered_bytes(size) <= room
    ):
        rates[size] = probe.measure_gather_speed(size)
        size *= 2
    best = max(rates.values())
    return next(size for size, rate in rates.items() if rate >= ENOUGH * best), rates


def _choose_threads(speeds: dict[int, float], prepare: float, step_ms: float | None) -> int:
    """As few as keep up with the step, or else are nearly as fast as any."""
    if step_ms is not None:
        return min(max(ceil(SPARE * prepare / step_ms), 1), max(speeds))
    best = max(speeds.values())
    return next(threads for threads, speed in speeds.items() if speed >= ENOUGH * best)


def _choose_prefetch(slowest: float, step_ms: float | None) -> int:
    """Enough to go on while one batch takes long, `slowest` ms."""
    if step_ms is None:
        return PREFETCH[0]
    return min(max(ceil(slowest / step_ms) + 1, 2), PREFETCH[1])


def _format_size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
