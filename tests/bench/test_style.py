"""The one look of all charts."""

import itertools
import struct

import pytest

from fieldslab.bench.report import style, words


def size_of(png: bytes) -> tuple[int, int]:
    """Width and height that a PNG file states."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", png[16:24])
    return width, height


@pytest.mark.parametrize("theme", [style.LIGHT, style.DARK])
def test_a_chart_is_a_png_of_one_width(theme: style.Theme) -> None:
    """Charts are 1280 pixels wide; a longer title makes them higher, and nothing else."""
    heights = []
    for title in ("Short", "A finding that takes " + "more and more words " * 6):
        figure, axes = style.chart(title, "GB/s", theme, height=2)
        style.bars(axes, ["a", "b"], [1, float("nan")], ["1", "failed"], ["#000000"] * 2, theme)
        width, height = size_of(style.png(figure))
        assert width == 1280
        heights.append(height)
    assert 400 < heights[0] < heights[1] < 700


def test_a_chart_is_the_same_each_time() -> None:
    """The same numbers give the same bytes."""
    files = []
    for _ in range(2):
        figure, axes = style.chart("Same", "GB/s", height=1)
        style.level(axes, 0.5, "memcpy", style.LIGHT.ink)
        files.append(style.png(figure))
    assert files[0] == files[1]


@pytest.mark.parametrize("most", [9.9e9, 13e9, 18e9, 24e9, 31e9, 80e9])
def test_ticks_say_where_they_stand(most: float) -> None:
    """A tick's words, read as a number, are its place on the axis."""
    _, axes = style.chart("Ticks", "GB/s", height=1)
    axes.set_xlim(0, most)
    style.numbers(axes.xaxis, words.gigabytes)
    places = axes.get_xticks().tolist()
    texts = [words.gigabytes(place) for place in places]
    assert len(places) > 3
    assert [float(text.split()[0]) * (1e9 if "GB" in text else 1e6) for text in texts] == places


def test_names_of_lines_do_not_collide() -> None:
    """Lines that end at the same height have their names one above the other."""
    figure, axes = style.chart("Names", "GB/s", height=2)
    axes.set_ylim(0, 10)
    style.end_labels(axes, 1, [(5, "a", "#000000"), (5, "b", "#000000"), (5.1, "c", "#000000")])
    heights = sorted(text.xy[1] for text in axes.texts)
    assert all(b - a >= 0.059 for a, b in itertools.pairwise(heights))
    assert figure.axes == [axes]
