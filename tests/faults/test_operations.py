"""Whatever writes slabs is killed at some steps; `make campaign-kills` does so at every one."""

import errno
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.faults.operations import Scene, World, end_child
from tests.naming import case
from tests.packer.killing import at_step, is_killed

LAST = 5
"""Of the last steps, all: there a slab is in its place, and something else is left."""
EARLIER = 2


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Sources and slabs that are read."""
    return World(tmp_path_factory.mktemp("operations"))


def count_steps(scene: Scene, file: Path) -> int:
    """How many steps an operation takes, unharmed."""

    def work() -> None:
        count = 0

        def note(_name: str) -> None:
            nonlocal count
            count += 1

        at_step(None, note)
        scene.run()
        file.write_text(str(count))

    assert not is_killed(work)
    return int(file.read_text())


# `pack`, and one that replaces a slab, are killed in tests/packer/test_commit.py; repairs in
# tests/packer/test_repair.py.
@pytest.mark.parametrize("name", ["shuffle", "part", "finish", "union", "concat", "repack", "copy"])
def test_a_killed_operation_runs_again(world: World, name: str, tmp_path: Path) -> None:
    """The old state, the new one or none is left; the same command then leaves nothing beside."""
    scene = Scene(world, name)
    scene.reset()
    steps = count_steps(scene, tmp_path / "count")
    assert steps > 3
    late = range(max(1, steps - LAST), steps + 1)
    early = range(1, late.start)
    chosen = random.Random(name).sample(early, min(EARLIER, len(early)))
    if name == "shuffle":  # what was packed first is removed, a little before the end
        chosen += range(steps - 45, late.start, 4)
    for step in [*chosen, *late]:
        with case(f"{name}, killed in front of step {step} of {steps}"):
            scene.reset()

            def work(step: int = step) -> None:
                at_step(step, lambda _name: os.kill(os.getpid(), signal.SIGKILL))
                scene.run()

            assert is_killed(work)
            assert scene.look() == ""
            assert scene.run_again() == ""


@pytest.mark.parametrize("name", ["concat", "finish"])
def test_a_failing_call_is_a_named_error(world: World, name: str, tmp_path: Path) -> None:
    """Where a call of the system fails, the operation is done, or ends with a named error."""
    scene = Scene(world, name)
    for call in ("stat", "close", "listdir"):
        count = {"listdir": 2}.get(call, 60)
        for number in random.Random(name).sample(range(1, count), min(4, count - 1)):
            with case(f"{name}, {call} {number}"):
                scene.reset()
                child = os.fork()
                if child == 0:
                    os.dup2(os.open(tmp_path / "error", os.O_WRONLY | os.O_CREAT), 2)
                    fail_call(call, number)
                    end_child(scene.run)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) in (0, 3)
                assert scene.look() == ""
                assert scene.run_again() == ""


def fail_call(name: str, wanted: int) -> None:
    """From now on, have the `wanted`-th call of a function of `os` fail, after it was done."""
    real, count = getattr(os, name), 0

    def call(*args: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        result = real(*args, **options)
        if count == wanted:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return result

    setattr(os, name, call)
