"""How every chart looks: one palette, direct labels, a title that says the finding.

A chart is a matplotlib `Figure` with its title and subtitle at the top left. Figures are drawn
without pyplot: no state is shared, no window is opened. The palette tells its colours apart for
colour-blind readers too.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from types import CodeType
from typing import TYPE_CHECKING, Any

from fieldslab.schemas.errors import MissingLibrary
from fieldslab.schemas.imports import import_edited


def _without_file(loader: Any) -> CodeType:
    """The module in which matplotlib names its files, without that of the working directory."""
    source: bytes = loader.get_data(loader.path)
    code: CodeType = loader.source_to_code(
        source.replace(b"yield 'matplotlibrc'", b"yield ''"), loader.path
    )
    return code


try:
    import_edited("matplotlib", "matplotlib", _without_file)
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator
except ModuleNotFoundError as error:
    raise MissingLibrary(
        f"charts need {error.name}, which is not installed",
        hint="pip install 'jinja2>=3.1' 'matplotlib>=3.8'",
    ) from error

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, DPI = 6.4, 200
"""Inches and dots an inch: 1280 pixels, shown at half that size on a page."""
_TITLE, _SUBTITLE, LABEL, _SMALL = 11.5, 9.0, 9.0, 8.0
_TITLE_LETTERS, _SUBTITLE_LETTERS = 64, 92


@dataclass(frozen=True)
class Theme:
    """Colours of a chart, as `#rrggbb`."""

    name: str
    background: str
    ink: str
    soft: str
    grid: str
    main: str
    """What the chart is about: fieldslab, or the warm slab."""
    others: tuple[str, ...]
    """Whatever stands beside it, in this order."""
    quiet: str
    """Bars and points that are only there for comparison."""
    target: str
    good: str
    bad: str

    @property
    def series(self) -> tuple[str, ...]:
        """Colours of lines that stand on an equal footing."""
        return self.main, *self.others


LIGHT = Theme(
    "light",
    background="#ffffff",
    ink="#1f2933",
    soft="#66727f",
    grid="#e4e8ec",
    main="#2463a8",
    others=("#d9822b", "#2e8b72", "#8e5ea2", "#b8425a", "#7a6a53"),
    quiet="#b9c3cd",
    target="#b8425a",
    good="#2e8b72",
    bad="#b8425a",
)
DARK = Theme(
    "dark",
    background="#161b22",
    ink="#e6edf3",
    soft="#98a4b0",
    grid="#2c343d",
    main="#6cabee",
    others=("#f0a050", "#58c4a3", "#c193d8", "#f07f93", "#c3ad8d"),
    quiet="#4d5965",
    target="#f07f93",
    good="#58c4a3",
    bad="#f07f93",
)


def chart(
    title: str, subtitle: str, theme: Theme = LIGHT, height: float = 3.4, polar: bool = False
) -> tuple[Figure, Any]:
    """Make an empty chart, and the axes to draw on.

    Parameters
    ----------
    title
        The finding, in a sentence; it is wrapped.
    subtitle
        What is shown, in which unit, under which conditions.
    height
        Inches of the part below the title.
    polar
        Whether the axes are those of a radar.
    """
    heads = textwrap.wrap(title, _TITLE_LETTERS)
    lines = textwrap.wrap(subtitle, _SUBTITLE_LETTERS)
    top = 0.16 + 0.215 * len(heads) + 0.16 * len(lines) + 0.08
    total = height + top
    figure = Figure((WIDTH, total), dpi=DPI, facecolor=theme.background)
    figure.set_layout_engine("constrained", rect=(0.01, 0.01, 0.98, 1 - top / total - 0.01))
    figure.text(
        0.02,
        1 - 0.13 / total,
        "\n".join(heads),
        va="top",
        size=_TITLE,
        weight="bold",
        color=theme.ink,
        linespacing=1.2,
    )
    figure.text(
        0.02,
        1 - (0.17 + 0.215 * len(heads)) / total,
        "\n".join(lines),
        va="top",
        size=_SUBTITLE,
        color=theme.soft,
        linespacing=1.2,
    )
    axes = figure.add_subplot(projection="polar" if polar else None)
    axes.set_facecolor(theme.background)
    axes.tick_params(which="both", colors=theme.soft, labelsize=_SMALL, length=0)
    if not polar:
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.spines["bottom"].set_color(theme.soft)
        axes.grid(axis="y", color=theme.grid, linewidth=0.8)
    axes.set_axisbelow(True)
    return figure, axes


def png(figure: Figure) -> bytes:
    """Encode the chart as a PNG file."""
    file = BytesIO()
    # Without the version of matplotlib in it: the same numbers give the same bytes.
    figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def axis_titles(axes: "Axes", theme: Theme, x: str = "", y: str = "") -> None:
    """Label the axes with what they show, with units."""
    axes.set_xlabel(x, size=_SMALL, color=theme.soft)
    axes.set_ylabel(y, size=_SMALL, color=theme.soft)


def rates(axes: "Axes", theme: Theme, axis: str, most: float) -> None:
    """Set ticks and title of the axis "x" or "y" that shows bytes a second, up to `most`."""
    unit, scale = ("GB/s", 1e9) if most >= 2e9 else ("MB/s", 1e6)
    numbers(getattr(axes, f"{axis}axis"), lambda value: f"{value / scale:,.10g}")
    getattr(axes, f"set_{axis}label")(unit, size=_SMALL, color=theme.soft)


def numbers(axis: Any, words: Any) -> None:
    """Set ticks of `axes.xaxis` or `yaxis` to words: a function of the value.

    On a linear axis they stand at multiples of 1, 2 or 5: in two digits, 12.5 would read 12.
    """
    if axis.get_scale() == "linear":
        axis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: words(value)))
    axis.set_minor_formatter(FuncFormatter(lambda value, _: ""))


def level(
    axes: "Axes", value: float, text: str, color: str, *, upright: bool = False, below: bool = False
) -> None:
    """Draw a dashed line across the chart at a value, with its name on it; `upright`: at an x."""
    settings: dict[str, Any] = {"color": color, "linewidth": 1.2, "linestyle": (0, (4, 3))}
    words: dict[str, Any] = {
        "textcoords": "offset points",
        "size": _SMALL,
        "color": color,
        "zorder": 4,
        "bbox": {"facecolor": axes.get_facecolor(), "edgecolor": "none", "pad": 0.8},
    }
    if upright:
        axes.axvline(value, **settings)
        axes.annotate(
            text, (value, 1), (4, -2), xycoords=("data", "axes fraction"), va="top", **words
        )
        return
    axes.axhline(value, **settings)
    axes.annotate(
        text,
        (1, value),
        (0, -3 if below else 3),
        xycoords=("axes fraction", "data"),
        ha="right",
        va="top" if below else "bottom",
        **words,
    )


def on_background(theme: Theme) -> dict[str, Any]:
    """Return the `bbox` of a text that stays readable with a line behind it."""
    return {"facecolor": theme.background, "edgecolor": "none", "pad": 0.8}


def bars(
    axes: "Axes",
    names: Sequence[str],
    values: Sequence[float],
    texts: Sequence[str],
    colors: Sequence[str],
    theme: Theme,
    spreads: Sequence[tuple[float, float]] | None = None,
    clear: Sequence[float] = (),
) -> None:
    """Draw horizontal bars, the first on top, each with its value behind it.

    `spreads` are lower and upper quartiles, drawn as a thin line. A value of NaN has no bar, and
    its text says why. Texts stand behind the values of `clear`, where they would cover them.
    """
    places = list(range(len(names)))
    known = [0.0 if value != value else value for value in values]
    axes.barh(places, known, height=0.62, color=list(colors))
    ends = list(known)
    for row, (low, high) in enumerate(spreads or ()):
        axes.plot([low, high], [row, row], color=theme.ink, linewidth=1, solid_capstyle="butt")
        ends[row] = max(ends[row], high)
    most = 1.28 * max([*ends, *clear, 1e-12])  # room for the texts
    for row, mark in enumerate(clear):
        if ends[row] <= mark < ends[row] + 0.18 * most:
            ends[row] = mark
    for row, text in enumerate(texts):
        axes.annotate(
            text,
            (ends[row], row),
            (4, 0),
            textcoords="offset points",
            va="center",
            size=LABEL,
            color=theme.ink,
            bbox=on_background(theme),
            zorder=5,
        )
    axes.set_yticks(places, names, size=LABEL, color=theme.ink)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, most)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=theme.grid, linewidth=0.8)


def end_labels(
    axes: "Axes", x: float, ends: Sequence[tuple[float, str, str]], *, apart: float = 0.06
) -> None:
    """Names of lines behind their last points (y, text, colour), moved apart where they collide.

    `apart` is the least distance, as a share of the height of the axes, whose limits must be set.
    """
    scale = axes.transAxes.inverted()
    places = [scale.transform(axes.transData.transform((x, y)))[1] for y, _, _ in ends]
    order = sorted(range(len(ends)), key=lambda line: places[line])
    places = [max(place, apart / 2) for place in places]  # clear of the axis below
    for below, above in pairwise(order):
        places[above] = max(places[above], places[below] + apart)
    for place, (_, text, color) in zip(places, ends, strict=True):
        axes.annotate(
            text,
            (x, place),
            (6, 0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            va="center",
            size=LABEL,
            color=color,
            annotation_clip=False,
        )
