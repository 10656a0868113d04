"""Charts of a run, in the look of all charts."""

from pathlib import Path
from typing import Any

from fieldslab.bench.peers import figures
from fieldslab.bench.peers.figures import Results
from fieldslab.bench.peers.peer import CEILING, US
from fieldslab.bench.report import style, words


def draw(results: Results, folder: Path) -> list[Path]:
    """Draw a PNG file a workload: random batches of every peer, with memcpy as a line."""
    written = []
    for workload in results["workloads"]:
        path = folder / f"peers-{workload}.png"
        path.write_bytes(style.png(random_batches(results, workload)))
        written.append(path)
    return written


def random_batches(results: Results, workload: str) -> Any:
    """Draw bytes a second in random batches; a peer without random access has no bar."""
    about = results["workloads"][workload]
    row = about["bytes"] / about["rows"]
    names = [US, *figures.competitors(results)]
    rates = {name: figures.rate(results, workload, name, figures.RANDOM) for name in names}
    names.sort(key=lambda name: -(rates[name] or 0))
    values = [(rates[name] or float("nan")) * row for name in names]
    texts = [_text(results, workload, name, rates[name], row) for name in names]
    colors = [style.LIGHT.main if name == US else style.LIGHT.quiet for name in names]
    spreads = [_spread(results, workload, name, row) for name in names]
    quick = ", a quick run" if results["quick"] else ""
    cores = results["machine"]["cores"]
    figure, axes = style.chart(
        _finding(results, workload, names[0]),
        f"Random batches of {about['batch']}, {about['title']}, {row:,.0f} bytes a row, page cache "
        f"warm, nothing decoded; {cores} cores, {results['date']}{quick}",
        height=0.28 * len(names) + 0.5,
    )
    style.bars(axes, names, values, texts, colors, style.LIGHT, spreads)
    axes.set_ylim(len(names) - 0.4, -1.1)  # room above the first bar for the name of the line
    ceiling = figures.rate(results, workload, CEILING, figures.RANDOM)
    if ceiling is not None:
        limit = max(axes.get_xlim()[1], 1.1 * ceiling * row)
        axes.set_xlim(0, limit)
        style.level(axes, ceiling * row, "memcpy", style.LIGHT.target, upright=True)
    style.axis_titles(axes, style.LIGHT, x="bytes a second")
    style.numbers(axes.xaxis, words.gigabytes)
    return figure


def _finding(results: Results, workload: str, first: str) -> str:
    title = workload.capitalize()
    rival = figures.times_as_fast(results, workload, first, figures.RANDOM)
    if first != US and rival is not None and rival.high > 1:
        return f"{title}: {first} and fieldslab tie at random batches"
    ratios = [
        ratio.median
        for name in figures.competitors(results)
        if (ratio := figures.times_as_fast(results, workload, name, figures.RANDOM))
    ]
    if first != US or not ratios:
        return f"{title}: {first} gathers random batches fastest"
    least, most = words.times(min(ratios)), words.times(max(ratios))
    return f"{title}: random batches come {least} to {most} as fast"


def _text(results: Results, workload: str, name: str, rate: float | None, row: float) -> str:
    if rate is not None:
        return words.gigabytes(rate * row)
    if results["peers"][name]["status"] != "measured":
        return "not installed"
    rounds = results["workloads"][workload]["peers"][name].get(figures.RANDOM, {})
    return "no random access" if "not offered" in rounds else "failed"


def _spread(results: Results, workload: str, name: str, row: float) -> tuple[float, float]:
    seconds = figures.seconds_a_row(results, workload, name, figures.RANDOM)
    if seconds is None:
        return 0, 0
    rates = sorted(row / second for second in seconds)
    quarter = len(rates) // 4
    return rates[quarter], rates[-1 - quarter]
