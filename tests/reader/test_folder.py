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
    """Let this process open only 30 files more than it has now, whatever others left open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    probes = [os.open(os.devnull, os.O_RDONLY) for _ in range(30)]
    for probe in probes:
        os.close(probe)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(probes) + 1, hard))
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


def test_slabs_are_opened_where_no_descriptor_is_left(tmp_path: Path) -> None:
    """Where as many files are open as the process may open, the limit is raised."""
    place = write_slab(tmp_path / "one.slab", {"x": np.arange(9)}, [9])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        assert open_slab([place, place]).gather([10])["x"].tolist() == [1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
