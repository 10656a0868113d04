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
    """Bytes a second by size of the batch, each beside its memcpy."""
    sizes = results.batches
    share = results.largest.memcpy.seconds.median / results.largest.random.seconds.median
    figure, axes = chart(
        f"Random batches of {results.largest.rows} rows come {words.of_memcpy(share)}",
        "Bytes of values a second by rows in a batch; median with quartiles, one thread, warm; "
        "the mark is a memcpy of the same number of random rows",
        theme,
        height=0.9 + 0.42 * len(sizes),
    )
    speeds = [one.random for one in sizes]
    ceilings = [one.memcpy.bytes_per_second for one in sizes]
    bars(
        axes,
        [f"{one.rows} rows" for one in sizes],
        [one.bytes_per_second for one in speeds],
        [words.gigabytes(one.bytes_per_second) for one in speeds],
        [theme.main] * len(sizes),
        theme,
        [(one.bytes / one.seconds.high, one.bytes / one.seconds.low) for one in speeds],
        ceilings,
    )
    for at, ceiling in enumerate(ceilings):
        axes.plot([ceiling] * 2, [at - 0.42, at + 0.42], color=theme.ink, linewidth=2)
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
    """Rows a second from the disk and from memory, by strategy; None without cold measures."""
    if results.cold is None:
        return None
    cold, warm = results.cold.cold, results.cold.warm
    slower = warm[0].rows_per_second / cold[0].rows_per_second
    best = max(cold, key=lambda one: one.rows_per_second)
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
    for at, (before, after) in enumerate(zip(cold, warm, strict=True)):
        ends = before.rows_per_second, after.rows_per_second
        axes.plot(ends, (at, at), color=theme.quiet, linewidth=3, zorder=1)
        for rate, color, side, name in zip(
            ends, (theme.others[0], theme.main), (-1, 1), ("cold", "warm"), strict=True
        ):
            axes.plot([rate], [at], "o", color=color, markersize=8)
            left = side < 0 if ends[0] <= ends[1] else side > 0
            axes.annotate(
                f"{name} {words.count(rate)}" if at == 0 else words.count(rate),
                (rate, at),
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
    found = [one.rows_per_second for one in (*cold, *warm)]
    axes.set_xscale("log")
    lowest, highest = min(found), max(*found, memcpy)
    room = max((highest / lowest) ** 0.22, 2.0)  # for the numbers beside the points
    axes.set_xlim(lowest / room, highest * room)
    axes.set_yticks(range(len(cold)), [one.name for one in cold], size=9, color=theme.ink)
    axes.set_ylim(len(cold) - 0.5, -0.9)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=theme.grid, linewidth=0.8)
    level(axes, memcpy, "memcpy", theme.ink, upright=True)
    numbers(axes.xaxis, words.count)
    axis_titles(axes, theme, x="rows a second")
    return figure


def memory(results: Results, theme: Theme) -> Any:
    """Own and mapped memory over many batches; None where the system does not tell."""
    found = results.memory
    if found is None:
        return None
    grown = max(found.growth, 0) / 1e6
    finding = "Memory stays flat" if grown < GROWTH_MB / 10 else "Memory grows"
    more = f"{grown:,.0f} MB more" if grown >= 1 else "less than 1 MB more"
    count = found.batches[-1]
    figure, axes = chart(
        f"{finding}: {more} of its own after {count:,} random batches",
        f"Memory of the process in MB over batches of {found.batch} rows: its own (RssAnon), and "
        "the slab's pages that it has mapped (RssFile), which the system takes back when needed",
        theme,
        height=2.6,
    )
    own = np.array(found.anonymous) / 1e6
    mapped = np.array(found.mapped) / 1e6
    axes.plot(found.batches, mapped, color=theme.others[1], linewidth=2)
    axes.plot(found.batches, own, color=theme.main, linewidth=2)
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
    """Bytes a second by number of threads, and of memcpy; None where there is one core."""
    found = results.threads
    if len(found) < 2:
        return None
    best = max(found, key=lambda one: one.bytes_per_second)
    gain = best.bytes_per_second / found[0].bytes_per_second
    finding = f"{best.threads} threads read {words.times(gain)} as fast as one"
    if best.threads == 1:
        finding = "More threads do not read faster here"
    figure, axes = chart(
        finding,
        f"Bytes of values a second of all threads together, random batches of {found[0].batch} "
        "rows, warm; median, quartiles as a band",
        theme,
        height=2.6,
    )
    counts = [one.threads for one in found]
    speeds = [one.bytes_per_second for one in found]
    copies = [one.memcpy_bytes_per_second for one in found]
    axes.fill_between(
        counts,
        [one.low for one in found],
        [one.high for one in found],
        color=theme.main,
        alpha=0.18,
        linewidth=0,
    )
    axes.plot(counts, speeds, "o-", color=theme.main, linewidth=2)
    axes.plot(counts, copies, "o--", color=theme.ink, linewidth=1.4, markersize=4)
    axes.set_xlim(1 - 0.06 * counts[-1], counts[-1] * 1.35)
    axes.set_ylim(0, 1.15 * max(*speeds, *copies, *(one.high for one in found)))
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
    """Images a second by what is done to them; None where there are none."""
    if not results.decode:
        return None
    ways = [(one, way) for one in results.decode for way in one.ways]
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
        [f"{one.field}: {way.name}" if several else way.name for one, way in ways],
        [way.rows_per_second for _, way in ways],
        [words.count(way.rows_per_second) for _, way in ways],
        [theme.others[0] if way is one.ways[-1] else theme.main for one, way in ways],
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
