"""Rows that were read are counted against those that the source's metadata promises."""

import os
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pytest

from fieldslab.packer import pack
from fieldslab.packer.source import find_source
from fieldslab.packer.spans import Span, read_span
from fieldslab.schemas.errors import SourceChanged, SourceInconsistent

TABLE = pa.table({"n": list(range(100))})


class Frame:
    """A frame of some other library, which says how many rows it has."""

    def __init__(self, rows: int) -> None:
        """Say so many, whatever comes."""
        self.num_rows = rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A hundred rows, as a capsule."""
        return TABLE.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(("rows", "found"), [(101, "100 rows"), (99, "more than 99 rows")])
def test_streams_that_promise_rows(tmp_path: Path, rows: int, found: str) -> None:
    """A stream with other rows than its object says is an error with both counts, and no slab."""
    with pytest.raises(SourceInconsistent) as caught:
        pack(Frame(rows), tmp_path / "slab")
    assert caught.value.context["expected"] == f"{rows} rows"
    assert caught.value.context["found"] == found
    assert caught.value.context["file"] == "the stream"
    assert list(tmp_path.iterdir()) == []
    pack(Frame(100), tmp_path / "slab")


def test_rows_that_are_not_asked_for_are_not_counted(tmp_path: Path) -> None:
    """With `--rows` and `--limit` a stream ends before its last row, and that is no loss."""
    assert pack(Frame(100), tmp_path / "a", rows="10:20").manifest.rows == 10
    assert pack(Frame(100), tmp_path / "b", limit=100).manifest.rows == 100


def test_change_behind_the_last_rows(tmp_path: Path) -> None:
    """A file that changes while its last rows are in use is noticed: units are read to the end."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(10)
    source = find_source(str(path))
    source.check([0])
    (unit,) = source.units
    rows = read_span(source, Span(unit, 0, 10), [0], 2**20)
    assert next(rows).num_rows == 10
    os.utime(path, ns=(1, 1))
    with pytest.raises(SourceChanged):
        next(rows)
