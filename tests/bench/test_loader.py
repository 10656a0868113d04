"""The benchmark of the loader runs, and its marks stand beside what it measures."""

from pathlib import Path

import pytest

from fieldslab.bench.gather import make_slab
from fieldslab.bench.loader import (
    MARKS,
    ROW_BYTES,
    measure_cold,
    measure_overlap,
    measure_threads,
    show,
)
from fieldslab.bench.timing import Ratio


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
    assert all(value.median > 0 for value in results.values() if isinstance(value, Ratio))
    show(results)
    printed = capsys.readouterr().out
    for label, mark in MARKS.items():
        if not label.startswith(("DataLoader", "Grain")):
            assert any(line.startswith(label) and mark in line for line in printed.splitlines())
