"""Folders of arrays, mapped."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.slabs import write_slab

from fieldslab.reader import open_slab


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """Let this process open only a few more files than it has now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.open(os.devnull, os.O_RDONLY)
    os.close(probe)
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe + 30, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_mapped_arrays_hold_no_descriptors(tmp_path: Path, few_descriptors: None) -> None:
    """A slab of more arrays than files may be open is read like any other."""
    numbers = np.arange(120)
    columns = {"x": numbers, "t": [str(number) for number in numbers]}
    slab = open_slab(write_slab(tmp_path / "many.slab", columns, [1] * 120))
    batch = slab.gather(range(120))
    assert batch["x"].tolist() == numbers.tolist()
    assert batch["t"].tolist() == columns["t"]
