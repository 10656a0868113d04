"""The reader asks for nothing that Windows does not have: it imports, maps and gathers without."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from tests.jpegs import encode, photograph
from tests.packer.commandline import ENVIRONMENT
from tests.slabs import array_path, flip, images, write_slab

from fieldslab.schemas.files import OpenFolder
from fieldslab.schemas.path_folder import PathFolder

ROOT = Path(__file__).parents[2]


def test_the_reader_works_without_posix(tmp_path: Path) -> None:
    """Without what of `os` and `signal` Windows lacks, and without /proc and /sys, all is read."""
    picture = encode(photograph(24, 32))
    size = np.full((20, 2), (24, 32), np.int32)
    columns = {
        "x": np.arange(20),
        "s": [f"row {n}" for n in range(20)],
        "image": images([picture] * 20, size),
    }
    slab = write_slab(tmp_path / "a.slab", columns, (9, 11))
    write_slab(tmp_path / "b.slab", columns)
    damaged = write_slab(tmp_path / "damaged.slab", columns, (9, 11))
    flip(array_path(damaged, "x", shard=1))
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "as_on_windows.py", slab, damaged],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer == {
        "x": [3, 1, 3],
        "s": ["row 3", "row 1", "row 3"],
        "chosen": [5],
        "epoch 3": list(range(20)),
        "epoch 0": list(range(20)),
        "epoch auto": list(range(20)),
        "row": 7,
        "column": [2, 3, 4],
        "lengths": [5],
        "where": [17, 18, 19],
        "table": [{"x": 4}],
        "preloaded": 160,
        "windows": [[0, 1, 2], [1, 2, 3]],
        "union": [0, 0],
        "images": [1, 8, 8, 3],
        "file of rows": [6],
        "skipped": 11,
    }


def test_folders_by_path_have_what_folders_by_descriptor_have() -> None:
    """No method that opens below a descriptor is left to a folder that has none."""
    below = {name for name in vars(OpenFolder) if not name.startswith("_")}
    assert below - vars(PathFolder).keys() == {"find_size"}  # which asks `get_info`
