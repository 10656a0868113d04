"""The benchmark of gathers: what its labels say is what is timed."""

from pathlib import Path

import numpy as np
import pytest
from tests.slabs import write_slab

from fieldslab.bench import gather


def test_a_start_is_a_whole_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first gather is timed with its interpreter and all imports, each state of caches apart."""
    slab = write_slab(tmp_path / "a.slab", {"x": np.arange(5)})
    monkeypatch.setattr(gather, "STARTS", {"warm": 1})
    started = []
    run = gather._python

    def noted(code: str, *arguments: object, **environment: str) -> str:
        started.append((code, environment))
        return run(code, *arguments, **environment)

    monkeypatch.setattr(gather, "_python", noted)
    found = gather.measure_starts(slab, tmp_path)
    assert list(found) == [
        "fresh process, import to first gather, numba cache warm, s",
        "fresh process, import numpy, s",
    ]
    assert min(found.values()) > 0
    assert started[0][0].startswith("\nimport sys\nfrom fieldslab.reader import open_slab")
    assert any(file.is_file() for file in tmp_path.glob("numba-0/**/*")), (
        "it filled a cache of its own"
    )
