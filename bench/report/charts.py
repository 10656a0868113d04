"""The charts of a report: what is drawn, and the sentence above it."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fieldslab.bench.report import latency_charts, order_charts, words
from fieldslab.bench.report.style import (
    Theme,
    axis_titles,
    bars,
    chart,
    end_labels,
    level,
    numbers,
    on_background,
    rates,
)
from fieldslab.bench.slab.results import Results
from fieldslab.bench.slab.targets import GROWTH_MB

_SAME = 1.15
"""Ratios below this are no difference."""


def throughput(results: Results, theme: Theme) -> Any:
    """Draw bytes a second by size of the batch, each beside its memcpy."""
    sizes = results.batches
    share = results.largest.memcpy.seconds.median / results.largest.random.seconds.median
    figure, axes = chart(
        f"Random batches of {results.largest.rows} rows come {words.of_memcpy(share)}",
        "Bytes of values a second by rows in a batch; median with quartiles, one thread, warm; "
        "the mark is a memcpy of the same number of random rows",
        theme,
        height=0.9 + 0.42 * len(sizes),
    )
    speeds = [group.random for group in sizes]
    ceilings = [group.memcpy.bytes_per_second for group in sizes]
    bars(
        axes,
        [f"{group.rows} rows" for group in sizes],
        [group.bytes_per_second for group in speeds],
        [words.gigabytes(group.bytes_per_second) for group in speeds],
        [theme.main] * len(sizes),
        theme,
        [(group.bytes / group.seconds.high, group.bytes / group.seconds.low) for group in speeds],
        ceilings,
    )
    for row, ceiling in enumerate(ceilings):
        axes.plot([ceiling] * 2, [row - 0.42, row + 0.42], color=theme.ink, linewidth=2)
    axes.annotate(
        "memcpy",
        (ceilings[0], -0.42),
        (0, 2),
        textcoords="offset points",
        ha="center",
        va="bottom",
        size=8,
        color=theme.ink,
    )
    axes.set_ylim(axes.get_ylim()[0], -0.95)
    rates(axes, theme, "x", max(ceilings))
    return figure


def cold_warm(results: Results, theme: Theme) -> Any:
    """Draw rows a second from the disk and from memory, by strategy; None without cold measures."""
    if results.cold is None:
        return None
    cold, warm = results.cold.cold, results.cold.warm
    slower = warm[0].rows_per_second / cold[0].rows_per_second
    best = max(cold, key=lambda speed: speed.rows_per_second)
    finding = f"random rows come {words.times(slower)} slower than from memory"
    if slower < _SAME:
        finding = "random rows come as fast as from memory"
    figure, axes = chart(
        f"From the disk, {finding}; {best.name} ones come fastest",
        f"Rows a second by a Loader of batches of {results.cold.batch}, logarithmic: cold (pages "
        "dropped, digests compared) and the same rows again, warm; median",
        theme,
        height=2.4,
    )
    for row, (before, after) in enumerate(zip(cold, warm, strict=True)):
        ends = before.rows_per_second, after.rows_per_second
        axes.plot(ends, (row, row), color=theme.quiet, linewidth=3, zorder=1)
        for rate, color, side, name in zip(
            ends, (theme.others[0], theme.main), (-1, 1), ("cold", "warm"), strict=True
        ):
            axes.plot([rate], [row], "o", color=color, markersize=8)
            left = side < 0 if ends[0] <= ends[1] else side > 0
            axes.annotate(
                f"{name} {words.count(rate)}" if row == 0 else words.count(rate),
                (rate, row),
                (-8 if left else 8, 0),
                textcoords="offset points",
                ha="right" if left else "left",
                va="center",
                size=9,
                color=color,
                bbox=on_background(theme),
                zorder=5,
            )
    memcpy = results.subsets.memcpy.rows_per_second
    speeds = [speed.rows_per_second for speed in (*cold, *warm)]
    axes.set_xscale("log")
    lowest, highest = min(speeds), max(*speeds, memcpy)
    room = max((highest / lowest) ** 0.22, 2.0)  # for the numbers beside the points
    axes.set_xlim(lowest / room, highest * room)
    axes.set_yticks(range(len(cold)), [speed.name for speed in cold], size=9, color=theme.ink)
    axes.set_ylim(len(cold) - 0.5, -0.9)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=theme.grid, linewidth=0.8)
    level(axes, memcpy, "memcpy", theme.ink, upright=True)
    numbers(axes.xaxis, words.count)
    axis_titles(axes, theme, x="rows a second")
    return figure


def memory(results: Results, theme: Theme) -> Any:
    """Own and mapped memory over many batches; None where the system does not tell."""
    samples = results.memory
    if samples is None:
        return None
    grown = max(samples.growth, 0) / 1e6
    finding = "Memory stays flat" if grown < GROWTH_MB / 10 else "Memory grows"
    more = f"{grown:,.0f} MB more" if grown >= 1 else "less than 1 MB more"
    count = samples.batches[-1]
    figure, axes = chart(
        f"{finding}: {more} of its own after {count:,} random batches",
        f"Memory of the process in MB over batches of {samples.batch} rows: its own (RssAnon), and "
        "the slab's pages that it has mapped (RssFile), which the system takes back when needed",
        theme,
        height=2.6,
    )
    own = np.array(samples.anonymous) / 1e6
    mapped = np.array(samples.mapped) / 1e6
    axes.plot(samples.batches, mapped, color=theme.others[1], linewidth=2)
    axes.plot(samples.batches, own, color=theme.main, linewidth=2)
    axes.set_xlim(0, count * 1.22)
    limit = own[0] + GROWTH_MB
    axes.set_ylim(0, 1.15 * max(mapped.max(), own.max(), limit))
    level(axes, limit, f"target: {GROWTH_MB:.0f} MB of growth", theme.target)
    end_labels(
        axes,
        count,
        [
            (own[-1], f"own {own[-1]:,.0f} MB", theme.main),
            (mapped[-1], f"mapped {mapped[-1]:,.0f} MB", theme.others[1]),
        ],
        apart=0.09,
    )
    numbers(axes.xaxis, lambda value: f"{value:,.0f}" if value <= count else "")
    numbers(axes.yaxis, lambda value: f"{value:,.0f}")
    axis_titles(axes, theme, x="batches", y="MB")
    return figure


def threads(results: Results, theme: Theme) -> Any:
    """Draw bytes a second by number of threads, and of memcpy; None where there is one core."""
    groups = results.threads
    if len(groups) < 2:
        return None
    best = max(groups, key=lambda group: group.bytes_per_second)
    gain = best.bytes_per_second / groups[0].bytes_per_second
    finding = f"{best.threads} threads read {words.times(gain)} as fast as one"
    if best.threads == 1:
        finding = "More threads do not read faster here"
    figure, axes = chart(
        finding,
        f"Bytes of values a second of all threads together, random batches of {groups[0].batch} "
        "rows, warm; median, quartiles as a band",
        theme,
        height=2.6,
    )
    counts = [group.threads for group in groups]
    speeds = [group.bytes_per_second for group in groups]
    copies = [group.memcpy_bytes_per_second for group in groups]
    axes.fill_between(
        counts,
        [group.low for group in groups],
        [group.high for group in groups],
        color=theme.main,
        alpha=0.18,
        linewidth=0,
    )
    axes.plot(counts, speeds, "o-", color=theme.main, linewidth=2)
    axes.plot(counts, copies, "o--", color=theme.ink, linewidth=1.4, markersize=4)
    axes.set_xlim(1 - 0.06 * counts[-1], counts[-1] * 1.35)
    axes.set_ylim(0, 1.15 * max(*speeds, *copies, *(group.high for group in groups)))
    axes.set_xticks(counts)
    end_labels(
        axes,
        counts[-1],
        [
            (speeds[-1], f"gather {words.gigabytes(speeds[-1])}", theme.main),
            (copies[-1], f"memcpy {words.gigabytes(copies[-1])}", theme.ink),
        ],
        apart=0.09,
    )
    axis_titles(axes, theme, x="threads")
    rates(axes, theme, "y", max(copies))
    return figure


def decoding(results: Results, theme: Theme) -> Any:
    """Draw images a second by what is done to them; None where there are none."""
    if not results.decode:
        return None
    ways = [(field, way) for field in results.decode for way in field.ways]
    several = len(results.decode) > 1
    first = results.decode[0]
    best = max(first.ways[-2:], key=lambda way: way.rows_per_second)
    finding = "The threads of a Loader" if best is first.ways[-1] else "Gathers in one thread"
    figure, axes = chart(
        f"{finding} make {words.count(best.rows_per_second)} images a second ready for training",
        f"Images a second in batches of {first.batch}, by what is done to them; median with "
        "quartiles, warm. Without decoding, one thread gathers "
        f"{words.count(first.raw.rows_per_second)} a second",
        theme,
        height=0.8 + 0.42 * len(ways),
    )
    bars(
        axes,
        [f"{field.field}: {way.name}" if several else way.name for field, way in ways],
        [way.rows_per_second for _, way in ways],
        [words.count(way.rows_per_second) for _, way in ways],
        [theme.others[0] if way is field.ways[-1] else theme.main for field, way in ways],
        theme,
        [(way.rows / way.seconds.high, way.rows / way.seconds.low) for _, way in ways],
    )
    numbers(axes.xaxis, words.count)
    axis_titles(axes, theme, x="images a second")
    return figure


CHARTS: dict[str, Callable[[Results, Theme], Any]] = {
    "throughput": throughput,
    "heat-map": order_charts.heat_map,
    "latency-timeline": latency_charts.timeline,
    "latency-histogram": latency_charts.histogram,
    "read-ahead": latency_charts.read_ahead,
    "cold-warm": cold_warm,
    "threads": threads,
    "memory": memory,
    "strategies": order_charts.radar,
    "decoding": decoding,
}
"""By the name of its file, in the order of the page; each gives a figure, or None."""
