"""The progress bar on a terminal: done of total, rate, time left. Nothing on a pipe."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from fieldslab.packer.check.findings import VerifyProgress
from fieldslab.packer.commands import events
from fieldslab.packer.commands.text_format import format_rate


@contextmanager
def show_bar(
    label: str, path: str, total: int | None, unit: str, *, hidden: bool
) -> Iterator[VerifyProgress]:
    """Draw a bar on stderr, and give the function that moves it.

    `unit` is what `total` counts, "rows" or "bytes"; without a total the bar only shows that
    something happens. Nothing is drawn if `hidden`, or where stderr is no terminal. Where events
    are wanted, they take its place.
    """
    if events.are_events_on():
        with events.track_progress(label, path, total, unit) as progress_events:
            yield progress_events
        return
    if hidden or not sys.stderr.isatty():
        yield _ignore_progress
        return
    from rich import progress  # takes a while to load, and only terminals need it
    from rich.console import Console

    known = total is not None
    columns = [progress.TextColumn("{task.description}"), progress.BarColumn()]
    columns += [progress.TaskProgressColumn()] if known else []
    columns += [progress.TextColumn("{task.fields[rate]}")]
    columns += [progress.TimeRemainingColumn() if known else progress.TimeElapsedColumn()]
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(label, total=total, rate="")
        done = {"rows": 0, "bytes": 0}

        def advance(rows: int, bytes: int) -> None:
            done["rows"] += rows
            done["bytes"] += bytes
            elapsed = bars.tasks[0].elapsed or 0
            speed = f"{done['rows']:,} rows  " if done["rows"] else ""
            speed += format_rate(done["bytes"], elapsed) if elapsed > 0.2 else ""
            bars.update(task, completed=done[unit], rate=speed)

        yield advance


def _ignore_progress(rows: int, bytes: int) -> None:
    pass
