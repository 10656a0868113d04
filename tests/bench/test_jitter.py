"""The benchmark of what loaders do to a step beside them."""

from pathlib import Path

import pytest

from fieldslab.bench.gather import KIB, make_slab
from fieldslab.bench.jitter import LOADERS, MARKS, SUMMARIES, measure_disturbance
from fieldslab.bench.loader import show
from fieldslab.bench.timing import Ratio
from fieldslab.reader import Loader


def test_every_loader_is_compared_with_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each loader has a ratio for each summary of the step, and marks stand beside theirs."""
    slab = make_slab(tmp_path / "a.slab", KIB, False, 2**20)
    results = measure_disturbance(lambda **options: Loader(slab, 16, **options), 1, 2)
    ratios = {label for label, value in results.items() if isinstance(value, Ratio)}
    assert ratios == {f"beside {name} / alone: {what}" for name in LOADERS for what in SUMMARIES}
    assert all(results[label].median > 0 for label in ratios)
    marked = {f"1 KiB rows, {label}": results[label] for label in ratios}
    show(marked, MARKS)
    assert capsys.readouterr().out.count("below 1.02") == 2
