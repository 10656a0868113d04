"""`fieldslab finish`."""

import sys
from typing import Any

from fieldslab.packer.commands.params import MESSAGES, PATH, Argument, Option, command
from fieldslab.packer.commands.shared import JSON, STORAGE_OPTION
from fieldslab.packer.commands.terminal import (
    get_terminal_width,
    print_json,
    print_lines,
    print_warning,
)

EXAMPLES = """\
Examples:
  fieldslab pack 'train/*.parquet' -o /shared/train.slab --plan train.plan
  fieldslab pack --plan train.plan --part 1/2
  fieldslab pack --plan train.plan --part 2/2
  fieldslab finish train.plan"""


@command(
    Argument("plan", "FILE", "A plan that pack --plan wrote.", type=PATH),
    STORAGE_OPTION,
    JSON,
    Option("-q --quiet", MESSAGES, "Print nothing but warnings and errors."),
    examples=EXAMPLES,
)
def finish(plan: str, storage_options: dict[str, Any] | None, as_json: bool, quiet: bool) -> int:
    """Put a slab in its place whose parts are packed; else name the parts that are missing.

    It may run again, or several times at once.
    """
    from fieldslab.packer.commands import plans
    from fieldslab.packer.parts.packing import finish_parts

    packed = finish_parts(plan, storage_options=storage_options)
    if as_json:
        print_json(plans.pack_result_to_json(packed))
        return 0
    for warning in packed.warnings:
        print_warning(warning)
    if not quiet:
        print_lines(plans.format_pack_summary(packed, get_terminal_width(sys.stdout)))
    return 0
