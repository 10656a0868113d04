"""ORC as a source: stripes, and the types that it has."""

import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc
from tests.packer.packing import content
from tests.packer.readback import Readback

from fieldslab.packer import pack
from fieldslab.packer.source import find_source


def test_stripes(tmp_path: Path) -> None:
    """Stripes are units, with their rows; some columns are read as all are."""
    rng, rows = np.random.default_rng(0), 30_000
    table = pa.table({"s": [f"row {row}" for row in range(rows)], "x": rng.random(rows)})
    orc.write_table(table, tmp_path / "a.orc", stripe_size=16 << 10, compression="uncompressed")
    units = find_source(tmp_path / "a.orc").units
    assert len(units) > 3
    assert sum(unit.rows or 0 for unit in units) == rows
    one = pack(tmp_path / "a.orc", tmp_path / "one")
    pack(tmp_path / "a.orc", tmp_path / "x", fields="x", shard_size=100_000)
    native = orc.read_table(tmp_path / "a.orc")
    assert Readback(one.path).column("s") == native["s"].to_pylist()
    for name in ("one", "x"):
        assert Readback(tmp_path / name).values("x").tobytes() == native["x"].to_numpy().tobytes()
    assert content(pack(tmp_path / "a.orc", tmp_path / "again").path) == content(one.path)


def test_types(tmp_path: Path) -> None:
    """Lists, structs, dates, times and nulls are those that pyarrow reads."""
    day = datetime.date(2024, 2, 29)
    columns = {
        "l": pa.array([[1, 2], [], [3]], pa.list_(pa.int16())),
        "d": pa.array([day, None, day]),
        "t": pa.array([0, 1, -1], pa.timestamp("ns")),
        "n": pa.StructArray.from_arrays([pa.array([1.5, 2.5, 3.5], pa.float32())], ["a"]),
        "b": pa.array([b"", b"\0", b"x"]),
    }
    orc.write_table(pa.table(columns), tmp_path / "a.orc")
    pack(tmp_path / "a.orc", tmp_path / "slab", nulls={"d": "mask"})
    back = Readback(tmp_path / "slab")
    assert [row.tolist() for row in back.column("l")] == [[1, 2], [], [3]]
    assert back.column("d")[:2] == [np.int32((day - datetime.date(1970, 1, 1)).days), None]
    assert back.values("t").tolist() == [0, 1, -1]
    assert back.values("n.a").tolist() == pytest.approx([1.5, 2.5, 3.5])
    assert back.column("b") == [b"", b"\0", b"x"]
