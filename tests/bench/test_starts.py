"""The benchmark of first batches: what its labels say is what is timed."""

from pathlib import Path

import numpy as np
import pytest
from tests.slabs import write_slab

from fieldslab.bench import starts
from fieldslab.packer import pack

PHOTOS = Path(__file__).parents[2] / "examples" / "photos.parquet"


def test_a_start_is_a_whole_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first batch is timed with its interpreter and all imports, each state of caches apart."""
    slab = write_slab(tmp_path / "a.slab", {"label": np.arange(5)})
    monkeypatch.setattr(starts, "FIRSTS", {"gather": starts.FIRSTS["gather"]})
    environments = []
    spawn = starts.time_process

    def record(code: str, *arguments: str, **environment: str) -> tuple[float, float]:
        environments.append(environment)
        return spawn(code, *arguments, **environment)

    monkeypatch.setattr(starts, "time_process", record)
    seconds = starts.measure_starts(slab, tmp_path, 1, 2)
    first = "fresh process, import to first gather, numba cache"
    assert list(seconds) == [
        *(
            f"{first} {state}, {unit}"
            for state in ("empty", "warm")
            for unit in ("s", "processor s")
        ),
        "fresh process, import numpy, s",
    ]
    assert seconds[f"{first} empty, s"].median > seconds[f"{first} warm, s"].median > 0
    caches = {environment["NUMBA_CACHE_DIR"] for environment in environments if environment}
    assert len(caches) == 1
    assert any(Path(*caches).rglob("*.kernel"))


def test_every_program_that_is_timed_runs(tmp_path: Path) -> None:
    """Each program gives a first batch of photographs, raw and cropped."""
    slab = tmp_path / "photographs.slab"
    pack(PHOTOS, slab, nulls="weight=mask")
    for code, way in starts.FIRSTS.values():
        assert starts.time_process(code, str(slab), way)[0] > 0


def test_a_start_that_fails_is_told() -> None:
    """The time of a program that failed is no result."""
    with pytest.raises(RuntimeError, match="status"):
        starts.time_process("raise SystemExit(3)")
