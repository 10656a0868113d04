"""Figures as a table in Markdown, with machine and date."""

from collections.abc import Mapping
from datetime import date
from typing import Any

from fieldslab.bench.machine import busy, in_words, load_in_words
from fieldslab.bench.readme import markdown_table
from fieldslab.bench.timing import Ratio


def table(measured: Mapping[str, Ratio | float], machine: dict[str, Any]) -> str:
    """Format figures as Markdown, with machine and date."""
    warning = busy(machine, details=False)
    lines = [
        f"Measured on {date.today()} ({in_words('pyarrow')}; {load_in_words(machine)}), page",
        "cache warm unless cold is said. Ratios are medians over rounds in which all calls take",
        "turns, with quartiles.",
        *([warning] if warning else []),
        "",
    ]
    rows = [
        (label.strip(), str(value) if isinstance(value, Ratio) else f"{value:.3g}")
        for label, value in measured.items()
    ]
    return "\n".join([*lines, markdown_table(["what", "measured"], rows)])
