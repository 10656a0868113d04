"""Ctrl-C at moments that are hard to choose by hand."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.packer.commandline import ENVIRONMENT, PROGRAM, start

SLOW = '''
import signal
import click
@click.command
def slow() -> None:
    """Import a library that does not let an interrupt through."""
    try:
        signal.raise_signal(signal.{name})
    except KeyboardInterrupt:
        raise {error}
'''
ENTRIES = "[fieldslab.commands]\nslow = slowly:slow\n"


def _interrupted(tmp_path: Path, name: str, error: str) -> tuple[int, str, str]:
    (tmp_path / "slowly.py").write_text(SLOW.format(name=name, error=error))
    info = tmp_path / "slowly-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: slowly\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    path = os.pathsep.join([ENVIRONMENT["PYTHONPATH"], str(tmp_path)])
    done = subprocess.run(
        [*PROGRAM, "slow"],
        env=ENVIRONMENT | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_an_interrupt_that_became_an_import_error_is_one(tmp_path: Path) -> None:
    """Ctrl-C while a library is imported exits 130, whatever error the library makes of it."""
    done = _interrupted(tmp_path, "SIGINT", "ImportError('C extension: not built')")
    assert done == (130, "", "interrupted\n")


def test_an_interrupt_that_became_our_error_is_one(tmp_path: Path) -> None:
    """SIGTERM that ends in an error of the system is said to be an interruption, too."""
    done = _interrupted(tmp_path, "SIGTERM", "OSError(5, 'Input/output error')")
    assert done == (130, "", "interrupted\n")


def test_workers_that_start_are_quiet_about_ctrl_c(tmp_path: Path) -> None:
    """A terminal interrupts workers, too, while they still import: none prints a traceback."""
    rows = 4000
    pq.write_table(pa.table({"x": np.arange(rows)}), tmp_path / "a.parquet", row_group_size=10)
    out = tmp_path / "a.slab"
    process = start(
        "pack",
        tmp_path / "a.parquet",
        "-o",
        out,
        "--shard-size",
        1,
        "--jobs",
        2,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not _workers(process.pid) and time.monotonic() < deadline:
        time.sleep(0.002)
    statuses = [Path("/proc", str(pid), "status").read_text() for pid in _workers(process.pid)]
    os.killpg(process.pid, signal.SIGINT)
    told = process.communicate(timeout=60)
    blocked = [re.search(r"^SigBlk:\s+(\w+)", status, re.MULTILINE) for status in statuses]
    assert blocked
    assert all(mask and int(mask[1], 16) >> (signal.SIGINT - 1) & 1 for mask in blocked)
    assert (process.returncode, told[0]) == (130, "")
    assert [line.split(":")[0] for line in told[1].splitlines()] == ["interrupted"]


def _workers(parent: int) -> list[int]:
    """The workers that a process has started."""
    workers = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            line = (entry / "cmdline").read_text()
        except OSError:  # it has ended in between
            continue
        if int(stat[1]) == parent and "spawn_main" in line:
            workers.append(int(entry.name))
    return workers
