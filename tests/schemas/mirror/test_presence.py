"""The file of marks, and the locks on it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.schemas.mirror.test_blockmap import make_slab

from fieldslab.schemas.folder import load_manifest
from fieldslab.schemas.mirror.blockmap import BlockMap
from fieldslab.schemas.mirror.presence import Presence

CONTENT = "0" * 64

# Another process, which opens the marks and does what it is told.
CHILD = """
import sys
from pathlib import Path
from fieldslab.schemas.folder import load_manifest
from fieldslab.schemas.mirror.blockmap import BlockMap
from fieldslab.schemas.mirror.presence import Presence
marks, slab, content, action = sys.argv[1:]
presence = Presence(Path(marks), BlockMap(load_manifest(slab)), content)
print(eval(action), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def slab(tmp_path: Path) -> Path:
    """A slab whose marks are tested."""
    return make_slab(tmp_path / "x.slab")


@pytest.fixture
def presence(tmp_path: Path, slab: Path) -> Presence:
    """Its marks."""
    return Presence(tmp_path / "marks", BlockMap(load_manifest(slab)), CONTENT)


def start_child(tmp_path: Path, slab: Path, action: str) -> "subprocess.Popen[str]":
    """Another process with the same marks, which has done `action` by now, and waits."""
    command = [sys.executable, "-c", CHILD, str(tmp_path / "marks"), str(slab), CONTENT, action]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.answer = child.stdout.readline().strip()  # type: ignore[attr-defined]
    return child


def test_marks_are_set_and_cleared(presence: Presence) -> None:
    """A mark is of its block alone."""
    presence.set_marks(5, 11)
    assert np.flatnonzero(presence.are_present(np.arange(20))).tolist() == [*range(5, 11)]
    presence.clear_marks(7, 9)
    actual = [position for position in range(20) if presence.is_present(position)]
    assert actual == [5, 6, 9, 10]


def test_units_are_counted(tmp_path: Path, slab: Path, presence: Presence) -> None:
    """Counts are those of the marks, unit by unit."""
    blocks = BlockMap(load_manifest(slab))
    assert presence.count_present().sum() == 0
    for unit in range(0, blocks.units, 3):
        start = blocks.get_first_position(unit)
        presence.set_marks(start, start + int(blocks.blocks[unit]))
    expected = np.where(np.arange(blocks.units) % 3 == 0, blocks.blocks, 0)
    assert presence.count_present().tolist() == expected.tolist()
    counts = [presence.count_present_of(unit) for unit in range(blocks.units)]
    assert counts == expected.tolist()


def test_marks_are_shared_and_outlive_processes(
    tmp_path: Path, slab: Path, presence: Presence
) -> None:
    """What a process marks, others see at once, also after it was killed."""
    child = start_child(tmp_path, slab, "presence.set_marks(3, 5)")
    child.kill()
    child.communicate()
    assert presence.are_present(np.arange(6)).tolist() == [False] * 3 + [True] * 2 + [False]
    again = Presence(tmp_path / "marks", BlockMap(load_manifest(slab)), CONTENT)
    assert again.is_present(3)


def test_a_killed_process_leaves_no_lock(tmp_path: Path, slab: Path, presence: Presence) -> None:
    """A byte is locked by one process at a time, until it lets go or is killed."""
    child = start_child(tmp_path, slab, "presence.lock_bytes(2, 3)")
    assert child.answer == "True"  # type: ignore[attr-defined]
    assert not presence.lock_bytes(4, 1)
    assert presence.lock_bytes(5, 1)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert presence.lock_bytes(2, 3)
    other = start_child(tmp_path, slab, "presence.lock_bytes(2, 1)")
    assert other.answer == "False"  # type: ignore[attr-defined]
    other.communicate()
    presence.unlock_bytes(2, 3)
    other = start_child(tmp_path, slab, "presence.lock_bytes(2, 1)")
    assert other.answer == "True"  # type: ignore[attr-defined]
    other.communicate()


def test_what_is_pinned_is_not_evicted(tmp_path: Path, slab: Path, presence: Presence) -> None:
    """A unit is evicted by one process, unless another pinned it or fetches of it."""
    child = start_child(tmp_path, slab, "presence.pin_unit(0)")
    assert not presence.lock_unit(0)
    child.communicate()
    assert presence.lock_unit(0)
    other = start_child(tmp_path, slab, "(presence.pin_unit(0), presence.lock_bytes(0, 1))")
    assert other.answer == "(False, False)"  # type: ignore[attr-defined]
    other.communicate()
    presence.unlock_unit(0)
    fetching = start_child(tmp_path, slab, "presence.lock_bytes(0, 1)")
    assert not presence.lock_unit(0)
    fetching.communicate()
    assert presence.lock_unit(0)


def test_eviction_is_seen_by_all(presence: Presence, tmp_path: Path, slab: Path) -> None:
    """Marks go, the unit's generation and the count of evictions rise."""
    presence.set_marks(0, 3)
    other = Presence(tmp_path / "marks", BlockMap(load_manifest(slab)), CONTENT)
    before = other.generations.copy()
    presence.clear_unit(0)
    assert not other.are_present(np.arange(3)).any()
    assert np.flatnonzero(other.generations != before).tolist() == [0]
    assert other.counter[0] == 1


def test_a_file_that_cannot_be_right_is_replaced(tmp_path: Path, slab: Path) -> None:
    """A power cut, or another slab's marks, cost what was marked and nothing else."""
    blocks = BlockMap(load_manifest(slab))
    path = tmp_path / "marks"
    for content in (b"", b"\0" * 100_000, None):
        if content is None:
            Presence(path, blocks, "1" * 64).set_marks(0, 1)
        else:
            path.write_bytes(content)
        presence = Presence(path, blocks, CONTENT)
        assert not presence.count_present().any()
        path.unlink()
    assert os.listdir(tmp_path) == ["x.slab"]
