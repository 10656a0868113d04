"""`fieldslab pack --plan FILE`: write a plan, show it, or pack a part of it."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from fieldslab.packer.commands.progress import show_bar
from fieldslab.packer.commands.terminal import (
    convert_interrupts,
    get_terminal_width,
    print_json,
    print_lines,
    print_warning,
)
from fieldslab.packer.commands.text_format import format_count, format_duration, format_size
from fieldslab.packer.pack_options import PackOptions
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.optiontext import mark_option

_OF_PARTS = {"engine", "jobs", "scratch", "storage_options"}
"""Options of `pack` that a part has of its own; all others stand in the plan."""


def write_plan(
    sources: Sequence[str],
    output: str | None,
    path: str,
    options: PackOptions,
    *,
    as_json: bool,
    quiet: bool,
) -> int:
    """Write a plan, and say how to go on."""
    from fieldslab.packer.commands.plans import plan_to_json
    from fieldslab.packer.parts.plan_file import write_plan_file

    if output is None:
        raise UsageError("no output given", hint="Name the slab to write: -o train.slab")
    plan = write_plan_file(sources, output, path, options)
    for note in [] if as_json else plan.notes:
        print_warning(note)
    if as_json:
        print_json(plan_to_json(plan) | {"plan": path})
    elif not quiet:
        rows, shards = format_count(plan.rows or 0, "row"), format_count(len(plan.tasks), "shard")
        content = "texts, to be joined and" if plan.rows is None else f"{rows} in {shards}, to be"
        print(f"{path}: {content} packed to {output}")
        print(f"pack its parts, on any machines:  fieldslab pack --plan {path} --part K/N")
        if plan.options.shuffle is not None:
            print("once all are packed, again:       the same, since a shuffle takes two passes")
        print(f"and then:                         fieldslab finish {path}")
    return 0


def show_plan(path: str, storage_options: Mapping[str, Any] | None, *, as_json: bool) -> int:
    """Print a plan as `pack --dry-run` does."""
    from fieldslab.packer.commands.plans import format_plan, plan_to_json
    from fieldslab.packer.parts.plan_file import read_plan_file, remake_plan

    plan = remake_plan(read_plan_file(path), storage_options)
    if as_json:
        print_json(plan_to_json(plan))
    else:
        print_lines(format_plan(plan, get_terminal_width(sys.stdout)))
    return 0


def run_part(
    path: str, part_text: str | None, options: Mapping[str, Any], *, hidden: bool, as_json: bool
) -> int:
    """Pack a part of a plan, and say what was done."""
    from fieldslab.packer.parts.packing import pack_part
    from fieldslab.packer.parts.part_number import parse_part
    from fieldslab.packer.parts.plan_file import read_plan_file

    for name in options.keys() - _OF_PARTS:
        raise UsageError(
            f"{mark_option(name)} belongs to the plan, which is made already",
            hint="Give it to the command that writes the plan.",
        )
    part = parse_part(part_text)
    planned = read_plan_file(path)
    shards = enumerate(planned.shards)
    rows = sum(rows for index, (_, rows) in shards if part.has_shard(index))
    # How many rows there are, or how often they are written, shows only later.
    is_known = planned.options.sequences is None and planned.options.shuffle is None
    total = rows if is_known else None
    with (
        convert_interrupts(lambda: "run the same command again to go on from the finished shards"),
        show_bar("packing", f"part {part}", total, "rows", hidden=hidden or as_json) as move,
    ):
        result = pack_part(path, part, progress=move, **options)
    if as_json:
        print_json(result._asdict() | {"out": str(result.out), "part": str(part)})
    elif not hidden and result.published:
        print(f"part {part}: nothing to do, {result.out} is finished")
    elif not hidden:
        reused = f" ({result.reused_shards} finished before)" if result.reused_shards else ""
        written = format_count(result.shards, "shard")
        size, time = format_size(result.bytes), format_duration(result.seconds)
        of_pass = f"pass {result.pass_number} of {result.passes}: " if result.passes > 1 else ""
        print(f"part {part}: {of_pass}{written}{reused}, {size}, {time}")
        if result.pass_number < result.passes:
            print("run it again once all parts have come so far")
    return 0
