"""The results as Markdown."""

from collections.abc import Callable
from pathlib import Path
from statistics import median

from fieldslab.bench.machine import busy, load_in_words
from fieldslab.bench.peers import figures
from fieldslab.bench.peers.figures import Results
from fieldslab.bench.peers.peer import CEILING, US
from fieldslab.bench.peers.targets import WHAT, reached
from fieldslab.bench.readme import markdown_table, put
from fieldslab.bench.timing import Ratio

NOTHING = "–"
MEGA = 1e6

Cell = Callable[[str, str], str]
"""What a table says about a workload and a peer."""


def readme(results: Results) -> str:
    """Format machine and date, the most important tables, and notes on them."""
    parts = [
        heading(results),
        "**Random batches.** How many times as fast fieldslab is, with quartiles:",
        compared(results, figures.RANDOM),
        "**A shuffled epoch through each one's own loader**, with 0 or 2 workers, whichever is "
        "faster for it:",
        _table(results, lambda w, p: _ratio(figures.loaders_compared(results, w, p)), _loader),
    ]
    if "photographs" in results["workloads"]:
        parts.insert(1, "![Random batches of photographs](bench/results/peers-photographs.png)")
    if aims := targets(results):
        parts += ["**Random batches of fieldslab, and what they are to reach:**", aims]
    return "\n\n".join([*parts, notes(results)])


def everything(results: Results) -> str:
    """Format every table of a run."""
    measures = {
        "Random batches": figures.RANDOM,
        "Shuffled epoch, own loader, no workers": figures.LOADER,
        "Shuffled epoch, own loader, 2 workers": figures.WORKERS,
        "In order": figures.SEQUENTIAL,
        "Single random rows": figures.ROW,
    }
    parts = ["# fieldslab beside its peers", heading(results)]
    for title, measure in measures.items():
        parts += [f"## {title}", compared(results, measure)]
    for workload, about in results["workloads"].items():
        parts += [f"## {workload}: {about['title']}", details(results, workload)]
    if aims := targets(results):
        parts += ["## Targets", aims]
    parts += ["## Configurations", configurations(results), notes(results)]
    return "\n\n".join(parts) + "\n"


def heading(results: Results) -> str:
    """When, on what, and how."""
    machine = results["machine"]
    quick = " A quick run: less data, fewer rounds." if results["quick"] else ""
    workloads = ", ".join(
        f"{name} ({about['rows']:,} rows, {about['bytes'] / MEGA:.0f} MB, batches of "
        f"{about['batch']})"
        for name, about in results["workloads"].items()
    )
    return (
        f"Measured on {results['date']} ({machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_bytes'] / 1e9:.0f} GB; {machine['system']}, Python "
        f"{machine['python']}; {load_in_words(machine)}), page cache warm, every peer "
        f"in a process of its own, taking turns.{quick} {busy(machine, details=False) or ''}\n\n"
        f"Workloads: {workloads}. Nothing is decoded. Every peer's rows were compared with the "
        "source before anything was timed."
    )


def compared(results: Results, measure: str) -> str:
    """Format a table of one measure: ours in rows a second, the others as ratios."""

    def ours(workload: str, peer: str) -> str:
        return _rate(figures.rate(results, workload, peer, measure), peer == US, results, workload)

    return _table(
        results,
        lambda workload, peer: _ratio(figures.times_as_fast(results, workload, peer, measure)),
        lambda _, workload, peer: _share(results, workload, peer, measure, ours(workload, peer)),
    )


def _table(results: Results, cell: Cell, head: Callable[[Results, str, str], str]) -> str:
    workloads = list(results["workloads"])
    rows = []
    for peer in (CEILING, US):
        if peer in results["peers"]:
            rows.append([peer, *(head(results, workload, peer) for workload in workloads)])
    for peer in figures.competitors(results):
        rows.append([peer, *(cell(workload, peer) for workload in workloads)])
    return markdown_table(["", *workloads], rows)


def details(results: Results, workload: str) -> str:
    """Format the figures of one workload that are no comparison of batches."""
    head = ["", "in order, rows/s", "one row, µs", "convert, s", "on disk, MB"]
    head += ["first batch, s", "most memory, MB"]
    rows = []
    for peer in [*([US] if US in results["peers"] else []), *figures.competitors(results)]:
        row = figures.seconds_a_row(results, workload, peer, figures.ROW)
        convert = results["workloads"][workload]["peers"].get(peer, {}).get("convert")
        memory = figures.memory(results, workload, peer)
        cells = [
            peer,
            _number(figures.rate(results, workload, peer, figures.SEQUENTIAL)),
            _number(median(row) * MEGA if row else None, 1),
            _number(convert and convert["seconds"], 2),
            _number(convert and convert["bytes"] / MEGA, 1),
            _number(figures.first_batch(results, peer), 2),
            _number(memory and memory / MEGA),
        ]
        rows.append(cells)
    return markdown_table(head, rows)


def targets(results: Results) -> str:
    """Format each target beside what was reached; memcpy shows the limit."""
    outcomes = reached(results)
    if not outcomes:
        return ""
    rows = []
    for outcome in outcomes:
        target = outcome.target
        times = f"{_times(outcome.times)}x"
        rows.append(
            [
                f"{target.peer}, {WHAT[target.measure]}, {target.workload}",
                f"{target.least:.0f}x",
                times if outcome.held else f"**{times}**",
                f"{_times(outcome.ceiling)}x",
            ]
        )
    return markdown_table(["times as fast as", "at least", "fieldslab", "memcpy"], rows)


def configurations(results: Results) -> str:
    """List the peers with their versions and settings."""
    rows = []
    for name, about in results["peers"].items():
        versions = ", ".join(f"{k} {v}" for k, v in about.get("versions", {}).items())
        rows.append([name, versions, about.get("configuration", about["status"])])
    return markdown_table(["", "versions", "configuration"], rows)


def notes(results: Results) -> str:
    """List peers faster than fieldslab, peers that are missing, and failures."""
    lines = []
    for workload, peer, ours in figures.faster_than_us(results):
        spread = "; the spread reaches both sides" if ours.high > 1 else ""
        times = f"{1 / ours.median:.2f} times as fast"
        lines.append(f"- Faster than fieldslab: {peer}, {workload}, {times}{spread}.")
    lines += [f"- {trouble}" for trouble in figures.troubles(results)]
    return "\n".join(lines) or "Every peer was measured, and none is faster at random batches."


def write_readme(file: Path, results: Results) -> None:
    """Put the tables between the markers of a README. Raises UsageError where there are none."""
    put("peers", readme(results), file)


def _loader(results: Results, workload: str, peer: str) -> str:
    value = figures.rate(results, workload, peer, figures.better_loader(results, workload, peer))
    return f"{_number(value)} rows/s"


def _rate(value: float | None, ours: bool, results: Results, workload: str) -> str:
    return NOTHING if value is None else f"{value:,.0f} rows/s"


def _share(results: Results, workload: str, peer: str, measure: str, text: str) -> str:
    if peer == CEILING:
        return text
    ratio = figures.times_as_fast(results, workload, CEILING, measure)
    return text if ratio is None else f"{text}, {ratio.median:.2f} of memcpy"


def _ratio(value: Ratio | None) -> str:
    if value is None:
        return NOTHING
    text = f"{_times(value.median)}x"
    if value.low < value.high:
        text += f" ({_times(value.low)}-{_times(value.high)})"
    return f"**{text}**" if value.median < 1 else text


def _times(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _number(value: float | None, digits: int = 0) -> str:
    return NOTHING if value is None else f"{value:,.{digits}f}"
