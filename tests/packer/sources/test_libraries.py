"""Tables of other libraries as sources: Lance, Polars, DuckDB, nanoarrow."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import lance
import nanoarrow
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.packer.readback import Readback

from fieldslab.packer import pack, verify
from fieldslab.schemas.errors import SourceUnreadable

TABLE = pa.table(
    {
        "n": list(range(3000)),
        "t": [f"row {index}" for index in range(3000)],
        "l": [[index] * (index % 3) for index in range(3000)],
    }
)


def _lance(folder: Path) -> Any:
    return lance.write_dataset(TABLE, folder / "a.lance", max_rows_per_file=700)


def _lazy_scan(folder: Path) -> Any:
    pq.write_table(TABLE, folder / "a.parquet")
    return polars.scan_parquet(folder / "a.parquet")


def _relation(folder: Path) -> Any:
    pq.write_table(TABLE, folder / "a.parquet")
    connection = duckdb.connect()
    return connection.sql(f"select * from '{folder}/a.parquet' order by n")


SOURCES: dict[str, Callable[[Path], Any]] = {
    "lance": _lance,
    "polars": lambda folder: polars.from_arrow(TABLE),
    "lazy frame": lambda folder: polars.DataFrame(TABLE).lazy().filter(polars.col("n") >= 0),
    "lazy scan": _lazy_scan,
    "duckdb": _relation,
    "nanoarrow": lambda folder: nanoarrow.ArrayStream(TABLE),
}


@pytest.mark.parametrize("name", SOURCES)
def test_sources(tmp_path: Path, name: str) -> None:
    """Each of them is packed row by row in its order, and agrees with the table that it holds."""
    (tmp_path / "data").mkdir()
    packed = pack(SOURCES[name](tmp_path / "data"), tmp_path / "slab")
    assert not packed.warnings
    back = Readback(tmp_path / "slab")
    assert back.values("n").tolist() == TABLE["n"].to_pylist()
    assert back.column("t") == TABLE["t"].to_pylist()
    assert [row.tolist() for row in back.column("l")] == TABLE["l"].to_pylist()
    assert verify(tmp_path / "slab", against=TABLE).ok


def test_streams_are_read_once(tmp_path: Path) -> None:
    """A stream of nanoarrow that was read before is an error that says what to do."""
    stream = nanoarrow.ArrayStream(TABLE)
    pack(stream, tmp_path / "slab")
    with pytest.raises(SourceUnreadable, match="make a new one"):
        verify(tmp_path / "slab", against=stream)
    with pytest.raises(SourceUnreadable, match="make a new one"):
        pack(stream, tmp_path / "other")
    assert verify(tmp_path / "slab", against=nanoarrow.ArrayStream(TABLE)).ok


def test_empty_frames_have_a_schema(tmp_path: Path) -> None:
    """A lazy frame without rows makes a slab without rows, with every field."""
    frame = polars.DataFrame(TABLE).lazy().filter(polars.col("n") < 0)
    pack(frame, tmp_path / "slab")
    assert Readback(tmp_path / "slab").rows == 0
    assert set(Readback(tmp_path / "slab").fields) == {"n", "t", "l"}
