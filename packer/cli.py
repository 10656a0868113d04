"""The command line: `fieldslab pack`, `verify`, `info` and `head`.

What a command needs is imported inside it: `fieldslab --help` loads neither pyarrow nor numba.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fieldslab.packer.findings import Problem, Report
from fieldslab.packer.helptext import Command, Group
from fieldslab.packer.terminal import (
    Interrupted,
    emit,
    emit_lines,
    guarded,
    report,
    warn,
    width_of,
)
from fieldslab.packer.words import counted, printable
from fieldslab.schemas.errors import Damaged, NotASlab, RowOutOfRange, UsageError

_PIPE_WIDTH = 120
"""Columns that `head` cuts to where there is no terminal."""

# Typer's own usage errors: where they live has changed between its releases, that they are the
# base of BadParameter has not.
_TyperUsageError: type[Exception] = typer.BadParameter.__bases__[0]

_EXIT_CODES = """\
Exit codes:
  0    all is well
  1    damage was found, or slab and source differ
  2    the command line is wrong
  3    missing, not readable, or not a slab
  4    the source cannot be packed as it is
  5    the slab cannot be written: it exists, or there is no space
  130  interrupted; packing goes on where it was when it is run again"""

app = typer.Typer(
    cls=Group,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=_EXIT_CODES,
    options_metavar="[OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code."""

    def command() -> int:
        group = typer.main.get_command(app)
        try:
            with group.make_context("fieldslab", list(arguments)) as context:
                group.invoke(context)
        except typer.Exit as done:
            return done.exit_code
        except _TyperUsageError as error:
            raise _usage_error(error) from error
        return 0

    return guarded(command, as_json="--json" in arguments)


