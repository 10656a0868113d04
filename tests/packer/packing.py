"""Packers for tests: in this process or in one of their own, whole or cut off."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fieldslab.packer import PackResult, pack
from fieldslab.schemas.folder import load_manifest
from fieldslab.schemas.manifest import MANIFEST

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PYTHON = {"PYTHONPATH": str(ROOT / ".ns"), "PATH": os.environ["PATH"]}
SHARDS = 4
ROWS = 100 * SHARDS


def table(seed: int = 0) -> pa.Table:
    """A table whose values depend on the seed."""
    rng = np.random.default_rng(seed)
    texts = [f"{seed} {n}" for n in rng.integers(0, 1000, ROWS)]
    return pa.table({"x": rng.random(ROWS), "s": texts})


def batches(rows: pa.Table, size: int = 100) -> Iterator[pa.RecordBatch]:
    """The table as a stream of batches."""
    return iter(rows.to_batches(max_chunksize=size))


def pack_shards(source: Any, out: str | Path, **options: Any) -> PackResult:
    """Pack with a shard for each row group."""
    return pack(source, out, shard_size=1000, **options)


def stop_after(shards: int) -> Callable[[int, int], None]:
    """A progress that is interrupted when so many shards are finished, and one more is begun."""
    done = 0

    def progress(rows: int, bytes: int) -> None:
        nonlocal done
        done += rows
        if done > shards * ROWS // SHARDS:
            raise KeyboardInterrupt

    return progress


def interrupt(source: Any, out: Path, shards: int, **options: Any) -> None:
    """Pack, and be interrupted when so many shards are finished."""
    with pytest.raises(KeyboardInterrupt):
        pack_shards(source, out, progress=stop_after(shards), **options)


def content(slab: Path) -> dict[str, Any]:
    """Everything in a slab that two packs of the same source share."""
    manifest = load_manifest(slab)
    files = {str(p.relative_to(slab)): p.read_bytes() for p in slab.rglob("*") if p.is_file()}
    return files | {MANIFEST: manifest.id}


def listing(folder: Path) -> list[str]:
    """Names in a folder."""
    return sorted(entry.name for entry in folder.iterdir())


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


RUN = """
import sys
from pathlib import Path
from fieldslab.packer import pack

def progress(rows, bytes):
    print(rows, flush=True)
    sys.stdin.readline()

if __name__ == "__main__":
    pack(sys.argv[1], sys.argv[2], shard_size=1000, progress=progress, jobs=int(sys.argv[3]))
"""


@contextlib.contextmanager
def packer(source: Path, out: Path, jobs: int = 1) -> Iterator[subprocess.Popen[str]]:
    """A packer in a process of its own, which waits for a line after each batch."""
    script = out.parent.parent / "run.py"
    script.write_text(RUN)
    with subprocess.Popen(
        [sys.executable, script, source, out, str(jobs)],
        env=PYTHON,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def go_on(process: subprocess.Popen[str], shards: int) -> None:
    """Let a waiting packer go on until so many shards are finished and one more is begun."""
    assert process.stdin is not None
    assert process.stdout is not None
    done = int(process.stdout.readline())
    while done <= shards * ROWS // SHARDS:
        process.stdin.write("\n")
        process.stdin.flush()
        done += int(process.stdout.readline())
