"""`fieldslab repack`."""

import os
import sys
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
from fieldslab.packer.commands.shared import JSON, PROGRESS, SLABS, verify_with_bar
from fieldslab.packer.commands.terminal import (
    convert_interrupts,
    get_terminal_width,
    print_json,
    print_lines,
    print_warning,
)
from fieldslab.packer.definition import fill_defaults
from fieldslab.packer.pack_options import OUTPUT
from fieldslab.packer.rewrite.options import RepackOptions
from fieldslab.schemas.errors import Damaged, UsageError

EXAMPLES = """\
Examples:
  fieldslab repack train.slab shuffled.slab --shuffle 0
  fieldslab repack train.slab clean.slab --drop-rows forgotten.txt
  fieldslab repack all.slabs one.slab --where "label != 9" --shuffle 0
  fieldslab repack train.slab cats.slab --where "label == 'cat' and not is_null(caption)"
  fieldslab repack train.slab small.slab --fields image,label --shard-size 256M"""


@command(
    SLABS,
    Argument("out", "[OUT]", "Directory or URL of the slab to write.", type=PATH, required=False),
    Option("-o --output", OUTPUT, "The same.", "OUT", type=PATH),
    *make_options(RepackOptions),
    Option("--verify", OUTPUT, "Read the new slab back and check every byte."),
    PROGRESS,
    JSON,
    Option("-q --quiet", MESSAGES, "Print nothing but warnings and errors."),
    examples=EXAMPLES,
)
def repack(
    slab: str,
    out: str | None,
    output: str | None,
    verify: bool,
    progress: str,
    as_json: bool,
    quiet: bool,
    **values: Any,
) -> int:
    """Write a slab again: shuffled, without some rows or fields, or with other shards.

    Stored bytes are copied as they are. To continue an interrupted run, run the same command again.
    """
    from fieldslab.packer.commands import plans
    from fieldslab.packer.commands.progress import show_bar
    from fieldslab.packer.rewrite.plan import find_warnings
    from fieldslab.packer.rewrite.repack import prepare_repack, repack_plan

    if (out is None) == (output is None):
        raise UsageError("name the slab to write once", hint="fieldslab repack SLAB OUT")
    options = fill_defaults(RepackOptions, pop_options(RepackOptions, values), "repack")
    plan, destination = prepare_repack(slab, out or output, options)
    early_warnings = find_warnings(plan, options["where"])
    for warning in [] if as_json else early_warnings:
        print_warning(warning)
    hidden = progress == "none" or quiet or as_json
    total = plan.rows * plan.steps
    with (
        convert_interrupts(lambda: _describe_leftovers(destination.directory)),
        show_bar("repacking", str(destination.path), total, "rows", hidden=hidden) as move,
    ):
        packed = repack_plan(
            plan, destination, options["force"], options["jobs"], move, options["engine"]
        )
    result = plans.pack_result_to_json(packed)
    result["warnings"] = [*early_warnings, *result["warnings"]]
    if not as_json and not quiet:
        print_lines(plans.format_pack_summary(packed, get_terminal_width(sys.stdout)))
    code = 0
    if verify:
        report = verify_with_bar(destination.path, hidden=hidden, silent=as_json)
        result["verify"] = report.as_dict()
        code = 0 if report.ok else Damaged.exit_code
        if not as_json and not (quiet and report.ok):
            print(report)
    if as_json:
        print_json(result)
    return code


def _describe_leftovers(output: Path | None) -> str:
    """Describe what an interrupted run leaves, and what another one does."""
    from fieldslab.schemas.folder import get_partial_path

    if output is None:
        return "run the same command again to go on from the finished shards"
    partial = get_partial_path(output)
    if os.path.isdir(partial):
        return f"what is finished is kept in {partial}; run the same command again to go on"
    return "nothing is left behind; run the same command again to start anew"
