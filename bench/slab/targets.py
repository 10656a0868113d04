"""What is asked of a reader of training data, and how many points a slab earns by it."""

from fieldslab.bench.slab.results import Results, Target

POINTS = 20.0
"""For each target that is met; for one that is missed, less by as much as it is missed."""
ROW_MS, BATCH_MS, ROWS_PER_SECOND, GROWTH_MB = 1.0, 50.0, 10_000.0, 500.0
MEMCPY_PERCENT = 70.0


def targets(results: Results) -> list[Target]:
    """Return the five targets; memory counts as met where the system does not tell."""
    largest, fastest = results.largest, results.fastest
    growth = 0.0 if results.memory is None else results.memory.growth / 1e6
    return [
        _target("a random row", "ms", 1e3 * results.latency.direct.seconds.median, ROW_MS),
        _target(
            f"a random batch of {largest.rows}",
            "ms",
            1e3 * largest.random.seconds.median,
            BATCH_MS,
        ),
        _target(
            f"random, {fastest.rows} at a time",
            "rows/s",
            fastest.random.rows_per_second,
            ROWS_PER_SECOND,
            at_most=False,
        ),
        _target(
            f"of memcpy, {largest.rows} at a time",
            "%",
            100 * largest.share_of_memcpy,
            MEMCPY_PERCENT,
            at_most=False,
        ),
        _target("memory growth", "MB", growth, GROWTH_MB),
    ]


def _target(name: str, unit: str, value: float, limit: float, *, at_most: bool = True) -> Target:
    reached = limit / max(value, 1e-12) if at_most else value / limit
    return Target(name, unit, value, limit, at_most, round(POINTS * min(reached, 1.0), 1))
