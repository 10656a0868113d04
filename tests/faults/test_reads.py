"""A disk that fails at any read of a slab: a named error, or a finding, and never damage."""

import json
from collections import Counter

import numpy as np
import pytest
from tests.faults.shim import build_shim, run_with_shim
from tests.slabs import categorical, write_slab


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """What each call came to with every read of it failing in turn."""
    folder = tmp_path_factory.mktemp("faults")
    columns = {
        "x": np.arange(30),
        "t": [f"row {row}" for row in range(30)],
        "c": categorical(np.arange(30), [f"name {row}" for row in range(30)], table=True),
    }
    slab = write_slab(folder / "a.slab", columns, (10, 20))
    text = run_with_shim("tests.faults.every_read", build_shim(folder), slab)
    outcomes: list[list[str]] = json.loads(text)
    return outcomes


@pytest.mark.parametrize("call", ["gather", "row", "categories", "head", "verify", "scrub"])
@pytest.mark.parametrize("kind", ["EIO", "ESTALE"])
def test_a_failing_disk_is_unreadable(outcomes: list[list[str]], call: str, kind: str) -> None:
    """Whichever read fails, the error is Unreadable, and for verify a finding that names it."""
    counts = Counter(came for name, failure, came in outcomes if (name, failure) == (call, kind))
    assert set(counts) == {"Unreadable"}
    assert counts["Unreadable"] >= 3


def test_a_short_read_goes_on(outcomes: list[list[str]]) -> None:
    """A read that gives fewer bytes than were asked for is continued, and all is right."""
    counts = Counter(came for _, failure, came in outcomes if failure == "short")
    assert set(counts) == {"right"}
