"""What the tests of the loader share."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from tests.slabs import write_slab

from fieldslab.reader import (
    Batch,
    Slab,
    VarLenValues,
    open_slab,
)

ROWS = 103


def make_numbers(folder: Path) -> Slab:
    """A slab whose every value tells its row."""
    columns = {"row": np.arange(ROWS), "wide": np.arange(ROWS * 9000).reshape(ROWS, 9000)}
    return open_slab(write_slab(folder / "numbers.slab", columns, [40, 63]))


def plain(batch: Batch) -> dict[str, Any]:
    """A batch as lists, to be compared."""
    actual: dict[str, Any] = {"rows": batch.rows.tolist()}
    for name, values in batch.items():
        actual[name] = values.tolist()
        if isinstance(values, VarLenValues):
            actual[name] = [row if isinstance(row, str | bytes) else row.tolist() for row in values]
    actual |= {f"{name}.valid": valid.tolist() for name, valid in batch.valid.items()}
    actual |= {f"{name}.size": size.tolist() for name, size in batch.sizes.items()}
    return actual


def rows_of(batches: Any) -> list[int]:
    """Rows of all batches, in order."""
    return [row for batch in batches for row in batch.rows.tolist()]


def images_by_row(batches: Iterable[Any]) -> dict[int, np.ndarray]:
    """The image of each row in one epoch. Here, so that a spawned process imports no torch."""
    return {
        row: image
        for batch in batches
        for row, image in zip(batch.rows.tolist(), batch["image"], strict=True)
    }


def threads() -> list[str]:
    """Names of the loader threads that live."""
    return [thread.name for thread in threading.enumerate() if "fieldslab" in thread.name]


def threads_end() -> bool:
    """Whether all loader threads are gone, soon."""
    for _ in range(1000):
        if not threads():
            return True
        time.sleep(0.01)
    return False


def run(script: str, path: Path) -> str:
    """Run a script on a path in a fresh process; what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
