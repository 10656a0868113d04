"""The reader asks for nothing that Windows does not have: it imports, maps and gathers without."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from tests.packer.commandline import ENVIRONMENT
from tests.slabs import write_slab

from fieldslab.schemas.files import OpenFolder
from fieldslab.schemas.path_folder import PathFolder

ROOT = Path(__file__).parents[2]


def test_the_reader_works_without_posix(tmp_path: Path) -> None:
    """Without fcntl, resource, flags and calls of POSIX, rows and an epoch are read."""
    columns = {"x": np.arange(20), "s": [f"row {n}" for n in range(20)]}
    slab = write_slab(tmp_path / "a.slab", columns, (9, 11))
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "as_on_windows.py", slab],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["x"] == [3, 1, 3]
    assert answer["s"] == ["row 3", "row 1", "row 3"]
    assert answer["chosen"] == [5]
    assert answer["epoch"] == list(range(20))


def test_folders_by_path_have_what_folders_by_descriptor_have() -> None:
    """No method that opens below a descriptor is left to a folder that has none."""
    below = {name for name in vars(OpenFolder) if not name.startswith("_")}
    assert below - vars(PathFolder).keys() == {"find_size"}  # which asks `get_info`
