"""Advice: options that a loader takes, within memory, and what was measured for them."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.jpegs import encode, photograph
from tests.slabs import ragged, write_slab

from fieldslab.packer import pack
from fieldslab.reader import Batch, Loader, Pad, Resize, Slab, open_slab
from fieldslab.reader.advisor import advise
from fieldslab.schemas.errors import UnknownField, UsageError
from fieldslab.schemas.memory import count_available_bytes

PHOTOS = Path(__file__).parents[2] / "examples" / "photos.parquet"
ROWS = 400
WIDE = 16 * 1024


@pytest.fixture
def slab(tmp_path: Path) -> Slab:
    """Rows of 16 KiB, and ragged ones beside them."""
    columns = {
        "x": np.zeros((ROWS, WIDE // 4), np.float32),
        "tokens": ragged([np.zeros(n % 5) for n in range(ROWS)], "int32"),
    }
    return open_slab(write_slab(tmp_path / "a.slab", columns, [150, 250]))


def test_what_is_advised_can_be_used(slab: Slab) -> None:
    """A loader takes the options; sizes are those of rows and batches, and all of it is JSON."""
    advice = advise(slab, seconds=0.02)
    assert advice.slab_bytes == ROWS * WIDE + 4 * sum(n % 5 for n in range(ROWS))
    assert advice.batch_size in advice.measured.gather_rows
    assert advice.batch_size <= ROWS // 16
    assert advice.batch_bytes == pytest.approx(
        advice.batch_size * advice.slab_bytes / ROWS, rel=0.01
    )
    alive = advice.prefetch + advice.threads
    assert advice.memory_bytes >= alive * advice.batch_bytes
    assert advice.memory_bytes <= advice.free_bytes // 4
    assert not advice.blocked
    loader = Loader(slab, advice.batch_size, prefetch=advice.prefetch, threads=advice.threads)
    assert sum(len(batch.rows) for batch in loader) == ROWS
    assert json.loads(json.dumps(advice.as_dict()))["batch_size"] == advice.batch_size
    assert f"Loader(slab, {advice.batch_size}, prefetch={advice.prefetch}, " in str(advice)


def test_slow_preparation_gets_more_threads(slab: Slab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads suffice for the step, and one does where the step is far longer."""
    monkeypatch.setattr("fieldslab.reader.advisor.count_usable_cores", lambda: 3)

    def slow(batch: Batch) -> dict[str, Any]:
        time.sleep(0.02)
        return {}

    options: dict[str, Any] = {"fields": ["tokens"], "transforms": [slow], "seconds": 0.02}
    busy = advise(slab, 8, step_ms=10, **options)
    assert busy.threads == 3
    assert set(busy.measured.loader_gb) == {1, 2, 3}
    assert busy.measured.prepare_ms >= 20
    calm = advise(slab, 8, step_ms=200, **(options | {"seconds": 0.001}))
    assert calm.threads == 1
    assert calm.measured.wait_percent is not None
    assert "at 200 ms a step" in str(calm)


def test_memory_is_a_limit(slab: Slab) -> None:
    """What batches take stays within what is allowed; where two are too many, that is said."""
    advice = advise(slab, fields=["x"], memory=600_000, seconds=0.01)
    assert advice.batch_bytes <= 300_000
    assert advice.memory_bytes <= 600_000
    tight = advise(slab, 16, fields=["x"], memory=600_000, seconds=0.01)
    assert (tight.threads, tight.prefetch) == (1, 1)
    with pytest.raises(UsageError, match="two batches of 64 rows"):
        advise(slab, 64, fields=["x"], memory=600_000, seconds=0.01)


def test_batches_that_grow_take_more(slab: Slab) -> None:
    """Memory is that of batches as they are handed over: padded, cast, decoded."""
    plain = advise(slab, 8, fields=["tokens"], seconds=0.001)
    padded = advise(slab, 8, fields=["tokens"], transforms=[Pad("tokens", 100_000)], seconds=0.001)
    assert padded.batch_bytes == plain.batch_bytes
    assert padded.memory_bytes >= 2 * 8 * 400_000 > plain.memory_bytes
    path = slab.path.parent / "photos.slab"
    pack(PHOTOS, path, fields="image", limit=8)
    steps = {"image": [Resize(64)]}
    decoded = advise(open_slab(path), 4, fields=["image"], decode=steps, seconds=0.001)
    assert decoded.memory_bytes >= 2 * 4 * 64 * 64 * 3


def test_data_larger_than_memory_comes_in_blocks(
    slab: Slab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the slab exceeds the memory that is free, `Blocked` is the order for it."""
    monkeypatch.setattr("fieldslab.reader.advisor.count_available_bytes", lambda: ROWS * WIDE - 1)
    advice = advise(slab, seconds=0.01)
    assert advice.blocked
    assert "Blocked()" in str(advice)
    assert not advise(slab[: ROWS // 2], seconds=0.01).blocked


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"batch_size": 0}, UsageError),
        ({"fields": ["y"]}, UnknownField),
        ({"step_ms": 0}, UsageError),
        ({"memory": 0}, UsageError),
    ],
    ids=str,
)
def test_mistakes_are_named(slab: Slab, options: dict[str, Any], error: type[Exception]) -> None:
    """What cannot be is refused."""
    with pytest.raises(error):
        advise(slab, **options)
    with pytest.raises(UsageError, match="no rows"):
        advise(slab[:0])


def test_free_memory_is_known() -> None:
    """It is a part of the machine's."""
    assert 2**20 < count_available_bytes() < 2**50


def test_progressive_images_are_counted(tmp_path: Path) -> None:
    """JPEG without an index is counted, and told with what to do; `baseline` images are not."""
    files = [encode(photograph(60, 80, n), progressive=n % 3 == 0) for n in range(9)]
    pack([{"photo": file} for file in files], tmp_path / "a.slab")
    advice = advise(open_slab(tmp_path / "a.slab"), 2, seconds=0.01)
    assert advice.unindexed == {"photo": 3}
    assert "photo: 3 of 9 are JPEG without an index" in str(advice)
    assert "image form `baseline` avoids that" in str(advice)
    pack([{"photo": file} for file in files], tmp_path / "b.slab", image={"photo": "baseline"})
    advice = advise(open_slab(tmp_path / "b.slab"), 2, seconds=0.01)
    assert advice.unindexed == {}
    assert "without an index" not in str(advice)
