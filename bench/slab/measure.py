"""Everything that is measured on a slab, one after the other."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fieldslab.bench import machine
from fieldslab.bench.slab import batches, cold, decode, latency, memory, subject, threads
from fieldslab.bench.slab.results import Results
from fieldslab.bench.slab.strategies import WORDS
from fieldslab.bench.slab.targets import targets
from fieldslab.bench.slab.turns import WARM

SECONDS, QUICK_SECONDS = 30.0, 6.0

SHARES = {
    "cold pages": 0.20,
    "memory": 0.10,
    "warming": 0.10,
    "single rows": 0.12,
    "batches": 0.18,
    "subsets": 0.10,
    "threads": 0.08,
    "images": 0.12,
}
"""What is measured, in this order, and which part of the time each has."""

Tell = Callable[[str, float], None]
"""Called as a measure begins: its name, and the share of the time that lies behind."""


def measure(
    path: str | Path,
    fields: Sequence[str] | None = None,
    *,
    seconds: float = SECONDS,
    seed: int = 0,
    tell: Tell = lambda name, share: None,
    **opening: Any,
) -> Results:
    """Measure a slab for about so long, opening it as training code does, with these options.

    Of one that is read through a cache, only rows that are there by then are measured.

    Raises
    ------
    NotASlab, Damaged, UnknownField, UsageError
        There is no slab, it is damaged, or there is nothing to measure in it.
    """
    behind = 0.0
    watch = machine.Watch()

    def begin(name: str) -> float:
        nonlocal behind
        tell(name, behind)
        watch.look(0.05)
        behind += SHARES[name]
        return seconds * SHARES[name]

    slab, _ = subject.opened(path, fields, **opening)
    mirrored, notes = slab.storage.mirrors is not None, []
    # Pages are dropped before this process has any of them mapped.
    given = begin("cold pages")
    from_disk = None if mirrored else cold.measure(path, fields, given, seed, **opening)
    if mirrored:
        notes.append(
            "Cold pages and memory were not measured: rows that are not in the cache come from "
            f"{slab.path}."
        )
    elif from_disk is None:
        notes.append(
            "Cold pages were not measured: the system does not drop the pages of these files."
        )
    given = begin("memory")
    grown = None if mirrored else memory.measure(path, fields, given, seed, **opening)
    if grown is None and not mirrored:
        notes.append("Memory was not measured: the system does not tell mapped pages apart.")
    warm = subject.warmed(path, fields, begin("warming"), seed, **opening)
    total = len(slab)
    if opening.get("rows_file") is not None:
        notes.append(f"Only {total:,} rows of {slab.manifest.rows:,} were read: those of a file.")
    if len(warm.slab) < total:
        notes.append(
            f"Warm measures are of the first {len(warm.slab):,} of {total:,} rows: so many were "
            f"read in {warm.warm_seconds:.1f} s, or fit into a quarter of the free memory."
        )
    if len(warm.sizes) < len(subject.SIZES):
        size = subject.SIZES[len(warm.sizes)]
        takes = f"{warm.row_bytes * size / 1e9:.1f} GB"
        notes.append(f"Batches of {size} rows and more were left out: one takes {takes}.")
    rows = latency.measure(warm, begin("single rows"))
    sizes = batches.measure(warm, begin("batches"))
    rate = next(result for result in sizes if result.rows == warm.usual).random.rows_per_second
    results = Results(
        machine=machine.describe(),
        slab=subject.describe(warm),
        method=_method(seconds, seed, warm),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        latency=rows,
        batches=sizes,
        subsets=batches.measure_subsets(warm, begin("subsets"), rate),
        threads=threads.measure(warm, begin("threads")),
        memory=grown,
        cold=from_disk,
        notes=notes,
    )
    if images := decode.fields(warm):
        each = begin("images") / len(images)
        results.decode = [decode.measure(warm, name, each) for name in images]
    for result in results.decode:
        if result.failed:
            notes.append(
                f"{100 * result.failed:.3g} % of the images of '{result.field}' cannot be decoded "
                "here: fieldslab info --decoders shows what can be."
            )
    results.machine |= watch.found()
    results.targets = targets(results)
    tell("done", 1.0)
    return results


def _method(seconds: float, seed: int, warm: subject.Subject) -> dict[str, object]:
    """How it was measured, in words."""
    return {
        "seconds": seconds,
        "seed": seed,
        "timed": "from the call of the reader to the rows in memory, fetch included",
        "warm_up": (
            f"{len(warm.slab):,} rows read once, in order, in {warm.warm_seconds:.2f} s; then the "
            f"first rounds of each measure, up to {WARM}, are not counted"
        ),
        "spread": "medians over rounds in which all calls take turns, with quartiles, p95 and p99",
        "memcpy": "copies the values of such rows from where they lie into written memory",
        "orders": WORDS,
    }
