"""A few rounds of `make campaign-soak`, and faults that it must find."""

import random
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import campaign_soak
from tests.campaign_soak import Soak
from tests.slabs import write_slab
from tests.soaking import ANY, OURS, Training, compare, run_round

from fieldslab.reader import Loader, Shuffled, open_slab


def test_short_trainings_of_random_shape(tmp_path: Path) -> None:
    """Every batch equals the source, whatever the schema, the order and the loader."""
    counts = Counter[str]()
    for seed in (1, 9):  # a union in threads, a mirror as tensors
        (tmp_path / f"{seed}").mkdir()
        counts += run_round(tmp_path / f"{seed}", random.Random(seed))
    assert sum(counts[name] for name in counts if name.startswith("epochs abandoned")) > 30


@pytest.mark.parametrize("threads", [0, 2])
def test_every_way_to_abandon_an_epoch(tmp_path: Path, threads: int) -> None:
    """The next epoch is whole, and the same as if nothing had been abandoned."""
    source = {"row": np.arange(40)}
    slab = open_slab(write_slab(tmp_path / "x.slab", source))

    def make(training: Training) -> Loader:
        training.fails = False
        options: dict[str, Any] = {"threads": threads} if threads else {"prefetch": 0}
        return Loader(slab, 4, Shuffled(1), transforms=[training.trip], **options)

    for name, leave in (ANY | OURS).items():
        training = Training(source, make)
        leave(training, 2)
        rows: list[int] = []
        for step, batch in enumerate(training.loader):
            rows += training.check(step, batch)
        assert sorted(rows) == [*range(40)], name


def test_what_grows_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that stay open after the first rounds are told."""
    monkeypatch.setattr(campaign_soak, "_PATIENCE", 0.0)
    monkeypatch.setattr(campaign_soak, "WARM", 2)
    monkeypatch.setattr(campaign_soak, "run_round", lambda *_: Counter())
    soak = Soak(tmp_path)
    for number in range(3):
        soak.try_case(number, random.Random(0))
    with ExitStack() as files:
        for _ in range(campaign_soak.MOST["files"] + 100):  # other tests' may be closed meanwhile
            files.enter_context((tmp_path / "x").open("w"))
        with pytest.raises(AssertionError, match="files"):
            soak.check_growth()
    soak.check_growth()


def test_a_wrong_value_is_found() -> None:
    """A value of another row is told with its field and row."""
    rows = {"row": np.arange(2), "int": np.array([5, 6])}
    assert compare({"row": [1, 0], "int": [6, 5]}, rows) == [1, 0]
    with pytest.raises(AssertionError, match=r"int, row 1: .*5.*, expected .*6"):
        compare({"row": [1], "int": [5]}, rows)
