"""Numbers and text for people: sizes, rates, counts; cut to a width, safe for a terminal."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len, set_cell_size

_NARROWEST = 20
"""Columns that a text needs beside others; where there are fewer, it goes below them."""
_NO_BREAK = "\N{NO-BREAK SPACE}"
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def format_size(count: int | float) -> str:
    """Format a number of bytes in decimal units: `61.2 kB`."""
    value, unit = float(count), 0
    while value >= 999.95 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def format_rate(count: int, seconds: float) -> str:
    """Format bytes per second: `1.2 GB/s`."""
    return f"{format_size(count / max(seconds, 1e-9))}/s"


def format_duration(seconds: float) -> str:
    """Format seconds: `12.3 s`, with one more digit below ten seconds."""
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds:.2f} s"


def format_count(count: int, noun: str) -> str:
    """Format a number with its noun: `1 row`, `12,000 rows`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def escape_controls(text: str) -> str:
    """Escape everything that a terminal would act upon, or not show."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def truncate_text(text: str, width: int | None) -> str:
    """Cut text to `width` terminal columns, with `…` at its end if it was longer."""
    if width is None or cell_len(text) <= width:
        return text
    return set_cell_size(text, max(width - 1, 0)).rstrip() + "…"


def format_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], width: int | None, right: str = ""
) -> Iterator[str]:
    """Yield the lines of a table.

    The last column goes on below itself where it is wider than what is left of `width`; None
    sets no limit. `right` names the columns that are aligned to the right. Where the columns do
    not fit beside each other, each row becomes a block: see `format_stacked`.
    """
    cells = [list(head), *([escape_controls(cell) for cell in row] for row in rows)]
    widths = [max(cell_len(row[column]) for row in cells) for column in range(len(head) - 1)]
    if width is not None:
        widths = [min(cell_width, max(width // 3, 12)) for cell_width in widths]
    indent = sum(widths) + 2 * len(widths)
    longest = max(cell_len(row[-1]) for row in cells)
    if width is not None and indent + min(longest, _NARROWEST) > width:
        yield from format_stacked(cells[0], cells[1:], width)
        return
    rest = None if width is None else max(width - indent, 1)
    for row in cells:
        front = ""
        for name, cell, room in zip(head[:-1], row[:-1], widths, strict=True):
            text = truncate_text(cell, room)
            spaces = " " * (room - cell_len(text))
            front += (spaces + text if name in right else text + spaces) + "  "
        for line in _wrap_line(row[-1], rest):
            yield (front + line).rstrip()
            front = " " * indent


def format_stacked(head: Sequence[str], rows: Iterable[Sequence[str]], width: int) -> Iterator[str]:
    """Yield the lines of a table that is too wide: first cell of a row, others below it."""
    column = max(map(cell_len, head[1:]), default=0)
    indent = " " * (column + 4)
    for row in rows:
        yield from _wrap_line(escape_controls(row[0]), width)
        for name, cell in zip(head[1:], row[1:], strict=True):
            if cell:
                first, *others = _wrap_line(escape_controls(cell), max(width - len(indent), 8))
                yield f"  {name}{' ' * (column - cell_len(name))}  {first}"
                yield from (indent + line for line in others)


def wrap_lines(lines: Iterable[str], width: int | None) -> Iterator[str]:
    """Wrap lines of prose that are wider than `width` between words."""
    for line in lines:
        if width is None or cell_len(line) <= width:
            yield line
        else:
            joined = re.sub(r"(?<=\d) (?=\w)", _NO_BREAK, line)  # a number and its unit
            for part in textwrap.wrap(
                joined,
                max(width, _NARROWEST),
                subsequent_indent="  ",
                break_long_words=False,
                break_on_hyphens=False,
            ):
                yield part.replace(_NO_BREAK, " ")


def _wrap_line(text: str, width: int | None) -> list[str]:
    if width is None or cell_len(text) <= width:
        return [text]
    return textwrap.wrap(text, width) or [""]
