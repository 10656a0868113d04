"""Processors agree: the numbers of `machine_numbers` are the same everywhere."""

import json
from pathlib import Path

import numpy as np
from tests.machine_numbers import BOUNDS, compute_numbers

GOLDEN = Path(__file__).parent / "golden" / "numbers.json"


def test_this_machine_computes_what_others_do(tmp_path: Path) -> None:
    """Hashes are the golden ones; what processors may round differently stays within its bound."""
    golden, actual = json.loads(GOLDEN.read_text()), compute_numbers(tmp_path)
    assert actual["exact"] == golden["exact"]
    assert list(actual["near"]) == list(golden["near"]) == list(BOUNDS)
    for name, bound in BOUNDS.items():
        numbers, expected = (
            np.array(each["near"][name].split(), float) for each in (actual, golden)
        )
        np.testing.assert_allclose(numbers, expected, rtol=0, atol=bound, err_msg=name)
