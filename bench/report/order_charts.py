"""Charts of orders and strategies: a heat map over batch sizes, and a radar."""

from math import pi
from typing import Any

import numpy as np

from fieldslab.bench.report import words
from fieldslab.bench.report.style import Theme, axis_titles, chart
from fieldslab.bench.slab.results import Results
from fieldslab.packer.commands.text_format import format_count

_NEAR = 0.4
"""From this share of memcpy on, a radar shows its ring."""


def heat_map(results: Results, theme: Theme) -> Any:
    """Draw rows a second by order and size of the batch, with the time of a batch."""
    sizes = results.batches
    names = [size.name for size in sizes[0].orders]
    table = [[size.orders[number] for size in sizes] for number in range(len(names))]
    best = max((speed for row in table for speed in row), key=lambda size: size.rows_per_second)
    random = results.fastest.random
    figure, axes = chart(
        f"{best.name.capitalize()} batches of {best.rows:.0f} are fastest: "
        f"{words.count(best.rows_per_second)} rows/s; random ones reach "
        f"{words.count(random.rows_per_second)}",
        "Rows a second, and the time of a batch, by order of the rows and rows in a batch; median, "
        "one thread, warm; the last line is a memcpy of random rows",
        theme,
        height=3.1,
    )
    table.append([size.memcpy for size in sizes])
    rates = np.log([[speed.rows_per_second for speed in row] for row in table])
    shades = (rates - rates.min()) / max(np.ptp(rates), 1e-9)
    for y, row in enumerate(table):
        below = y == len(names)  # memcpy stands apart
        for x, speed in enumerate(row):
            strength = 0.12 + 0.88 * float(shades[y, x])
            color = _mixed(theme.background, theme.quiet if below else theme.main, strength)
            axes.add_patch(_cell(x, y + 0.15 * below, color, theme))
            ink = _readable(color)
            place = (x + 0.5, y + 0.5 + 0.15 * below)
            axes.annotate(
                words.count(speed.rows_per_second),
                place,
                (0, 1),
                textcoords="offset points",
                ha="center",
                va="bottom",
                size=9.5,
                weight="bold",
                color=ink,
            )
            axes.annotate(
                words.seconds(speed.seconds.median),
                place,
                (0, -2),
                textcoords="offset points",
                ha="center",
                va="top",
                size=8,
                color=ink,
            )
    axes.set_xlim(0, len(sizes))
    axes.set_ylim(len(table) + 0.15, 0)
    axes.set_xticks(
        [x + 0.5 for x in range(len(sizes))],
        [str(size.rows) for size in sizes],
        size=9,
        color=theme.ink,
    )
    heights = [*(y + 0.5 for y in range(len(names))), len(names) + 0.65]
    axes.set_yticks(heights, [*names, "memcpy"], size=9, color=theme.ink)
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    axis_titles(axes, theme, x="rows in a batch")
    return figure


def radar(results: Results, theme: Theme) -> Any:
    """Share of memcpy that each strategy reaches, warm and cold."""
    strategies = results.subsets.strategies
    ceiling = results.subsets.memcpy.rows_per_second
    warm = [strategy.rows_per_second / ceiling for strategy in strategies]
    names = [strategy.name for strategy in strategies]
    slowest = min(strategies, key=lambda strategy: strategy.rows_per_second)
    fastest = max(strategies, key=lambda strategy: strategy.rows_per_second)
    spread = fastest.rows_per_second / slowest.rows_per_second
    finding = f"{fastest.name.capitalize()} rows come {words.times(spread)} as fast as"
    finding = f"{finding} {slowest.name} ones" if spread > 1.15 else "The order hardly matters"
    # Where memcpy is far away, its ring would leave nothing to be seen of the rest.
    near = max(warm) > _NEAR
    ring_text = "the dashed ring" if near else "far outside"
    figure, axes = chart(
        finding,
        f"Rows a second of {format_count(results.subsets.rows, 'row')} in batches of "
        f"{results.subsets.batch}, by strategy, as a share of a memcpy of random rows "
        f"({ring_text}); one thread, warm; median",
        theme,
        height=4.0,
        polar=True,
    )
    angles = [2 * pi * number / len(names) for number in range(len(names))]
    outer = 1.12 * max(1.0 if near else 0.0, *warm)
    axes.set_theta_offset(pi / 2)
    axes.set_theta_direction(-1)
    axes.set_ylim(0, outer)
    ring = np.linspace(0, 2 * pi, 200)
    axes.plot(ring, np.ones(200), color=theme.ink, linewidth=1.2, linestyle=(0, (4, 3)))
    _polygon(axes, angles, warm, theme.main)
    axes.set_xticks(angles, [""] * len(names))
    for angle, name, share, speed in zip(angles, names, warm, strategies, strict=True):
        side = {0: "center"}.get(round(np.sin(angle), 6), "left" if np.sin(angle) > 0 else "right")
        axes.annotate(
            f"{name}\n{words.percent(share)}, {words.count(speed.rows_per_second)} rows/s",
            (angle, outer * 1.06),
            ha=side,
            size=9,
            color=theme.ink,
            annotation_clip=False,
            va="bottom" if np.cos(angle) > 0.5 else "top" if np.cos(angle) < -0.5 else "center",
        )
    top = 1.0 if near else max(warm)
    rings = [top / 4, top / 2, 0.75 * top, top]
    names = ["", words.percent(top / 2), "", words.percent(top)]
    axes.set_yticks(rings, names, size=7.5, color=theme.soft)
    axes.set_rlabel_position(36)
    axes.grid(color=theme.grid, linewidth=0.8)
    axes.spines["polar"].set_visible(False)
    return figure


def _polygon(axes: Any, angles: list[float], shares: list[float], color: str) -> None:
    closed = [*angles, angles[0]], [*shares, shares[0]]
    axes.plot(*closed, "o-", color=color, linewidth=2, markersize=5)
    axes.fill(*closed, color=color, alpha=0.16, linewidth=0)


def _cell(x: float, y: float, color: str, theme: Theme) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), 1, 1, facecolor=color, edgecolor=theme.background, linewidth=2)


def _mixed(first: str, second: str, share: float) -> str:
    """A colour between two, as `#rrggbb`."""
    pairs = zip(_channels(first), _channels(second), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def _readable(background: str) -> str:
    """Black or white, whichever is read more easily on a colour."""
    red, green, blue = _channels(background)
    return "#ffffff" if 0.299 * red + 0.587 * green + 0.114 * blue < 140 else "#1f2933"


def _channels(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)
