"""Faults of system calls stay the same between runs, and find what an operation does wrong."""

import os
import platform
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.campaign_errnos import list_errnos
from tests.faults.call_faults import (
    ELSEWHERE,
    EVERY_PARALLEL,
    Calls,
    Fault,
    Stage,
    list_faults,
)
from tests.faults.operations import OPERATIONS, UNION, Operation, World
from tests.naming import case

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="needs Linux on x86-64"
)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """A folder in which operations take place."""
    return Stage(tmp_path_factory.mktemp("faults") / "stage")


def test_cases_are_the_same_in_every_run(stage: Stage, tmp_path: Path) -> None:
    """Two listings, in folders of other names, give the same faults under the same numbers."""
    listings = [place.list_calls("finish", 1) for place in (stage, Stage(tmp_path / "other"))]
    assert listings[0] == listings[1]
    calls = {(each.name, each.files): each.count for each in listings[0]}
    slab, draft = "finish-1/place/x.slab", "finish-1/place/x.slab.parts/*/slab"
    assert calls["rename", f"{draft} {slab}"] == 1
    faults = [list_faults(listing, list_errnos, seed=1) for listing in listings]
    assert faults[0] == faults[1]
    assert len(set(faults[0])) == len(faults[0]) > 1000


def test_every_kind_comes_before_a_second_one() -> None:
    """A kind is a call about such files with an errno; shards and fields make no difference."""
    calls = [
        Calls("pack", jobs, "read", f"x/shard-{shard:05}/{field}.npy", 2)
        for jobs in (1, 2)
        for shard in range(40)
        for field in ("00-a.values", "01-b.offsets", "digests")
    ]
    faults = list_faults(calls, list_errnos, seed=0)
    assert len(set(faults)) == len(faults) == 2 * 40 * 3 * 2 * 3
    for jobs in (1, 2):
        kinds = [fault.kind for fault in faults if fault.calls.jobs == jobs]
        assert len(set(kinds[:6])) == len(set(kinds)) == 6  # two kinds of files, three errnos
        assert len({kind[:-1] for kind in kinds[:2]}) == 2
    first_jobs = [fault.calls.jobs for fault in faults[: EVERY_PARALLEL + 1]]
    assert first_jobs == [*(EVERY_PARALLEL - 1) * [1], 2, 1]


def test_of_calls_elsewhere_some_are_tried() -> None:
    """A worker's thousands of imports are no thousands of cases; what one job does is tried all."""
    many = [Calls("pack", jobs, "read", ELSEWHERE, 1001) for jobs in (1, 2)]
    assert [len(calls.list_numbers()) for calls in many] == [1001, 39]


def test_faults_are_carried_out(stage: Stage) -> None:
    """Each call is reached, and a sound operation ends as it should."""
    calls = {(each.name, each.files): each for each in stage.list_calls("union", 1)}
    written = next(each for (name, _), each in calls.items() if name == "fsync")
    for action, outcome in {"KILL": "killed", "EIO": "error"}.items():
        with case(action):
            assert stage.try_fault(Fault(written, 1, action)) == outcome
            assert stage.try_fault(Fault(written, written.count + 1, action)) == "not reached"


def test_what_is_wrong_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is written in place, and an error of the system that has no name, are found."""

    def write_in_place(_world: World, place: Path, _again: bool, _jobs: int) -> Any:
        with open(place / UNION, "w") as file:
            file.write("half")
            file.flush()
            os.fsync(file.fileno())
            file.write(" and half")

    operation = Operation(OPERATIONS["union"].prepare, write_in_place)
    monkeypatch.setitem(OPERATIONS, "union", operation)
    stage = Stage(tmp_path / "stage")
    [sync] = [calls for calls in stage.list_calls("union", 1) if calls.name == "fsync"]
    with pytest.raises(AssertionError, match="another union"):
        stage.try_fault(Fault(sync, 1, "KILL"))
    with pytest.raises(AssertionError, match=r"ended with 4: OSError: .*Input/output error"):
        stage.try_fault(Fault(sync, 1, "EIO"))


_SHUFFLE, _REPACK = "shuffle-1/place/x.slab", "repack-1/place/x.slab"
MENDED = [
    ("shuffle", "close", f"{_SHUFFLE}.partial (deleted)", 1, "done"),
    ("shuffle", "getdents64", f"{_SHUFFLE}.unshuffled", 8, "error"),
    ("repack", "newfstatat", f"{_REPACK}.partial/scattered", 1, "done"),
]
"""These calls were once followed by an error of the system that had no name."""


@pytest.mark.parametrize(("operation", "name", "files", "number", "outcome"), MENDED)
def test_what_failed_once(
    stage: Stage, operation: str, name: str, files: str, number: int, outcome: str
) -> None:
    """The operation is done, or ends with a named error that gives the reason."""
    calls = Calls(operation, 1, name, files, number)
    assert stage.try_fault(Fault(calls, number, "EIO")) == outcome
