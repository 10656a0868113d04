"""The benchmark of what bounds a loader."""

from pathlib import Path

import pytest

from fieldslab.bench.gather import KIB, make_slab
from fieldslab.bench.limits import MARKS, measure_addresses, measure_copying, measure_wait
from fieldslab.bench.loader import show


def test_every_mark_stands_beside_a_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each part measures something on small slabs, and each mark is printed."""
    small = make_slab(tmp_path / "small.slab", KIB, False, 2**25)
    lists = make_slab(tmp_path / "lists.slab", 2 * KIB, True, 2**25)
    results = {
        **measure_copying("62 KiB rows", small, 1),
        **measure_copying("1 KiB rows", small, 1),
        **measure_copying("tokens", lists, 1),
        "addresses, 1 KiB rows in batches of 256, million rows/s": measure_addresses(small, 10),
        **measure_wait(small, 3, 1),
    }
    assert set(MARKS) <= set(results)
    show(results, MARKS)
    printed = capsys.readouterr().out
    assert all(mark in printed for mark in MARKS.values())
