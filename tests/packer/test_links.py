"""Links in slabs as the commands meet them: a Hugging Face cache, a DVC work space."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.slabs import write_slab

from fieldslab.reader import open_slab


@pytest.fixture
def cached(tmp_path: Path) -> Path:
    """A slab whose files are links to blobs elsewhere, itself found by a link."""
    slab = write_slab(tmp_path / "revision" / "a.slab", {"x": np.arange(5)}, (2, 3))
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    for number, file in enumerate(sorted(path for path in slab.rglob("*") if path.is_file())):
        file.rename(blobs / str(number))
        file.symlink_to(blobs / str(number))
    (tmp_path / "main").symlink_to(slab.parent)
    return tmp_path / "main" / "a.slab"


@pytest.mark.parametrize("command", ["verify", "info", "head", "advise"])
def test_commands_follow_links_when_told(cached: Path, command: str) -> None:
    """Without --follow-links a slab of links is exit 3, with what to do; with it, a slab."""
    words = [sys.executable, "-m", "fieldslab", command, str(cached)]
    refused = subprocess.run(words, capture_output=True, text=True, check=False)
    assert refused.returncode == 3
    output = refused.stdout + refused.stderr
    assert "--follow-links" in output
    assert "cp -RL" in output
    done = subprocess.run(
        [*words, "--follow-links", "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0] if command == "head" else done.stdout)


def test_a_copy_without_links(cached: Path, tmp_path: Path) -> None:
    """What the hint advises, `cp -RL`, makes a slab that is read as any other."""
    subprocess.run(["cp", "-RL", str(cached), str(tmp_path / "copy.slab")], check=True)
    assert open_slab(tmp_path / "copy.slab")["x"][:].tolist() == [0, 1, 2, 3, 4]
    assert open_slab(cached, follow_links=True).gather([4])["x"].tolist() == [4]