def _usage_error(error: Exception) -> UsageError:
    """Typer's complaint about a command line in our words."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "fieldslab"
    text = str(getattr(error, "format_message", error.__str__)()).rstrip(".")
    return UsageError(text[:1].lower() + text[1:], hint=f"{path} --help lists what there is.")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"fieldslab {version('fieldslab')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def fieldslab(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Pack a dataset once, then gather any batch of rows, in any order, at the speed of memcpy.

    A packed dataset is a slab: a directory in which every field of every row lies in plain .npy
    files, indexed and checksummed.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(UsageError.exit_code)


_SOURCE, _FIELDS = "What to read", "What becomes of the columns"
_OUTPUT, _TALK = "Where and how to write", "What to print"
_CHECKS, _ROWS = "What to check", "Which rows"

Json = Annotated[
    bool,
    typer.Option("--json", rich_help_panel=_TALK, help="Print JSON, and errors as JSON, too."),
]


_PACK_EXAMPLES = """\
Examples:
  fieldslab pack train.parquet -o train.slab --dry-run
  fieldslab pack 'part-*.parquet' -o train.slab --nulls '*=mask'
  fieldslab pack table/ -o table.slab --stack 'x=feature_*' --cast 'feature_*=f4'
  fieldslab pack raw.parquet -o raw.slab --tensor 'pixels=f4[402,500]'"""


@app.command(cls=Command, options_metavar="[OPTIONS] -o OUT", epilog=_PACK_EXAMPLES)
def pack(
    sources: Annotated[list[str], typer.Argument(
        metavar="SRC...",
        help="Files, globs and directories (with hive partitions, too) of one kind.",
    )],
    from_: Annotated[str | None, typer.Option(
        "--from", metavar="KIND", rich_help_panel=_SOURCE,
        help="Kind of source, such as parquet, where the path does not tell.",
    )] = None,
    rows: Annotated[str | None, typer.Option(
        "--rows", metavar="A:B", rich_help_panel=_SOURCE,
        help="Only rows A to B (B not included), counted from 0.",
    )] = None,
    limit: Annotated[int | None, typer.Option(
        "--limit", metavar="N", rich_help_panel=_SOURCE,
        help="At most N rows.",
    )] = None,
    fields: Annotated[list[str] | None, typer.Option(
        "--fields", metavar="a,b", rich_help_panel=_SOURCE,
        help="Only these columns: names or patterns such as 'feature_*'.",
    )] = None,
    exclude: Annotated[list[str] | None, typer.Option(
        "--exclude", metavar="a,b", rich_help_panel=_SOURCE,
        help="Not these columns: names or patterns.",
    )] = None,
    nulls: Annotated[list[str] | None, typer.Option(
        "--nulls", metavar="COL=WHAT", rich_help_panel=_FIELDS,
        help="What to do with nulls, which are an error otherwise: 'mask' keeps them, with a "
        "validity array; any other word replaces them. '*=mask' is for all columns.",
    )] = None,
    rename: Annotated[list[str] | None, typer.Option(
        "--rename", metavar="OLD=NEW", rich_help_panel=_FIELDS,
        help="Another name for the field.",
    )] = None,
    cast: Annotated[list[str] | None, typer.Option(
        "--cast", metavar="COL=TYPE", rich_help_panel=_FIELDS,
        help="Another type: i8 to u1, f2 f4 f8, bf16, bool, text, binary, json, categorical.",
    )] = None,
    tensor: Annotated[list[str] | None, typer.Option(
        "--tensor", metavar="COL=SPEC", rich_help_panel=_FIELDS,
        help="Bytes, hexadecimal text or flat lists as an array: 'f4[402,500]', 'f4[*,3]' "
        "(first axis of any length), or 'f4,shape_from=COLUMN'.",
    )] = None,
    image: Annotated[list[str] | None, typer.Option(
        "--image", metavar="a,b", rich_help_panel=_FIELDS,
        help="These bytes are encoded images. JPEG, PNG and WebP are recognised without it.",
    )] = None,
    stack: Annotated[list[str] | None, typer.Option(
        "--stack", metavar="NAME=PATTERN", rich_help_panel=_FIELDS,
        help="Many numeric columns as one field, so that a row is one copy: 'x=feature_*'.",
    )] = None,
    tokenize: Annotated[list[str] | None, typer.Option(
        "--tokenize", metavar="COL=FILE", rich_help_panel=_FIELDS,
        help="Text as tokens, by the tokenizer.json of HuggingFace's tokenizers: ragged, with the "
        "special tokens that its `encode` adds.",
    )] = None,
    max_length: Annotated[int | None, typer.Option(
        "--max-length", metavar="N", rich_help_panel=_FIELDS,
        help="Cut tokenized rows to N tokens, special ones included.",
    )] = None,
    pad: Annotated[bool, typer.Option(
        "--pad", rich_help_panel=_FIELDS,
        help="Fill them up to N with the tokenizer's padding token.",
    )] = False,
    no_special_tokens: Annotated[bool, typer.Option(
        "--no-special-tokens", rich_help_panel=_FIELDS,
        help="Add no special tokens to tokenized rows.",
    )] = False,
    compress: Annotated[list[str] | None, typer.Option(
        "--compress", metavar="COL[=LEVEL]", rich_help_panel=_FIELDS,
        help="Store each row as a zstd frame: smaller, and slower to read. Level 3 if none is "
        "given.",
    )] = None,
    output: Annotated[Path | None, typer.Option(
        "-o", "--output", metavar="OUT", rich_help_panel=_OUTPUT,
        help="The slab to write, a directory. It appears there whole, or not at all.",
    )] = None,
    force: Annotated[bool, typer.Option(
        "--force", rich_help_panel=_OUTPUT, help="Replace the slab that is there.",
    )] = False,
    shard_size: Annotated[str, typer.Option(
        "--shard-size", metavar="SIZE", rich_help_panel=_OUTPUT,
        help="Bytes of a shard, about: 64M, or 1G as it is. Large datasets get larger shards.",
    )] = "1G",
    jobs: Annotated[int, typer.Option(
        "--jobs", metavar="N", rich_help_panel=_OUTPUT,
        help="Processes to pack shards in (1). The slab does not depend on it.",
    )] = 1,
    verify: Annotated[bool, typer.Option(
        "--verify", rich_help_panel=_OUTPUT, help="Read the slab back and check every byte.",
    )] = False,
    dry_run: Annotated[bool, typer.Option(
        "--dry-run", rich_help_panel=_TALK,
        help="Only say what every column would become, why, and how much there is.",
    )] = False,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option(
        "-q", "--quiet", rich_help_panel=_TALK, help="Print nothing but warnings and errors.",
    )] = False,
) -> None:  # fmt: skip
    """Pack a dataset into a slab.

    Values are kept byte for byte: nothing is cast, transcoded or dropped unless an option says
    so. What was cut off goes on where it was when the same command is run again.
    """
    from fieldslab.packer import show
    from fieldslab.packer.commit import check_output
    from fieldslab.packer.options import parse_options
    from fieldslab.packer.pack import pack_plan
    from fieldslab.packer.plan import make_plan
    from fieldslab.packer.progress import bar
    from fieldslab.packer.source import find_source

    options = parse_options(
        fields=fields or None, exclude=exclude or (), rename=rename or (), cast=cast or (),
        tensor=tensor or (), image=image or (), stack=stack or (), nulls=nulls or (),
        tokenize=tokenize or (), max_length=max_length, pad=pad,
        special_tokens=not no_special_tokens, compress=compress or (),
        rows=rows, limit=limit, shard_size=shard_size,
    )  # fmt: skip
    if output is None and not dry_run:
        raise UsageError("no output given", hint="Name the slab to write: -o train.slab")
    existed = output is not None and output.exists()
    if output is not None:
        check_output(output, force=force)
    plan = make_plan(find_source(sources, from_), options)
    if dry_run or output is None:
        for note in [] if as_json else plan.notes:
            warn(note)
        if as_json:
            emit(show.plan_json(plan))
        else:
            emit_lines(show.plan_lines(plan, width_of(sys.stdout)))
        return
    try:
        with bar("packing", plan.rows, "rows", hidden=quiet or as_json) as progress:
            packed = pack_plan(plan, output, force=force, jobs=jobs, progress=progress)
    except KeyboardInterrupt as error:
        raise Interrupted(_left_behind(output, existed)) from error
    result = show.packed_json(packed)
    if not as_json:
        for warning in packed.warnings:
            warn(warning)
        if not quiet:
            emit_lines(show.packed_lines(packed, width_of(sys.stdout)))
    code = 0
    if verify:
        checked = _verified(output, hidden=quiet or as_json, silent=as_json)
        result["verify"] = checked.as_dict()
        code = 0 if checked.ok else Damaged.exit_code
        if not as_json and not (quiet and checked.ok):
            print(checked)
    if as_json:
        emit(result)
    raise typer.Exit(code)


_VERIFY_EXAMPLES = """\
Examples:
  fieldslab verify train.slab
  fieldslab verify train.slab --sample 3/30            the third of thirty nights
  fieldslab verify train.slab --against train.parquet"""


@app.command(cls=Command, epilog=_VERIFY_EXAMPLES)
def verify(
    slabs: Annotated[list[Path], typer.Argument(
        metavar="SLAB...", help="Directories that pack wrote.",
    )],
    quick: Annotated[bool, typer.Option(
        "--quick", rich_help_panel=_CHECKS,
        help="Check files, headers, digest tables, offsets and codes; do not read the values.",
    )] = False,
    sample: Annotated[str | None, typer.Option(
        "--sample", metavar="5%|3/30|10G", rich_help_panel=_CHECKS,
        help="Read a part only: 5% at random, the third of thirty parts, about 10 GiB at random.",
    )] = None,
    against: Annotated[list[str] | None, typer.Option(
        "--against", metavar="SRC", rich_help_panel=_CHECKS,
        help="Compare every value with this source, packed as the slab was; may be repeated.",
    )] = None,
    from_: Annotated[str | None, typer.Option(
        "--from", metavar="KIND", rich_help_panel=_CHECKS,
        help="Kind of the source to compare with, where it is another than was packed.",
    )] = None,
    fields: Annotated[list[str] | None, typer.Option(
        "--fields", metavar="a,b", rich_help_panel=_CHECKS,
        help="Check these fields only: names or patterns.",
    )] = None,
    max_errors: Annotated[int, typer.Option(
        "--max-errors", metavar="N", min=0, rich_help_panel=_TALK,
        help="Print the first N problems (20); all are counted.",
    )] = 20,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option(
        "-q", "--quiet", rich_help_panel=_TALK, help="Print nothing about a slab that is whole.",
    )] = False,
) -> None:  # fmt: skip
    """Check that slabs are what pack wrote, byte for byte.

    Prints one line for every problem, with the rows that it affects, then OK or FAILED for each
    slab. With several slabs the exit code is the highest.
    """
    if against and len(slabs) > 1:
        raise UsageError("--against compares one slab with its source", found=f"{len(slabs)} slabs")
    code = 0
    for slab in slabs:
        try:
            checked = _verified(
                slab, hidden=quiet or as_json, silent=as_json, quick=quick, sample=sample,
                against=against or None, from_=from_, fields=fields or None,
                max_errors=max_errors,
            )  # fmt: skip
        except NotASlab as error:
            report(error, as_json=as_json)
            if not as_json:
                print(f"FAILED: {printable(str(slab))}: {printable(error.problem)}")
            code = max(code, error.exit_code)
            continue
        if as_json:
            emit(checked.as_dict(), indent=None)
        elif not (quiet and checked.ok):
            print(checked)
        code = max(code, 0 if checked.ok else Damaged.exit_code)
    raise typer.Exit(code)


@app.command(cls=Command, epilog="Example:\n  fieldslab info train.slab")
def info(
    slab: Annotated[Path, typer.Argument(metavar="SLAB", help="A directory that pack wrote.")],
    as_json: Json = False,
) -> None:
    """Show what is in a slab: rows, fields and their types, and where it came from."""
    from fieldslab.packer import show
    from fieldslab.schemas.folder import load_manifest

    manifest = load_manifest(slab)
    if as_json:
        emit(show.info_json(slab, manifest))
        return
    for warning in manifest.made.warnings:
        warn(warning)
    emit_lines(show.info_lines(slab, manifest, width_of(sys.stdout)))


_HEAD_EXAMPLES = """\
Examples:
  fieldslab head train.slab
  fieldslab head train.slab --rows 7,-1 --json         the eighth row and the last"""


@app.command(cls=Command, epilog=_HEAD_EXAMPLES)
def head(
    slab: Annotated[Path, typer.Argument(metavar="SLAB", help="A directory that pack wrote.")],
    count: Annotated[int | None, typer.Option(
        "-n", metavar="N", min=0, rich_help_panel=_ROWS, help="The first N rows (5).",
    )] = None,
    rows: Annotated[str | None, typer.Option(
        "--rows", metavar="I,J", rich_help_panel=_ROWS,
        help="These rows, counted from 0; negative ones from the end.",
    )] = None,
    as_json: Annotated[bool, typer.Option(
        "--json", rich_help_panel=_TALK,
        help="Print one JSON object a row, and errors as JSON, too.",
    )] = False,
) -> None:  # fmt: skip
    """Show some rows of a slab.

    Every byte that is read is checked first. An image is shown as 'image/jpeg 375x500, 61.2 kB',
    which is height x width; times in ISO 8601, in UTC where they have a zone.
    """
    from fieldslab.packer import show
    from fieldslab.packer.stored import StoredSlab

    if count is not None and rows is not None:
        raise UsageError("-n and --rows exclude each other")
    stored = StoredSlab(slab)
    total = stored.manifest.rows
    chosen = list(range(min(5 if count is None else count, total)))
    if rows is not None:
        chosen = parse_rows(rows, total)
    if as_json:
        for row in show.head_json(stored, chosen):
            emit(row, indent=None)
        return
    emit_lines(show.head_lines(stored, chosen, width_of(sys.stdout) or _PIPE_WIDTH))


def parse_rows(text: str, total: int) -> list[int]:
    """Row numbers from `7,-1`; negative ones count from the end.

    Raises UsageError for what is no number, RowOutOfRange for what is not there.
    """
    rows = []
    for part in text.split(","):
        if not re.fullmatch(r"\s*-?\d+\s*", part):
            raise UsageError("--rows: not row numbers", found=text, expected="numbers like 1,7,-1")
        row = int(part)
        if not -total <= row < total:
            raise RowOutOfRange(
                "--rows: no such row", row=row, expected=f"{-total}..{total - 1}",
                hint=f"The slab has {total:,} rows.",
            )  # fmt: skip
        rows.append(row % total)
    return rows


def _verified(slab: Path, *, hidden: bool, silent: bool, **options: Any) -> Report:
    """Verify one slab behind a progress bar; problems are printed as they come."""
    from fieldslab.packer.progress import bar
    from fieldslab.packer.verify import expected_bytes, verify

    def tell(problem: Problem) -> None:
        if not silent:
            print(problem, flush=True)

    total = expected_bytes(slab, **options)
    with bar("verifying", total, "bytes", hidden=hidden) as progress:
        return verify(slab, progress=progress, tell=tell, **options)


def _left_behind(output: Path, existed: bool) -> str:
    """What an interrupted pack leaves, and what a rerun does."""
    from fieldslab.schemas.folder import partial_path

    partial = partial_path(output)
    if partial.is_dir():
        kept = len(list(partial.glob("slab/shard-?????")))
        if kept:
            return (
                f"{counted(kept, 'finished shard')} kept in {partial}; "
                "run the same command again to go on from there"
            )
    if not existed and output.exists():
        return f"{output} is complete all the same"
    return "nothing is left behind; run the same command again to start anew"
