"""`--where` of `head` and `export`: the rows for which a condition is true."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fieldslab.packer import pack


@pytest.fixture
def slab(tmp_path: Path) -> Path:
    """Numbers and text."""
    table = pa.table({"x": np.arange(20), "name": [f"row {row % 4}" for row in range(20)]})
    pack(table, tmp_path / "x.slab")
    return tmp_path / "x.slab"


def test_rows_that_match_are_shown(slab: Path, tmp_path: Path, cli: Any) -> None:
    """They keep their numbers; -n and --rows count among them, in the sequence of --rows-file."""

    def list_rows(*options: object) -> list[int]:
        shown = cli("head", slab, "--json", *options)
        assert shown.code == 0
        return [json.loads(line)["row"] for line in shown.out.splitlines()]

    (tmp_path / "rows.txt").write_text("18\n6\n3\n2\n")
    condition = "name == 'row 2' and x > 2"
    assert list_rows("--where", condition, "-n", 2) == [6, 10]
    assert list_rows("--where", condition, "--rows", "-1,0") == [18, 6]
    assert list_rows("--where", condition, "--rows-file", tmp_path / "rows.txt") == [18, 6]
    assert list_rows("--where", "x > 99") == []
    beyond = cli("head", slab, "--where", condition, "--rows", 4)
    assert beyond.code == 2
    assert "4 rows" in beyond.err


def test_rows_that_match_are_written(slab: Path, tmp_path: Path, cli: Any) -> None:
    """A file has the rows that match, and of those only what --rows-file lists."""
    (tmp_path / "rows.txt").write_text("18\n6\n3\n2\n")
    for options, rows in (
        (["--where", "name == 'row 2'"], [2, 6, 10, 14, 18]),
        (["--where", "x > 2", "--rows-file", tmp_path / "rows.txt"], [3, 6, 18]),
        (["--where", "x > 99"], []),
    ):
        file = tmp_path / "x.parquet"
        assert cli("export", slab, "-o", file, "--force", *options).code == 0
        assert pq.read_table(file)["x"].to_pylist() == rows
    wrong = cli("export", slab, "-o", tmp_path / "y.parquet", "--where", "y > 2")
    assert wrong.code == 2
    assert "'y', which is no field" in wrong.err
    assert not (tmp_path / "y.parquet").exists()
