"""`fieldslab pack`."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fieldslab.packer.commands.params import (
    MESSAGES,
    PATH,
    Argument,
    Option,
    command,
    make_options,
    pop_options,
)
from fieldslab.packer.commands.shared import JSON, PROGRESS, STORAGE_OPTION, verify_with_bar
from fieldslab.packer.commands.terminal import (
    convert_interrupts,
    get_terminal_width,
    print_json,
    print_lines,
    print_warning,
)
from fieldslab.packer.commands.text_format import format_count
from fieldslab.packer.definition import fill_defaults
from fieldslab.packer.pack_options import OUTPUT, PackOptions
from fieldslab.packer.source_settings import SourceSettings
from fieldslab.schemas.errors import Damaged, UsageError
from fieldslab.schemas.optiontext import render_for_shell

PARTS = "Many machines"

EXAMPLES = """\
Examples:
  fieldslab pack train.parquet -o train.slab --dry-run
  fieldslab pack images/train -o train.slab --image image:jpeg,short-side=256
  fieldslab pack 'part-*.parquet' -o train.slab --nulls '*=mask'
  fieldslab pack table/ -o table.slab --stack 'x=feature_*' --cast 'feature_*=f4'
  fieldslab pack raw.parquet -o raw.slab --tensor 'pixels=f4[402,500]'"""


@command(
    Argument(
        "sources",
        "SRC...",
        "Files, globs and directories (also with hive partitions) of one kind: Parquet, Arrow IPC, "
        "ORC, CSV, JSON lines, HDF5, numpy, Zarr, tables of Delta, Iceberg or Lance, LitData, tars "
        "of WebDataset, or images in folders, a zip or a tar, with their classes or annotations. "
        "Most of them may also lie at URLs: s3://, gs://, az://, https://, hf://datasets/.",
        type=PATH,
        required=False,
    ),
    Option(
        "-o --output",
        OUTPUT,
        "Directory of the slab to write, or its URL in a bucket. It appears there whole, or not at "
        "all.",
        "OUT",
        type=PATH,
    ),
    *make_options(PackOptions),
    *make_options(SourceSettings),
    Option(
        "--plan plan_path",
        PARTS,
        "With sources and an output, only write a plan to this file. Without them, pack a part of "
        "the plan in it; 'fieldslab finish FILE' then puts the slab in its place.",
        "FILE",
        type=PATH,
    ),
    Option(
        "--part",
        PARTS,
        "Which part of the plan, such as 3/64; in array jobs of Slurm and indexed jobs of "
        "Kubernetes it is found by itself.",
        "K/N",
    ),
    Option("--verify", OUTPUT, "Read the slab back and check every byte."),
    Option(
        "--dry-run",
        MESSAGES,
        "Only show what every column would become, why, and how large the slab would be.",
    ),
    STORAGE_OPTION,
    PROGRESS,
    JSON,
    Option("-q --quiet", MESSAGES, "Print nothing but warnings and errors."),
    examples=EXAMPLES,
    usage="[OPTIONS] -o OUT",
)
def pack(
    sources: Sequence[str],
    output: str | None,
    plan_path: str | None,
    part: str | None,
    verify: bool,
    dry_run: bool,
    progress: str,
    as_json: bool,
    quiet: bool,
    **values: Any,
) -> int:
    """Pack a dataset into a slab.

    Values are kept byte for byte: nothing is cast, transcoded or dropped unless an option says so.
    To continue an interrupted pack, run the same command again.
    """
    from fieldslab.packer.commands import parts, plans
    from fieldslab.packer.commands.progress import show_bar
    from fieldslab.packer.options import parse_options
    from fieldslab.packer.outputs.find_output import find_output, refuse_idle_options
    from fieldslab.packer.pack_source import pack_plan
    from fieldslab.packer.plan import make_plan
    from fieldslab.packer.source import find_source
    from fieldslab.packer.write.engines.engine import check_jobs
    from fieldslab.packer.write.space import estimate_shard_bytes

    hidden = progress == "none" or quiet or as_json
    settings = pop_options(SourceSettings, values)
    chosen = pop_options(PackOptions, values)
    _refuse_missing(sources, output, plan_path, part)
    if plan_path is not None and not sources:
        if dry_run:
            return parts.show_plan(plan_path, chosen.get("storage_options"), as_json=as_json)
        return parts.run_part(plan_path, part, chosen | settings, hidden=hidden, as_json=as_json)
    options = fill_defaults(PackOptions, chosen, "pack")
    if plan_path is not None and not dry_run:
        options["settings"] = settings
        return parts.write_plan(sources, output, plan_path, options, as_json=as_json, quiet=quiet)
    parsed = parse_options(**options)
    force, jobs = options["force"], options["jobs"]
    check_jobs(jobs)
    if output is None and not dry_run:
        raise UsageError("no output given", hint="Name the slab to write: -o train.slab")
    refuse_idle_options(options["storage_options"], list(sources), output)
    out = (
        None
        if output is None
        else find_output(output, options["storage_options"], options["scratch"])
    )
    existed = out is not None and os.path.exists(out.path)
    if out is not None:
        out.check(force=force)
    source = find_source(
        sources,
        options["from_"],
        settings,
        tolerant=parsed.leave_out,
        storage_options=options["storage_options"],
    )
    plan = make_plan(source, parsed)
    if dry_run or out is None:
        for note in [] if as_json else plan.notes:
            print_warning(note)
        if as_json:
            print_json(plans.plan_to_json(plan))
        else:
            print_lines(plans.format_plan(plan, get_terminal_width(sys.stdout)))
        return 0
    space = out.describe_space(estimate_shard_bytes(plan))
    if space is not None and not (quiet or as_json):
        print(render_for_shell(space), file=sys.stderr)
    early_warnings: list[str] = []
    with (
        convert_interrupts(lambda: _describe_leftovers(out.directory, existed)),
        show_bar("packing", str(out.path), plan.rows, "rows", hidden=hidden) as move,
    ):
        tell = early_warnings.append if as_json else print_warning
        engine = options["engine"]
        packed = pack_plan(
            plan, out, force=force, jobs=jobs, progress=move, tell=tell, engine=engine
        )
    result = plans.pack_result_to_json(packed)
    result["warnings"] = [*early_warnings, *result["warnings"]]
    if not as_json:
        for warning in packed.warnings:
            print_warning(warning)
        if not quiet:
            print_lines(plans.format_pack_result(packed, get_terminal_width(sys.stdout)))
    code = 0
    if verify:
        report = verify_with_bar(
            out.path,
            hidden=hidden,
            silent=as_json,
            storage_options=options["storage_options"] if out.directory is None else None,
        )
        result["verify"] = report.as_dict()
        code = 0 if report.ok else Damaged.exit_code
        if not as_json and not (quiet and report.ok):
            print(report)
    if as_json:
        print_json(result)
    return code


def _refuse_missing(
    sources: Sequence[str], output: str | None, plan: str | None, part: str | None
) -> None:
    """Raise UsageError where neither sources nor a plan say what to pack."""
    if part is not None and (sources or plan is None):
        raise UsageError("--part needs --plan, and no sources", hint="--plan FILE --part 3/64")
    if not sources and (plan is None or output is not None):
        hint = "fieldslab pack --help lists the options."
        raise UsageError("missing argument 'SRC...'", hint=hint)


def _describe_leftovers(output: Path | None, existed: bool) -> str:
    """Describe what an interrupted pack leaves, and what a rerun does."""
    from fieldslab.schemas.folder import get_partial_path

    if output is None:
        return "run the same command again to go on from the finished shards"
    partial = get_partial_path(output)
    if os.path.isdir(partial):
        shard_count = len(list(partial.glob("slab/shard-?????")))
        if shard_count:
            return (
                f"{format_count(shard_count, 'finished shard')} kept in {partial}; "
                "run the same command again to go on from there"
            )
    if not existed and os.path.exists(output):
        return f"{output} is complete all the same"
    return "nothing is left behind; run the same command again to start anew"
