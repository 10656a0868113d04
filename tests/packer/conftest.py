"""Files to pack, places for slabs, and the command line in this process."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.packer.commandline import Done
from tests.packer.packing import ROWS, SHARDS, table

from fieldslab.packer.cli import run
from fieldslab.schemas.folder import load_manifest


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A Parquet file of as many row groups as there will be shards."""
    path = tmp_path / "rows.parquet"
    pq.write_table(table(), path, row_group_size=ROWS // SHARDS)
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Where to pack to: a folder with nothing else in it."""
    (tmp_path / "place").mkdir()
    return tmp_path / "place" / "x.slab"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command line in this process."""

    def call(*arguments: object) -> Done:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        return Done(code, *capsys.readouterr())

    return call


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty rows with a column of text, one of numbers, and one with two nulls."""
    path = tmp_path_factory.mktemp("source") / "a.parquet"
    columns = {
        "text": [f"row {row}" for row in range(20)],
        "x": np.arange(20),
        "y": [None if row in (3, 4) else row for row in range(20)],
    }
    pq.write_table(pa.table(columns), path, row_group_size=5)
    return path


@pytest.fixture
def slab(cli: Any, parquet: Path, tmp_path: Path) -> Path:
    """The source packed into four shards."""
    path = tmp_path / "a.slab"
    options = ["--nulls", "y=mask", "--shard-size", "100", "-q"]
    assert cli("pack", parquet, "-o", path, *options) == (0, "", "")
    assert len(load_manifest(path).shards) == 4
    return path
