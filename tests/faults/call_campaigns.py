"""Campaigns of faults of system calls: lists them once, and tries them, some at a time."""

import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
from tests.campaigns import Campaign, make_parser, say
from tests.faults.call_faults import EVERY_PARALLEL, Calls, Fault, Stage, list_faults
from tests.faults.intercept import need_interception
from tests.faults.operations import OPERATIONS, PARALLEL
from tests.hostile.forks import FOLDER

SCENES = [*((name, 1) for name in OPERATIONS), *((name, 2) for name in PARALLEL)]
_stages: list[Stage] = []
"""That of a worker process."""


def run_campaign(
    name: str,
    goal: str,
    about: str | None,
    list_actions: Callable[[Calls], Collection[str]],
    arguments: Any = None,
) -> int:
    """Run a campaign: the exit status tells whether anything was found.

    The list of calls is kept beside the state, so that a case stays what it is between runs.
    """
    need_interception()
    campaign = Campaign(name, goal, make_parser(about).parse_args(arguments))
    with (
        tempfile.TemporaryDirectory(prefix=f"fieldslab-{name}-", dir=FOLDER) as folder,
        ProcessPoolExecutor(campaign.jobs, get_context("fork"), _set_up, (folder,)) as pool,
    ):
        kept = campaign.path.with_suffix(".calls.json")
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(msgspec.json.encode(pool.submit(_list_all).result()))
        calls = msgspec.json.decode(kept.read_bytes(), type=list[Calls])
        faults = list_faults(calls, list_actions, campaign.seed)
        firsts = _find_firsts(faults)
        campaign.totals = {"cases": len(faults), **Counter(firsts.values())}
        say(", ".join(f"{total} {of}" for of, total in campaign.totals.items()))
        for numbers in campaign.take_numbers(EVERY_PARALLEL, len(faults)):
            tries = pool.map(_try, [faults[number] for number in numbers])
            for number, (outcome, problem) in zip(numbers, tries, strict=True):
                counts = Counter([outcome] if outcome else [])
                if number in firsts:
                    counts[firsts[number]] += 1
                if problem:
                    campaign.fail(number, problem)
                campaign.complete(range(number, number + 1), counts)
    return campaign.finish()


def _find_firsts(faults: list[Fault]) -> dict[int, str]:
    """The numbers of the faults that are the first of their kind, and a name to count them by."""
    firsts = dict[tuple[Any, ...], int]()
    for number, fault in enumerate(faults):
        firsts.setdefault(fault.kind, number)
    return {number: f"kinds with jobs={kind[1]}" for kind, number in firsts.items()}


def _set_up(folder: str) -> None:
    """Be a worker process, with a folder of its own."""
    _stages.append(Stage(Path(tempfile.mkdtemp(dir=folder), "stage")))


def _list_all() -> list[Calls]:
    return [calls for scene in SCENES for calls in _stages[0].list_calls(*scene)]


def _try(fault: Fault) -> tuple[str, str]:
    """Try a fault in a worker process: what it counts as, or else what is wrong."""
    try:
        outcome = _stages[0].try_fault(fault)
    except Exception:  # noqa: BLE001 - all of it is printed
        return "", traceback.format_exc()
    return f"{fault.calls.operation}, {fault.calls.jobs} jobs: {outcome}", ""
