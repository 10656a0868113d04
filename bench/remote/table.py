"""What was measured at a distance, as the tables of docs/explanation/benchmarks.md."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from fieldslab.bench.machine import busy, in_words, load_in_words
from fieldslab.bench.readme import markdown_table
from fieldslab.bench.timing import Ratio

FIGURES = ("MB/s", "first batch, s", "bytes fetched / bytes used", "requests / GB", "memory, MB")
ALONE = "obstore alone"


def make_tables(
    results: Mapping[str, Any], readers: Sequence[str], marks: Mapping[str, str]
) -> str:
    """Make Markdown of what `measure` of the program returned.

    `readers` are others beside fieldslab; `marks` say what is expected of some figures.
    """
    machine, usual = results["machine"], results["usual"]
    lines = [
        f"Measured on {date.today()} ({in_words('obstore')}; {load_in_words(machine)}): a shuffled "
        f"epoch of photographs, {results['bytes'] / 1e6:,.0f} MB in batches of 64 from nginx, "
        "through a proxy that adds latency to each request and connection and limits the "
        "bandwidth. Medians with quartiles. Server, proxy and reader share the processors.",
        *([warning] if (warning := busy(machine, details=False)) else []),
    ]
    places = {"fieldslab": usual} | {name: f"{usual}, {name}" for name in (ALONE, *readers)}
    rows = [
        [name, *(_format(results.get(f"{place}: {figure}")) for figure in FIGURES)]
        for name, place in places.items()
        if f"{place}: MB/s" in results
    ]
    lines += ["", markdown_table([f"at {usual}", *FIGURES], rows)]
    ending = ": first epoch / obstore alone"
    networks = [label.removesuffix(ending) for label in results if label.endswith(ending)]
    columns = [f", {ALONE}: MB/s", ": MB/s", ending, ": first batch, s"]
    rows = [[name, *(_format(results.get(name + each)) for each in columns)] for name in networks]
    head = ["latency, bandwidth", f"{ALONE}, MB/s", "fieldslab, MB/s", "ratio", "first batch, s"]
    lines += ["", markdown_table(head, rows)]
    both = (*places.values(), *networks, *(f"{name}, {ALONE}" for name in networks))
    taken = {f"{place}: {figure}" for place in both for figure in FIGURES}
    taken |= {name + ending for name in networks}
    rows = [
        [label, _format(value), marks.get(label, "")]
        for label, value in results.items()
        if isinstance(value, Ratio | float) and (label not in taken or label in marks)
    ]
    lines += ["", markdown_table(["", "measured", "expected"], rows)]
    return "\n".join(lines)


def _format(value: Any) -> str:
    if isinstance(value, Ratio):
        digits = 0 if value.median >= 100 else 2
        low, middle, high = (
            f"{each:,.{digits}f}" for each in (value.low, value.median, value.high)
        )
        return f"{middle} ({low}-{high})"
    return "" if value is None else f"{value:.3g}"
