"""`fieldslab verify`."""

from typing import Annotated

import typer

from fieldslab.packer.commands.shared import (
    CHECKS,
    TALK,
    FollowLinks,
    Json,
    ProgressMode,
    check_mode,
    verified,
)
from fieldslab.packer.commands.terminal import emit
from fieldslab.packer.commands.words import printable
from fieldslab.schemas.errors import Damaged, NotASlab, UsageError
from fieldslab.schemas.optiontext import render_for_shell

EXAMPLES = """\
Examples:
  fieldslab verify train.slab
  fieldslab verify train.slab --sample 3/30            the third of thirty nights
  fieldslab verify train.slab --against train.parquet"""


def verify(
    slabs: Annotated[
        list[str],
        typer.Argument(
            metavar="SLAB...",
            help="Directories that pack wrote.",
        ),
    ],
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            rich_help_panel=CHECKS,
            help="Check files, headers, digest tables, offsets and codes; do not read the values.",
        ),
    ] = False,
    sample: Annotated[
        str | None,
        typer.Option(
            "--sample",
            metavar="5%|3/30|10G",
            rich_help_panel=CHECKS,
            help="Read a part only: 5% at random, the third of thirty parts, about 10 GiB at "
            "random.",
        ),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            metavar="SRC",
            rich_help_panel=CHECKS,
            help="Compare every value with this source, packed as the slab was; may be repeated.",
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="KIND",
            rich_help_panel=CHECKS,
            help="Kind of the source to compare with, where it is another than was packed.",
        ),
    ] = None,
    tokenizers: Annotated[
        list[str] | None,
        typer.Option(
            "--tokenizer",
            metavar="FILE",
            rich_help_panel=CHECKS,
            help="The tokenizer.json that the slab was packed with, to compare with the source; "
            "may be repeated. Without it, that of the same name in the working directory.",
        ),
    ] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option(
            "--fields",
            metavar="a,b",
            rich_help_panel=CHECKS,
            help="Check these fields only: names or patterns.",
        ),
    ] = None,
    follow_links: FollowLinks = False,
    max_errors: Annotated[
        int,
        typer.Option(
            "--max-errors",
            metavar="N",
            min=0,
            rich_help_panel=TALK,
            help="Print the first N problems (20); all are counted.",
        ),
    ] = 20,
    progress: ProgressMode = "auto",
    as_json: Json = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "-q",
            "--quiet",
            rich_help_panel=TALK,
            help="Print nothing about a slab that is whole.",
        ),
    ] = False,
) -> None:
    """Check that slabs are what pack wrote, byte for byte.

    Prints one line for every problem, with the rows that it affects, then OK or FAILED for each
    slab; with --json one line for each slab, an object with "path" and "ok". With several slabs
    the exit code is the highest.
    """
    if against and len(slabs) > 1:
        raise UsageError("--against compares one slab with its source", found=f"{len(slabs)} slabs")
    code, hidden = 0, check_mode(progress) or quiet or as_json
    for slab in slabs:
        try:
            checked = verified(
                slab,
                hidden=hidden,
                silent=as_json,
                quick=quick,
                sample=sample,
                against=against or None,
                from_=from_,
                tokenizers=tokenizers or (),
                fields=fields or None,
                max_errors=max_errors,
                follow_links=follow_links,
            )
        except NotASlab as error:
            if as_json:
                emit({"path": slab, "ok": False} | error.as_dict(render_for_shell), indent=None)
            else:
                statement, hint = error.in_shell()
                print(f"FAILED: {printable(f'{statement}. {hint}' if hint else statement)}")
            code = max(code, error.exit_code)
            continue
        if as_json:
            emit(checked.as_dict(), indent=None)
        elif not (quiet and checked.ok):
            print(checked)
        code = max(code, 0 if checked.ok else Damaged.exit_code)
    raise typer.Exit(code)
