"""`fieldslab pack`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fieldslab.packer.commands.shared import (
    FIELDS,
    HDF5,
    LITDATA,
    OUTPUT,
    SOURCE,
    TALK,
    Json,
    ProgressMode,
    check_mode,
    verified,
)
from fieldslab.packer.commands.terminal import emit, emit_lines, interruptible, warn, width_of
from fieldslab.packer.commands.words import counted
from fieldslab.schemas.errors import Damaged, UsageError

USAGE = "[OPTIONS] -o OUT"
EXAMPLES = """\
Examples:
  fieldslab pack train.parquet -o train.slab --dry-run
  fieldslab pack images/train -o train.slab --image image:jpeg,short-side=256
  fieldslab pack 'part-*.parquet' -o train.slab --nulls '*=mask'
  fieldslab pack table/ -o table.slab --stack 'x=feature_*' --cast 'feature_*=f4'
  fieldslab pack raw.parquet -o raw.slab --tensor 'pixels=f4[402,500]'"""


def pack(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SRC...",
            help="Files, globs and directories (with hive partitions, too) of one kind: Parquet, "
            "HDF5, LitData, or images in folders that are their classes.",
        ),
    ],
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="KIND",
            rich_help_panel=SOURCE,
            help="Kind of source, where the path does not tell: parquet, hdf5, litdata or images.",
        ),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            "--rows",
            metavar="A:B",
            rich_help_panel=SOURCE,
            help="Only rows A to B (B not included), counted from 0.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            rich_help_panel=SOURCE,
            help="At most N rows.",
        ),
    ] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option(
            "--fields",
            metavar="a,b",
            rich_help_panel=SOURCE,
            help="Only these columns: names or patterns such as 'feature_*'.",
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            "--exclude",
            metavar="a,b",
            rich_help_panel=SOURCE,
            help="Not these columns: names or patterns.",
        ),
    ] = None,
    ragged: Annotated[
        list[str] | None,
        typer.Option(
            "--ragged",
            metavar="COL:SPEC",
            rich_help_panel=FIELDS,
            help="Store padded rows without their padding: 'x:pad=0', 'x:len=COLUMN' where a "
            "column tells the lengths, or 'x:len=COLUMN,pad=V'.",
        ),
    ] = None,
    nulls: Annotated[
        list[str] | None,
        typer.Option(
            "--nulls",
            metavar="COL=WHAT",
            rich_help_panel=FIELDS,
            help="What to do with nulls, which are an error otherwise: 'mask' keeps them, with a "
            "validity array; any other word replaces them. '*=mask' is for all columns.",
        ),
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(
            "--rename",
            metavar="OLD=NEW",
            rich_help_panel=FIELDS,
            help="Another name for the field.",
        ),
    ] = None,
    cast: Annotated[
        list[str] | None,
        typer.Option(
            "--cast",
            metavar="COL=TYPE",
            rich_help_panel=FIELDS,
            help="Another type: i1 i2 i4 i8, u1 u2 u4 u8, f2 f4 f8 (kind and bytes of a number), "
            "bf16, bool, text, binary, json or categorical.",
        ),
    ] = None,
    tensor: Annotated[
        list[str] | None,
        typer.Option(
            "--tensor",
            metavar="COL=SPEC",
            rich_help_panel=FIELDS,
            help="Bytes, hexadecimal text or flat lists as an array: 'f4[402,500]', 'f4[*,3]' "
            "(first axis of any length), or 'f4,shape_from=COLUMN'.",
        ),
    ] = None,
    image: Annotated[
        list[str] | None,
        typer.Option(
            "--image",
            metavar="COL[:FORM]",
            rich_help_panel=FIELDS,
            help="These bytes are encoded images (JPEG, PNG and WebP are recognised without it), "
            "to be stored as they are or as 'col:baseline' (progressive JPEG made baseline, "
            "without loss), "
            "'col:yuv420', 'col:rgb' (pixels) or 'col:jpeg', made smaller by ',short-side=256' or "
            "',long-side=256'. ',fraction=0.5' decodes half of the rows, ',quality=95' is "
            "for jpeg.",
        ),
    ] = None,
    jpeg_index: Annotated[
        str | None,
        typer.Option(
            "--jpeg-index",
            metavar="N|rows",
            rich_help_panel=FIELDS,
            help="Note the state of decoding every N MCUs of a JPEG (8), units of mostly 16 x 16 "
            "pixels, or once a row of them, so that crops are decoded without the rest.",
        ),
    ] = None,
    no_jpeg_index: Annotated[
        bool,
        typer.Option(
            "--no-jpeg-index",
            rich_help_panel=FIELDS,
            help="Note nothing: 2.4 % fewer bytes.",
        ),
    ] = False,
    damaged_images: Annotated[
        str,
        typer.Option(
            "--damaged-images",
            metavar="WHAT",
            rich_help_panel=FIELDS,
            help="What becomes of rows whose image cannot be decoded: 'error' where pixels are "
            "needed, "
            "or 'leave-out', which names such rows, and looks for them where images stay "
            "files, too.",
        ),
    ] = "error",
    stack: Annotated[
        list[str] | None,
        typer.Option(
            "--stack",
            metavar="NAME=PATTERN",
            rich_help_panel=FIELDS,
            help="Many numeric columns as one field, so that a row is one copy: 'x=feature_*'.",
        ),
    ] = None,
    tokenize: Annotated[
        list[str] | None,
        typer.Option(
            "--tokenize",
            metavar="COL=FILE",
            rich_help_panel=FIELDS,
            help="Text as tokens, by the tokenizer.json of HuggingFace's tokenizers: ragged, with "
            "the special tokens that its `encode` adds.",
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            "--max-length",
            metavar="N",
            rich_help_panel=FIELDS,
            help="Cut tokenized rows to N tokens, special ones included.",
        ),
    ] = None,
    pad: Annotated[
        bool,
        typer.Option(
            "--pad",
            rich_help_panel=FIELDS,
            help="Fill them up to N with the tokenizer's padding token.",
        ),
    ] = False,
    no_special_tokens: Annotated[
        bool,
        typer.Option(
            "--no-special-tokens",
            rich_help_panel=FIELDS,
            help="Add no special tokens to tokenized rows.",
        ),
    ] = False,
    pack_sequences: Annotated[
        int | None,
        typer.Option(
            "--pack-sequences",
            metavar="N",
            rich_help_panel=FIELDS,
            help="Join all tokenized texts and cut them into rows of N tokens. The last row is "
            "filled up; a warning says with how many.",
        ),
    ] = None,
    separator: Annotated[
        str | None,
        typer.Option(
            "--separator",
            metavar="TOKEN",
            rich_help_panel=FIELDS,
            help="Token behind each of them, '' for none. Without it, the special tokens that the "
            "tokenizer adds tell texts apart, or else its token for the end of a text.",
        ),
    ] = None,
    keep_boundaries: Annotated[
        bool,
        typer.Option(
            "--keep-boundaries",
            rich_help_panel=FIELDS,
            help="Keep where in each row texts begin, as the ragged field COL.starts.",
        ),
    ] = False,
    drop_last: Annotated[
        bool,
        typer.Option(
            "--drop-last",
            rich_help_panel=FIELDS,
            help="Leave the last row out instead of filling it up; a warning says how many tokens.",
        ),
    ] = False,
    compress: Annotated[
        list[str] | None,
        typer.Option(
            "--compress",
            metavar="COL[=LEVEL]",
            rich_help_panel=FIELDS,
            help="Store each row as a zstd frame: smaller, and slower to read. Level 3 if none is "
            "given.",
        ),
    ] = None,
    rows_attr: Annotated[
        str | None,
        typer.Option(
            "--rows-attr",
            metavar="NAME",
            rich_help_panel=HDF5,
            help="Attribute of each file that says how many of its rows were written.",
        ),
    ] = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            rich_help_panel=HDF5,
            help="Pack opaque bytes, as uint8.",
        ),
    ] = False,
    external: Annotated[
        bool,
        typer.Option(
            "--external",
            rich_help_panel=HDF5,
            help="Admit external links, virtual datasets and external storage: other files are "
            "read.",
        ),
    ] = False,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="SIZE",
            rich_help_panel=HDF5,
            help="What reading may take, such as 4G, for each job; half of the machine's if not "
            "given.",
        ),
    ] = None,
    block: Annotated[
        int | None,
        typer.Option(
            "--block",
            metavar="N",
            rich_help_panel=LITDATA,
            help="Cut a stream of tokens into rows of N. Without it a row is a document.",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="FILE",
            rich_help_panel=LITDATA,
            help="Key of an encrypted stream, as litdata's Encryption.save wrote it.",
        ),
    ] = None,
    key_password_file: Annotated[
        str | None,
        typer.Option(
            "--key-password-file",
            metavar="FILE",
            rich_help_panel=LITDATA,
            help="A file whose first line is the key's password.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="OUT",
            rich_help_panel=OUTPUT,
            help="The slab to write, a directory. It appears there whole, or not at all.",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            rich_help_panel=OUTPUT,
            help="Replace the slab that is there.",
        ),
    ] = False,
    shard_size: Annotated[
        str,
        typer.Option(
            "--shard-size",
            metavar="SIZE",
            rich_help_panel=OUTPUT,
            help="Bytes of a shard, about: 64M, or 1G as it is. Large datasets get larger shards.",
        ),
    ] = "1G",
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs",
            metavar="N",
            rich_help_panel=OUTPUT,
            help="Processes to pack shards in (1). The slab does not depend on it.",
        ),
    ] = 1,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            rich_help_panel=OUTPUT,
            help="Read the slab back and check every byte.",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            rich_help_panel=TALK,
            help="Only say what every column would become, why, and how much there is.",
        ),
    ] = False,
    progress: ProgressMode = "auto",
    as_json: Json = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "-q",
            "--quiet",
            rich_help_panel=TALK,
            help="Print nothing but warnings and errors.",
        ),
    ] = False,
) -> None:
    """Pack a dataset into a slab.

    Values are kept byte for byte: nothing is cast, transcoded or dropped unless an option says
    so. What was cut off goes on where it was when the same command is run again.
    """
    from fieldslab.packer.commands import plans
    from fieldslab.packer.commands.progress import bar
    from fieldslab.packer.image_options import DEFAULT_INDEX
    from fieldslab.packer.options import parse_options
    from fieldslab.packer.plan import make_plan
    from fieldslab.packer.source import find_source
    from fieldslab.packer.write.commit import check_output, output_path
    from fieldslab.packer.write.pack import check_jobs, pack_plan

    hidden = check_mode(progress) or quiet or as_json
    if no_jpeg_index and jpeg_index is not None:
        raise UsageError("--jpeg-index and --no-jpeg-index contradict each other")
    index = None if no_jpeg_index else jpeg_index or DEFAULT_INDEX
    options = parse_options(
        fields=fields or None,
        exclude=exclude or (),
        rename=rename or (),
        cast=cast or (),
        tensor=tensor or (),
        ragged=ragged or (),
        image=image or (),
        jpeg_index=index,
        damaged_images=damaged_images,
        stack=stack or (),
        nulls=nulls or (),
        tokenize=tokenize or (),
        max_length=max_length,
        pad=pad,
        special_tokens=not no_special_tokens,
        pack_sequences=pack_sequences,
        separator=separator,
        keep_boundaries=keep_boundaries,
        drop_last=drop_last,
        compress=compress or (),
        rows=rows,
        limit=limit,
        shard_size=shard_size,
    )
    check_jobs(jobs)
    if output is None and not dry_run:
        raise UsageError("no output given", hint="Name the slab to write: -o train.slab")
    out = None if output is None else output_path(output)
    existed = out is not None and out.exists()
    if out is not None:
        check_output(out, force=force)
    given = {
        "rows_attr": rows_attr,
        "raw": raw,
        "external": external,
        "memory": memory,
        "block": block,
        "key": key,
        "key_password_file": key_password_file,
    }
    settings = {name: value for name, value in given.items() if value not in (None, False)}
    plan = make_plan(find_source(sources, from_, settings, tolerant=options.leave_out), options)
    if dry_run or out is None:
        for note in [] if as_json else plan.notes:
            warn(note)
        if as_json:
            emit(plans.plan_json(plan))
        else:
            emit_lines(plans.plan_lines(plan, width_of(sys.stdout)))
        return
    told: list[str] = []
    with (
        interruptible(lambda: _left_behind(out, existed)),
        bar("packing", str(out), plan.rows, "rows", hidden=hidden) as move,
    ):
        tell = told.append if as_json else warn
        packed = pack_plan(plan, out, force=force, jobs=jobs, progress=move, tell=tell)
    result = plans.packed_json(packed)
    result["warnings"] = [*told, *result["warnings"]]
    if not as_json:
        for warning in packed.warnings:
            warn(warning)
        if not quiet:
            emit_lines(plans.packed_lines(packed, width_of(sys.stdout)))
    code = 0
    if verify:
        checked = verified(out, hidden=hidden, silent=as_json)
        result["verify"] = checked.as_dict()
        code = 0 if checked.ok else Damaged.exit_code
        if not as_json and not (quiet and checked.ok):
            print(checked)
    if as_json:
        emit(result)
    raise typer.Exit(code)


def _left_behind(output: Path, existed: bool) -> str:
    """What an interrupted pack leaves, and what a rerun does."""
    from fieldslab.schemas.folder import get_partial_path

    partial = get_partial_path(output)
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
