"""Which part of a plan this process packs: 3/64, as given or as a scheduler says."""

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.optiontext import mark_option

_EXPECTED = "K/N, such as 1/64 for the first of 64 parts"


class PartNumber(NamedTuple):
    """Part `number` of `parts`, counted from 1."""

    number: int
    parts: int

    def __str__(self) -> str:
        return f"{self.number}/{self.parts}"

    def has_shard(self, index: int) -> bool:
        """Return True if this part packs the shard of this index."""
        return index % self.parts == self.number - 1


def parse_part(text: str | None, environment: Mapping[str, str] = os.environ) -> PartNumber:
    """Parse K/N; without a text, find it in the variables of Slurm or Kubernetes.

    A Slurm array may begin anywhere and have steps, but no gaps. Raises UsageError.
    """
    if text is None:
        part = _find_part(environment)
        if part is None:
            raise UsageError(
                f"{mark_option('part')} is missing",
                expected=_EXPECTED,
                hint="It is found by itself only in a Slurm array job, and in an indexed job of "
                "Kubernetes whose pods have JOB_COMPLETIONS in their environment.",
            )
        return _check_range(*part, f"part {part[0]} of {part[1]}")
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text.strip())
    if match is None:
        raise UsageError(f"{mark_option('part')}: not a part", found=text, expected=_EXPECTED)
    return _check_range(int(match[1]), int(match[2]), text)


def _check_range(number: int, count: int, found: str) -> PartNumber:
    if 1 <= number <= count:
        return PartNumber(number, count)
    raise UsageError(
        f"{mark_option('part')}: out of range",
        found=found,
        expected=f"1/{count} to {count}/{count}" if count else _EXPECTED,
        hint="Parts count from 1. In a Slurm array with gaps, give the part yourself.",
    )


def _find_part(environment: Mapping[str, str]) -> tuple[int, int] | None:
    def read(name: str, default: int | None = None) -> int | None:
        value = environment.get(name, "")
        return int(value) if value.isdigit() else default

    task, count = read("SLURM_ARRAY_TASK_ID"), read("SLURM_ARRAY_TASK_COUNT")
    if task is not None and count is not None:
        first, step = read("SLURM_ARRAY_TASK_MIN", 0) or 0, read("SLURM_ARRAY_TASK_STEP", 1) or 1
        return (task - first) // step + 1, count
    index, completions = read("JOB_COMPLETION_INDEX"), read("JOB_COMPLETIONS")
    if index is not None and completions is not None:
        return index + 1, completions
    return None
