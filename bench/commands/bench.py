"""`fieldslab bench`."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fieldslab.packer.commands.shared import FollowLinks
from fieldslab.packer.commands.terminal import emit, emit_lines, width_of
from fieldslab.schemas.errors import OutputError, UsageError

if TYPE_CHECKING:
    from fieldslab.bench.slab.results import Results

MEASURES, RESULTS = "What to measure", "Where results go"

EXAMPLES = """\
Examples:
  fieldslab bench train.slab
  fieldslab bench train.slab --fields image,label --report bench/"""


def bench(
    slab: Annotated[str, typer.Argument(metavar="SLAB", help="A directory that pack wrote.")],
    fields: Annotated[
        list[str] | None,
        typer.Option(
            "--fields",
            metavar="a,b",
            rich_help_panel=MEASURES,
            help="Read these fields only, as training will; all if not given.",
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            metavar="S",
            rich_help_panel=MEASURES,
            help="Measure for about so long (30).",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            rich_help_panel=MEASURES,
            help="Measure for 6 seconds: a first look.",
        ),
    ] = False,
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            metavar="N",
            min=0,
            rich_help_panel=MEASURES,
            help="Draw other random rows (0).",
        ),
    ] = 0,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="FILE",
            rich_help_panel=RESULTS,
            help="Write every number there; '-' prints them as JSON instead of the tables.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="DIR",
            rich_help_panel=RESULTS,
            help="Write charts and a page, index.html, into this folder.",
        ),
    ] = None,
    follow_links: FollowLinks = False,
) -> None:
    """Measure how fast a slab is read on this machine.

    Reads random rows and batches as training code does, from the disk and from memory, with one
    thread and with all cores, beside a memcpy of the same bytes. The slab is not changed; its
    pages are dropped from the system's cache once.
    """
    from fieldslab.bench.report.advice import advise
    from fieldslab.bench.report.table import lines
    from fieldslab.bench.slab.measure import QUICK_SECONDS, SECONDS, measure
    from fieldslab.schemas.folder import check_slab_path

    if seconds is not None and quick:
        raise UsageError("--seconds and --quick exclude each other")
    if seconds is not None and not 0 < seconds <= 86_400:
        raise UsageError("--seconds: not a time to measure for", found=f"{seconds:g}")
    write_report = _prepared(report)
    printed = json_file is not None and str(json_file) == "-"
    if json_file is not None and not printed:
        _check_writable(json_file)
    wanted = seconds or (QUICK_SECONDS if quick else SECONDS)
    names = [name.strip() for names_text in fields or () for name in names_text.split(",")] or None
    with _steps() as tell:
        results = measure(
            check_slab_path(slab),
            names,
            seconds=wanted,
            seed=seed,
            follow_links=follow_links,
            tell=tell,
        )
    results.advice = advise(results)
    if printed:
        emit(results.as_dict())
    elif json_file is not None:
        text = json.dumps(results.as_dict(), ensure_ascii=False, indent=2, allow_nan=False)
        json_file.write_text(text + "\n", encoding="utf-8")
    if not printed:
        emit_lines(lines(results, width_of(sys.stdout)))
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
