"""Whether what a plan writes has room where it is written; told before anything is."""

import math
import os
import shutil
from pathlib import Path
from typing import NamedTuple

from fieldslab.packer.commands.text_format import format_size
from fieldslab.packer.plan import Plan
from fieldslab.schemas.errors import NoSpace
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.write_errors import name_write_errors

_MARGIN = 1.1
"""Estimates are by the source's metadata: one that is this much above the room is told."""


class ShardBytes(NamedTuple):
    """Bytes of the largest shard: at least, and about, None where there is no estimate."""

    certain: int
    about: int | None


def estimate_shard_bytes(plan: Plan) -> ShardBytes:
    """Estimate the bytes of the largest shard of a plan."""
    if plan.rows is None:
        return ShardBytes(0, plan.options.shard_size)
    share = max((task.rows or 0 for task in plan.tasks), default=0) / max(plan.rows, 1)
    certain = int(_count_fixed_bytes(plan) * share)
    estimates = [field_plan.bytes for field_plan in plan.fields]
    if None in estimates:
        return ShardBytes(certain, None)
    return ShardBytes(certain, max(int(sum(count or 0 for count in estimates) * share), certain))


def check_space(plan: Plan, out: Path, written_bytes: int, copies: int = 1) -> str | None:
    """Compare what is still to be written with the free space where the output will be.

    Parameters
    ----------
    written_bytes
        Bytes that an earlier run has written already.
    copies
        How often rows are there at most: twice in a shuffle.

    Returns
    -------
    str | None
        A warning, where the estimate by the source's metadata is more than what is free.

    Raises
    ------
    NoSpace
        Values of a fixed size, which are known to the byte, are more than what is free.
    """
    if plan.rows is None:
        return None
    free = get_free_bytes(out)
    certain = copies * _count_fixed_bytes(plan) - written_bytes
    if certain > free:
        raise NoSpace(
            "not enough space left on the device: nothing was written",
            file=out,
            expected=f"at least {format_size(certain)}",
            found=f"{format_size(free)} free",
            hint=f"Free some space, choose another output, or pack fewer rows with "
            f"{mark_option('rows')} or fewer columns with {mark_option('fields')}.",
        )
    estimates = [field_plan.bytes for field_plan in plan.fields]
    if None in estimates:
        return None
    about = max(copies * sum(count or 0 for count in estimates) - written_bytes, certain)
    if about <= free * _MARGIN:
        return None
    return (
        f"about {format_size(about)} are to be written by the source's metadata, and "
        f"{format_size(free)} are free: the device may become full"
    )


def _count_fixed_bytes(plan: Plan) -> int:
    """Count the bytes of the fixed fields, whose rows all take the same."""
    if plan.options.leave_out:
        return 0
    fixed = [field_plan.field for field_plan in plan.fields if field_plan.field.kind == "fixed"]
    row = sum(
        field.storage.itemsize * math.prod(field.shape)
        for field in fixed
        if field.compression is None
    )
    return row * (plan.rows or 0)


def get_free_bytes(out: Path) -> int:
    """Return the bytes that may be written in the directory where `out` will be.

    Raises OutputError where the system does not say.
    """
    folder = Path(os.path.abspath(out)).parent
    with name_write_errors(out):
        while not folder.is_dir():
            folder = folder.parent
    return measure_free_bytes(folder)


def measure_free_bytes(folder: Path) -> int:
    """Return the bytes that may be written in a directory. Raises OutputError."""
    with name_write_errors(folder):
        return shutil.disk_usage(folder).free
