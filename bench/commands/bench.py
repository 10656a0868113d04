"""`fieldslab bench`."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fieldslab.packer.commands.params import Option, command
from fieldslab.packer.commands.shared import FOLLOW_LINKS, ID, OPENING, ROWS_FILE, SLABS
from fieldslab.packer.commands.terminal import get_terminal_width, print_json, print_lines
from fieldslab.schemas.errors import OutputError, UsageError

if TYPE_CHECKING:
    from fieldslab.bench.slab.results import Results

MEASUREMENT, RESULTS = "Measurement", "Results"

EXAMPLES = """\
Examples:
  fieldslab bench train.slab
  fieldslab bench train.slab --fields image,label --report bench/"""


@command(
    SLABS,
    Option(
        "--fields",
        MEASUREMENT,
        "Read only these fields, as training will. The default is all fields.",
        "a,b",
        multiple=True,
    ),
    Option(
        "--seconds",
        MEASUREMENT,
        "Measure for about this long.",
        "S",
        type=float,
        shown_default=30,
    ),
    Option("--quick", MEASUREMENT, "Measure for only 6 seconds, as a first look."),
    Option(
        "--seed",
        MEASUREMENT,
        "Seed of the random rows.",
        "N",
        type=click.IntRange(min=0),
        default=0,
    ),
    Option(
        "--json json_file",
        RESULTS,
        "Write all numbers to this file. '-' prints them as JSON instead of the tables.",
        "FILE",
        type=click.Path(readable=False, path_type=Path),
    ),
    Option(
        "--report",
        RESULTS,
        "Write charts and a page, index.html, to this folder.",
        "DIR",
        type=click.Path(readable=False, path_type=Path),
    ),
    ROWS_FILE,
    ID,
    FOLLOW_LINKS,
    *OPENING,
    examples=EXAMPLES,
)
def bench(
    slab: str,
    fields: Sequence[str],
    seconds: float | None,
    quick: bool,
    seed: int,
    json_file: Path | None,
    report: Path | None,
    content: str | None,
    **opening: Any,
) -> None:
    """Measure how fast a slab is read on this machine.

    Reads random rows and batches as training code does, from the disk and from memory, with one
    thread and with all cores, beside a memcpy of the same bytes. The slab is not changed; its
    pages are dropped from the system's cache once.
    """
    from fieldslab.bench.report.advice import advise
    from fieldslab.bench.report.table import lines
    from fieldslab.bench.slab.measure import QUICK_SECONDS, SECONDS, measure

    if seconds is not None and quick:
        raise UsageError("--seconds and --quick exclude each other")
    if seconds is not None and not 0 < seconds <= 86_400:
        raise UsageError("--seconds: not a time to measure for", found=f"{seconds:g}")
    write_report = _prepared(report)
    printed = json_file is not None and str(json_file) == "-"
    if json_file is not None and not printed:
        _check_writable(json_file)
    wanted = seconds or (QUICK_SECONDS if quick else SECONDS)
    names = [name.strip() for item in fields for name in item.split(",")] or None
    with _steps() as tell:
        results = measure(slab, names, seconds=wanted, seed=seed, tell=tell, id=content, **opening)
    results.advice = advise(results)
    if printed:
        print_json(results.as_dict())
    elif json_file is not None:
        text = json.dumps(results.as_dict(), ensure_ascii=False, indent=2, allow_nan=False)
        json_file.write_text(text + "\n", encoding="utf-8")
    if not printed:
        print_lines(lines(results, get_terminal_width(sys.stdout)))
    if report is not None and write_report is not None:
        page = write_report(results, report)
        if printed:
            print(f"report  {page}", file=sys.stderr)
        else:
            print(f"\nreport  {page}")


def _check_writable(file: Path) -> None:
    """Raise OutputError where a file cannot be written, before anything is measured."""
    if not file.absolute().parent.is_dir():
        raise OutputError("there is no such folder", file=file.parent)
    try:
        with open(file, "a", encoding="utf-8"):
            pass
    except OSError as error:
        raise OutputError(f"cannot be written: {error.strerror}", file=file) from error


def _prepared(folder: Path | None) -> "Callable[[Results, Path], Path] | None":
    """What writes a report; that it can is found out before anything is measured."""
    if folder is None:
        return None
    from fieldslab.bench.report.page import write

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot be made a folder: {error.strerror}", file=folder) from error
    return write


@contextmanager
def _steps() -> Iterator[Callable[[str, float], None]]:
    """A bar on a terminal that says what is measured; nothing on a pipe."""
    if not sys.stderr.isatty():
        yield lambda name, share: None
        return
    from rich import progress
    from rich.console import Console

    columns = [
        progress.TextColumn("{task.description:<11}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeElapsedColumn(),
    ]
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("opening", total=1.0)
        yield lambda name, share: bars.update(task, description=name, completed=share)
