"""Build `reads.c`, and run programs with it preloaded."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def build_shim(folder: Path) -> Path:
    """Compile `reads.c` into a library in `folder`, with an empty control file beside it."""
    library = folder / "reads.so"
    command = ["cc", "-shared", "-fPIC", "-O1", str(HERE / "reads.c"), "-o", str(library)]
    subprocess.run(command, check=True)
    (folder / "control").write_bytes(bytes(4096))
    return library


def run_with_shim(module: str, library: Path, prefix: Path, *arguments: Path) -> str:
    """What a module prints when the reads of all files below `prefix` go through the shim."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=os.environ
        | {
            "LD_PRELOAD": str(library),
            "FAULT_FILE": str(library.with_name("control")),
            "FAULT_PREFIX": str(prefix),
        },
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
