"""A few rounds of `make campaign-soak`, and a wrong value that it must find."""

import random
from pathlib import Path

import pytest
from tests.campaign_soak import compare, run_round


def test_short_trainings_of_random_shape(tmp_path: Path) -> None:
    """Every batch equals the source, whatever the schema, the order and the loader."""
    for seed in range(6):
        assert run_round(tmp_path, random.Random(seed))["batches"] > 0


def test_a_wrong_value_is_found() -> None:
    """A value of another row is told with its field and row."""
    rows = {"row": [0, 1], "int": [5, 6]}
    assert compare({"row": [1, 0], "int": [6, 5]}, rows) == [1, 0]
    with pytest.raises(AssertionError, match="int, row 1: 5, expected 6"):
        compare({"row": [1], "int": [5]}, rows)
