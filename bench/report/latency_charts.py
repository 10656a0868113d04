"""Charts of single rows: over time, as a histogram, by read-ahead."""

import math
from typing import Any

import numpy as np

from fieldslab.bench.report import words
from fieldslab.bench.report.style import Theme, axis_titles, chart, level, numbers, on_background
from fieldslab.bench.slab.results import Results
from fieldslab.bench.slab.targets import ROW_MS

_TARGET = f"target {ROW_MS:g} ms"


def timeline(results: Results, theme: Theme) -> Any:
    """Draw the latency of each of the first calls, in order."""
    latency = results.latency
    times = latency.timeline
    within = sum(call < ROW_MS for call in times) / len(times)
    figure, axes = chart(
        f"{_share(within)} random rows arrive within {ROW_MS:g} ms, half of them within "
        f"{words.seconds(latency.direct.seconds.median)}",
        f"Time of each of {len(times):,} calls of {latency.direct.name}, in order, logarithmic; "
        "warm",
        theme,
        height=2.6,
    )
    axes.plot(times, ".", color=theme.main, markersize=3, alpha=0.5, markeredgewidth=0)
    axes.set_yscale("log")
    lowest = 1e3 * latency.memcpy.seconds.median
    axes.set_ylim(min(*times, lowest) / 3, max(*times, ROW_MS) * 2)
    axes.set_xlim(-0.01 * len(times), len(times))
    level(axes, ROW_MS, _TARGET, theme.target)
    level(axes, lowest, f"memcpy of a row {words.seconds(lowest / 1e3)}", theme.ink, below=True)
    _milliseconds(axes.yaxis)
    numbers(axes.xaxis, lambda value: f"{value:,.0f}")
    axis_titles(axes, theme, x="call")
    return figure


def histogram(results: Results, theme: Theme) -> Any:
    """Draw how often each latency occurs."""
    latency = results.latency
    times, seconds = latency.timeline, latency.direct.seconds
    figure, axes = chart(
        f"99 of 100 random rows arrive within {words.seconds(seconds.p99)}",
        f"Calls of {latency.direct.name} by how long they took, logarithmic; warm, "
        f"{len(times):,} calls",
        theme,
        height=2.6,
    )
    lowest = 1e3 * latency.memcpy.seconds.median
    low, high = min(*times, lowest) / 1.3, max(*times, ROW_MS) * 1.3
    edges = np.geomspace(low, high, 60)
    counts, _, _ = axes.hist(times, edges, color=theme.main)
    axes.set_xscale("log")
    axes.set_xlim(low, high * 1.6)
    top = float(np.max(counts))
    axes.set_ylim(0, 1.32 * top)
    level(axes, ROW_MS, _TARGET, theme.target, upright=True)
    level(axes, lowest, "memcpy", theme.ink, upright=True)
    # Written at different heights, so that they do not collide where they are close.
    for name, value, height in (
        ("median", seconds.median, 0.86),
        ("95 %", seconds.p95, 0.62),
        ("99 %", seconds.p99, 0.4),
    ):
        x = 1e3 * value
        axes.plot([x, x], [0, height * 1.32 * top], color=theme.soft, linewidth=1)
        axes.annotate(
            f"{name} {words.seconds(value)}",
            (x, height * 1.32 * top),
            (4, -3),
            textcoords="offset points",
            va="top",
            size=8,
            color=theme.ink,
            bbox=on_background(theme),
        )
    _milliseconds(axes.xaxis)
    numbers(axes.yaxis, lambda value: f"{value:,.0f}" if value == round(value) else "")
    axis_titles(axes, theme, y="calls")
    return figure


def read_ahead(results: Results, theme: Theme) -> Any:
    """Draw median, 95 % and 99 % of single rows: directly, and by loaders that work ahead."""
    latency = results.latency
    speeds = [latency.direct, *latency.ahead]
    names = [latency.direct.name, *(f"Loader, {loader.name} ahead" for loader in latency.ahead)]
    best = min(range(len(speeds)), key=lambda row: speeds[row].seconds.mean)
    figure, axes = chart(
        f"For single rows in memory, {names[best]} is quickest: "
        f"{words.seconds(speeds[best].seconds.mean)} on average",
        "Wait for one random row, logarithmic: from the median to 99 % of the calls; the bar is at "
        "95\N{NO-BREAK SPACE}%, the cross is the mean; warm, nothing else to do in between",
        theme,
        height=2.7,
    )
    for row, speed in enumerate(speeds):
        s = speed.seconds
        color = theme.main if row == 0 else theme.others[0]
        axes.plot([s.median, s.p99], [row, row], color=color, linewidth=2.5, solid_capstyle="butt")
        axes.plot([s.median], [row], "o", color=color, markersize=7)
        axes.plot([s.p95] * 2, [row - 0.16, row + 0.16], color=color, linewidth=2)
        axes.plot([s.mean], [row], "x", color=theme.ink, markersize=6)
        axes.annotate(
            f"{words.seconds(s.median)} - {words.seconds(s.p99)}",
            (max(s.p99, s.mean), row),
            (7, 0),
            textcoords="offset points",
            va="center",
            size=9,
            color=theme.ink,
            bbox=on_background(theme),
            zorder=5,
        )
    axes.set_xscale("log")
    lowest = latency.memcpy.seconds.median
    highest = max(max(loader.seconds.p99, loader.seconds.mean) for loader in speeds)
    left = min(lowest, *(loader.seconds.median for loader in speeds))
    axes.set_xlim(left / 1.4, max(highest * (highest / left) ** 0.4, 2e-3))
    axes.set_yticks(range(len(names)), names, size=9, color=theme.ink)
    axes.set_ylim(len(names) - 0.5, -1.0)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=theme.grid, linewidth=0.8)
    level(axes, lowest, "memcpy", theme.ink, upright=True)
    level(axes, ROW_MS / 1e3, _TARGET, theme.target, upright=True)
    numbers(axes.xaxis, words.seconds)
    return figure


def _share(share: float) -> str:
    """How many of the rows, never rounded up: `All`, `99.8 % of the`."""
    return "All" if share == 1 else f"{math.floor(1000 * share) / 10:g} % of the"


def _milliseconds(axis: Any) -> None:
    numbers(axis, lambda value: words.seconds(value / 1e3))
