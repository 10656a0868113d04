"""Folders of arrays, mapped."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.reader.conftest import SHARDS, Example
from tests.slabs import write_slab

from fieldslab.reader import open_slab
from fieldslab.reader.stored.folder import Folder
from fieldslab.schemas import layout
from fieldslab.schemas.folder import open_files


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


def test_a_folder_knows_its_files(example: Example) -> None:
    """Each array is found by field and role; a shard without nulls has no validity."""
    files = open_files(example.path)
    manifest = files.manifest
    fields = {field.name: field for field in manifest.fields}
    folders = [
        Folder(
            files,
            layout.shard_name(index),
            layout.shard_files(manifest, index),
            shard.root,
        )
        for index, shard in enumerate(manifest.shards)
    ]
    file = folders[2].file(fields["box"], "values")
    assert file is not None
    mapped = folders[2].map(file)
    assert mapped.shape == (SHARDS[2], 2, 3)
    assert not mapped.flags.writeable
    has_nulls = [folder.file(fields["score"], "valid") is not None for folder in folders]
    assert has_nulls == [True, False, True, True]
    assert folders[0].file(fields["box"], "offsets") is None
