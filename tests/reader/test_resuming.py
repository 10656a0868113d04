"""A short run of `make campaign-resume`."""

import random
from pathlib import Path

from tests.naming import case
from tests.resuming import ORDERS, run_round

from fieldslab.reader.orders.ordertext import ORDERS as NAMES

ROUNDS = 45


def test_any_run_goes_on_with_other_sizes(tmp_path: Path) -> None:
    """Of any order, what is left after a state is what no rank had, on any ranks, in step."""
    assert ORDERS.keys() == NAMES.built_in.keys()
    for number in range(ROUNDS):
        with case(number):
            folder = tmp_path / str(number)
            folder.mkdir()
            run_round(folder, random.Random(number))
