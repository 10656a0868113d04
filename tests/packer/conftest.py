"""A file to pack, and a place for the slab."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.packer.packing import ROWS, SHARDS, table


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
