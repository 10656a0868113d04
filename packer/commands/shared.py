"""What the commands share: options of several of them, and verifying behind a bar."""

from pathlib import Path
from typing import Any

import click

from fieldslab.packer.check.findings import Problem, Report
from fieldslab.packer.commands.events import MODES
from fieldslab.packer.commands.params import MESSAGES, PATH, Argument, Option

SLAB = Argument("slab", "SLAB", "A directory that pack wrote, or its URL.", type=PATH)
JSON = Option("--json as_json", MESSAGES, "Print results and errors as JSON.")
PROGRESS = Option(
    "--progress",
    MESSAGES,
    "'auto' draws a bar on a terminal, 'json' writes events to stderr, one JSON object per line, "
    "with warnings and errors among them, 'none' writes nothing.",
    "MODE",
    type=click.Choice(MODES),
    default="auto",
)
FOLLOW_LINKS = Option(
    "--follow-links",
    "Options",
    "Follow links in the slab, as in the caches of Hugging Face and DVC.",
)


def verify_with_bar(slab: str | Path, *, hidden: bool, silent: bool, **options: Any) -> Report:
    """Verify one slab behind a progress bar; problems are printed as they come."""
    from fieldslab.packer.check.verify import compute_expected_bytes, verify
    from fieldslab.packer.commands.progress import show_bar

    def print_problem(problem: Problem) -> None:
        if not silent:
            print(problem.with_shell_words(), flush=True)

    total = compute_expected_bytes(slab, **options)
    with show_bar("verifying", str(slab), total, "bytes", hidden=hidden) as progress:
        report = verify(slab, progress=progress, tell=print_problem, **options)
    report.problems = [problem.with_shell_words() for problem in report.problems]
    return report
