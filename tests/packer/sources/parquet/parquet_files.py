"""What tests of Parquet share: files with numbers, and packs of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.packer.readback import Readback

from fieldslab.packer import pack
from fieldslab.schemas.errors import (
    FieldslabError,
)


def write(path: Path, rows: range, **options: Any) -> Path:
    """A file with a number and a text column."""
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = np.array(rows, np.int64)
    table = pa.table({"n": numbers, "t": [f"row {index}" for index in rows]})
    pq.write_table(table, path, **options)
    return path


def numbers(slab: Path) -> list[int]:
    """The column `n` of a slab."""
    values: list[int] = Readback(slab).values("n").tolist()
    return values


def refused(tmp_path: Path, source: Any, **options: Any) -> FieldslabError:
    """The error of a pack, which must leave nothing behind."""
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(FieldslabError) as caught:
        pack(source, tmp_path / "slab", **options)
    assert sorted(tmp_path.rglob("*")) == before
    return caught.value
