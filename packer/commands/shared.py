"""What the commands share: groups of options, `--json`, and verifying behind a bar."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fieldslab.packer.check.findings import Problem, Report
from fieldslab.packer.commands.events import MODES
from fieldslab.schemas.errors import UsageError

SOURCE, FIELDS = "What to read", "What becomes of the columns"
OUTPUT, TALK = "Where and how to write", "What to print"
CHECKS, ROWS = "What to check", "Which rows"
HDF5, LITDATA = "HDF5", "LitData"

Json = Annotated[
    bool,
    typer.Option("--json", rich_help_panel=TALK, help="Print JSON, and errors as JSON, too."),
]

ProgressMode = Annotated[
    str,
    typer.Option(
        "--progress",
        metavar="MODE",
        rich_help_panel=TALK,
        autocompletion=lambda: list(MODES),
        help="'auto' draws a bar on a terminal, 'json' writes events to stderr, one object a line, "
        "warnings and errors among them, 'none' nothing.",
    ),
]

FollowLinks = Annotated[
    bool,
    typer.Option(
        "--follow-links",
        help="Follow links in the slab, as in caches of Hugging Face and DVC.",
    ),
]


def check_mode(mode: str) -> bool:
    """Whether progress is hidden. Raises UsageError for a mode that there is not."""
    if mode not in MODES:
        raise UsageError("--progress: no such mode", found=mode, expected=", ".join(MODES))
    return mode == "none"


def verified(slab: str | Path, *, hidden: bool, silent: bool, **options: Any) -> Report:
    """Verify one slab behind a progress bar; problems are printed as they come."""
    from fieldslab.packer.check.verify import compute_expected_bytes, verify
    from fieldslab.packer.commands.progress import bar

    def tell(problem: Problem) -> None:
        if not silent:
            print(problem.in_shell(), flush=True)

    total = compute_expected_bytes(slab, **options)
    with bar("verifying", str(slab), total, "bytes", hidden=hidden) as progress:
        report = verify(slab, progress=progress, tell=tell, **options)
    report.problems = [problem.in_shell() for problem in report.problems]
    return report
