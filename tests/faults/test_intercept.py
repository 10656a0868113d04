"""System calls of a child are listed, failed, or are where it dies."""

import errno
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.faults.intercept import KILL, Call, run_intercepted

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="needs Linux on x86-64"
)


def rename_twice(folder: Path) -> Callable[[], None]:
    """Work that renames a file by its path, and back by a descriptor of its folder."""
    (folder / "a").touch()

    def work() -> None:
        os.rename(folder / "a", folder / "b")
        opened = os.open(folder, os.O_RDONLY)
        os.rename("b", "a", src_dir_fd=opened, dst_dir_fd=opened)

    return work


def test_calls_are_listed_with_their_files(tmp_path: Path) -> None:
    """Paths are whole, whether a call names a path, a descriptor or both; others are not seen."""
    calls: list[Call] = []
    work = rename_twice(tmp_path)
    ending = run_intercepted(work, ["rename", "renameat"], lambda call: calls.append(call))
    assert (ending.code, ending.all_ended) == (0, True)
    paths = f"{tmp_path}/a", f"{tmp_path}/b"
    assert calls == [Call("rename", paths), Call("renameat", paths[::-1])]


def test_one_call_fails(tmp_path: Path) -> None:
    """The call is not carried out, and the work sees the errno."""

    def decide(call: Call) -> int | None:
        return errno.EDQUOT if call.name == "renameat" else None

    ending = run_intercepted(rename_twice(tmp_path), ["rename", "renameat"], decide)
    assert ending.code == 4  # no named error
    assert os.strerror(errno.EDQUOT) in ending.error
    assert os.listdir(tmp_path) == ["b"]


def test_the_child_dies_in_front_of_a_call(tmp_path: Path) -> None:
    """What was before is done, and nothing behind it."""

    def decide(call: Call) -> int | None:
        return KILL if call.name == "renameat" else None

    ending = run_intercepted(rename_twice(tmp_path), ["rename", "renameat"], decide)
    assert (ending.code, ending.all_ended) == (-9, True)
    assert os.listdir(tmp_path) == ["b"]


def test_calls_of_other_programs_are_seen(tmp_path: Path) -> None:
    """What the child starts has the same filter; the child alone is not what is waited for."""
    wanted = f"{tmp_path}/new"

    def decide(call: Call) -> int | None:
        return errno.EROFS if call.paths == (wanted,) else None

    def work() -> None:
        subprocess.Popen(["sh", "-c", f"sleep 0.1; mkdir {wanted} || touch {tmp_path}/failed"])

    ending = run_intercepted(work, ["mkdir"], decide)
    assert (ending.code, ending.all_ended) == (0, True)
    assert os.listdir(tmp_path) == ["failed"]
