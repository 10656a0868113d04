"""K/N, as given or from the variables of a scheduler."""

import pytest
from tests.naming import case

from fieldslab.packer.parts.part_number import parse_part
from fieldslab.schemas.errors import UsageError

SLURM = {"SLURM_ARRAY_TASK_COUNT": "64", "SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_STEP": "1"}
FOUND = {
    "Slurm from 0": (SLURM | {"SLURM_ARRAY_TASK_ID": "0"}, "1/64"),
    "Slurm from 1": (SLURM | {"SLURM_ARRAY_TASK_ID": "64", "SLURM_ARRAY_TASK_MIN": "1"}, "64/64"),
    "Slurm by steps": (
        SLURM | {"SLURM_ARRAY_TASK_ID": "20", "SLURM_ARRAY_TASK_STEP": "10"},
        "3/64",
    ),
    "Kubernetes": ({"JOB_COMPLETION_INDEX": "0", "JOB_COMPLETIONS": "8"}, "1/8"),
}
REFUSED = {
    "no scheduler": (None, {}, "part is missing"),
    "Kubernetes without the number of parts": (None, {"JOB_COMPLETION_INDEX": "3"}, "missing"),
    "a Slurm array with gaps": (
        None,
        {"SLURM_ARRAY_TASK_COUNT": "2", "SLURM_ARRAY_TASK_ID": "9"},
        "out of range",
    ),
    "part 0": ("0/4", {}, "out of range"),
    "part 5 of 4": ("5/4", {}, "out of range"),
    "of no parts": ("1/0", {}, "out of range"),
    "no numbers": ("a/b", {}, "not a part"),
    "one number": ("3", {}, "not a part"),
}


def test_parts_are_given_or_found() -> None:
    """What is given counts; without it, what the scheduler says, from 1 on."""
    for name, (environment, expected) in FOUND.items():
        with case(name):
            assert str(parse_part(None, environment)) == expected
            assert str(parse_part("2/3", environment)) == "2/3"


def test_what_is_no_part() -> None:
    """A part that is missing, malformed or out of range is refused."""
    for name, (text, environment, message) in REFUSED.items():
        with case(name), pytest.raises(UsageError, match=message):
            parse_part(text, environment)


def test_each_shard_belongs_to_one_part() -> None:
    """The parts of a plan share out its shards, also where there are more parts than shards."""
    for parts in (1, 2, 3, 7):
        owners = [parse_part(f"{number}/{parts}") for number in range(1, parts + 1)]
        for index in range(5):
            assert sum(part.has_shard(index) for part in owners) == 1
