"""Files that replace others at once: what is left where a writer fails, dies, or is at work."""

import os
import signal
from pathlib import Path

import pytest

from fieldslab.schemas.drafts import replace_file


def test_a_file_is_replaced_or_stays(tmp_path: Path) -> None:
    """The new content is there once the block ended; where it raises, the old one, alone."""
    file = tmp_path / "x"
    with replace_file(file) as draft:
        draft.write(b"old")
        assert not file.exists()
    with pytest.raises(TypeError), replace_file(file) as draft:
        draft.write("no bytes")  # type: ignore[arg-type]
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x", b"old")]


def test_drafts_of_killed_writers_are_removed(tmp_path: Path) -> None:
    """What a killed writer left is removed by the next one; the draft of one at work is not."""
    file = tmp_path / "[x]"
    child = os.fork()
    if child == 0:
        with replace_file(file):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    [left] = tmp_path.iterdir()
    with replace_file(file) as first:
        assert not left.exists()
        first.write(b"first")
        with replace_file(file) as second:
            second.write(b"second")
        assert file.read_bytes() == b"second"
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("[x]", b"first")]
