"""The benchmark of the loader runs, and its marks stand beside what it measures."""

from pathlib import Path

import numpy as np
import pytest

from fieldslab.bench.gather import make_slab
from fieldslab.bench.loader import (
    MARKS,
    ROW_BYTES,
    measure_cold,
    measure_overlap,
    measure_threads,
    read_rows,
    show,
)
from fieldslab.bench.timing import Ratio
from fieldslab.reader import Subset


def test_marks_stand_beside_their_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every part measures something on a small slab; every mark of these parts is printed."""
    slab = make_slab(tmp_path / "a.slab", ROW_BYTES, False, 2**25)
    results = {
        **measure_threads(slab, 64, rounds=1),
        **measure_overlap(slab, batches=3),
        **measure_cold(slab.path, 32, rounds=1),
    }
    assert "cold: pread, 2 threads / default map" in results
    assert all(value.median > 0 for value in results.values() if isinstance(value, Ratio))
    show(results)
    printed = capsys.readouterr().out
    for label, mark in MARKS.items():
        if not label.startswith(("DataLoader", "Grain")):
            assert any(line.startswith(label) and mark in line for line in printed.splitlines())


def test_pread_reads_what_a_gather_does(tmp_path: Path) -> None:
    """What stands beside the default map are the same rows in the same batches, byte for byte."""
    slab = make_slab(tmp_path / "a.slab", ROW_BYTES, False, 2**25)
    order = Subset(fraction=0.25)
    rows = order.rows(0, 0, order.length(len(slab)), len(slab))
    batches = list(read_rows(slab.path, 32, order, threads=2))
    assert sum(map(len, batches)) == len(rows)
    assert np.array_equal(np.concatenate(batches), slab.gather(rows)["data"])
