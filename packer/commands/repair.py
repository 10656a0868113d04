"""`fieldslab repair`."""

from collections.abc import Sequence
from typing import Any

import click

from fieldslab.packer.commands.params import MESSAGES, PATH, Argument, Option, command
from fieldslab.packer.commands.shared import JSON, PROGRESS, STORAGE_OPTION
from fieldslab.packer.commands.terminal import convert_interrupts, print_json
from fieldslab.schemas.errors import Damaged

SOURCES = "What it is repaired from"
EXAMPLES = """\
Examples:
  fieldslab repair train.slab --against train.parquet
  fieldslab repair train.slab --from s3://bucket/train.slab
  fieldslab repair train.slab --dry-run"""


@command(
    Argument("slab", "SLAB", "A directory that pack wrote.", type=PATH),
    Option(
        "--against",
        SOURCES,
        "The source that it was packed from: rows of damaged blocks are converted again. May be "
        "repeated.",
        "SRC",
        multiple=True,
        type=PATH,
    ),
    Option(
        "--from from_",
        SOURCES,
        "Another copy of the slab, or its URL: damaged blocks are read there.",
        "OTHER",
        type=PATH,
    ),
    Option(
        "--tokenizer tokenizers",
        SOURCES,
        "The tokenizer.json that the slab was packed with. May be repeated. The default is the "
        "file of the same name in the working directory.",
        "FILE",
        multiple=True,
        type=PATH,
    ),
    Option("--dry-run", "Options", "List what is damaged, and change nothing."),
    Option("--delete", "Options", "Delete files that do not belong to the slab."),
    STORAGE_OPTION,
    Option(
        "--max-errors",
        MESSAGES,
        "Print the first N files and the first N problems; all are counted.",
        "N",
        type=click.IntRange(min=0),
        default=20,
    ),
    PROGRESS,
    JSON,
    Option("-q --quiet", MESSAGES, "Print nothing about a slab that is whole."),
    examples=EXAMPLES,
)
def repair(
    slab: str,
    against: Sequence[str],
    from_: str | None,
    tokenizers: Sequence[str],
    dry_run: bool,
    delete: bool,
    storage_options: dict[str, Any] | None,
    max_errors: int,
    progress: str,
    as_json: bool,
    quiet: bool,
) -> int:
    """Replace what is damaged in a slab by what pack wrote.

    Only damaged blocks are read from a copy, or converted again from the source, and only those
    count whose digest is right. The id stays the same, and whoever has the slab open goes on
    reading. Prints a line for each file that was replaced and for each problem that is left, then
    OK or FAILED.
    """
    from fieldslab.packer.commands.progress import show_bar
    from fieldslab.packer.repairing.repair import repair as repair_slab

    hidden = progress == "none" or quiet or as_json
    with (
        convert_interrupts(lambda: "no file is half repaired; run the same command again"),
        show_bar("repairing", slab, None, "bytes", hidden=hidden) as move,
    ):
        report = repair_slab(
            slab,
            against=list(against) or None,
            from_=from_,
            tokenizers=tokenizers,
            delete=delete,
            dry_run=dry_run,
            progress=move,
            storage_options=storage_options,
        )
    report.problems = [problem.with_shell_words() for problem in report.problems]
    if as_json:
        print_json(report.as_dict(), indent=None)
    elif not (quiet and report.ok and not report.repaired):
        for file in report.repaired[:max_errors]:
            print(file)
        for problem in report.problems[:max_errors]:
            print(problem)
        print(report)
    return 0 if report.ok else Damaged.exit_code
