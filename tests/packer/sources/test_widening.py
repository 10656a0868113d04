"""Files whose columns differ: refused by default, or joined without changing a value."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from tests.naming import case
from tests.packer.readback import Readback

from fieldslab.packer import pack
from fieldslab.packer.pack_options import PackOptions
from fieldslab.packer.parts.packing import finish_parts, pack_part
from fieldslab.packer.parts.part_number import PartNumber
from fieldslab.packer.parts.plan_file import write_plan_file
from fieldslab.packer.sources.widening import widen_type
from fieldslab.schemas.errors import SourceInconsistent, UsageError

TABLES = [
    {"n": np.array([1, -(2**31)], np.int32), "x": np.array([0.1, 2], np.float32), "s": ["a", "b"]},
    {"x": np.array([1e300, np.nan]), "n": np.array([2**63 - 1, 0]), "y": np.array([5, 6])},
]


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_widen(tmp_path: Path, suffix: str) -> None:
    """Numbers are read in the widest type, missing columns as null, and both are listed."""
    folder = tmp_path / "raw"
    folder.mkdir()
    write: Any = pq.write_table if suffix == ".parquet" else pyarrow.feather.write_feather
    for number, columns in enumerate(TABLES):
        write(pa.table(columns), folder / f"{number}{suffix}")
    with pytest.raises(SourceInconsistent, match=r"unify.*widen"):
        pack(folder, tmp_path / "slab")
    options: PackOptions = {"settings": {"unify": "widen"}, "nulls": {"*": "mask"}, "shard_size": 1}
    with pytest.warns(UserWarning, match="null in 1 files of 2"):
        packed = pack(folder, tmp_path / "slab", **options)
    back = Readback(tmp_path / "slab")
    assert back.values("n").tolist() == [1, -(2**31), 2**63 - 1, 0]
    assert back.values("n").dtype == np.int64
    expected = np.array([np.float32(0.1), 2, 1e300, np.nan])
    assert back.values("x").tobytes() == expected.tobytes()
    assert back.column("s") == ["a", "b", None, None]
    assert back.column("y")[2:] == [5, 6]
    assert list(packed.warnings[:4]) == [
        "n: read as int64; 1 files of 2 have int32",
        "x: read as double; 1 files of 2 have float",
        "s: null in 1 files of 2, which lack it",
        "y: null in 1 files of 2, which lack it",
    ]
    write_plan_file([folder], tmp_path / "parts", tmp_path / "x.plan", options)
    for number in (2, 1):
        pack_part(tmp_path / "x.plan", PartNumber(number, 2))
    assert finish_parts(tmp_path / "x.plan").manifest.id == packed.manifest.id


def test_columns_that_csv_files_lack(tmp_path: Path) -> None:
    """Columns of CSV that files lack are null there; types are inferred from all files."""
    folder = tmp_path / "raw"
    folder.mkdir()
    for number in range(20):
        extra = (f",z{number}", ",7.5") if number in (5, 12) else ("", "")
        (folder / f"{number:02d}.csv").write_text(f"n{extra[0]}\n{number}{extra[1]}\n")
    with pytest.raises(SourceInconsistent, match=r"z5: double there, missing here.*widen"):
        pack(folder, tmp_path / "slab")
    options: PackOptions = {"settings": {"unify": "widen"}, "nulls": {"*": "mask"}, "shard_size": 1}
    packed = pack(folder, tmp_path / "slab", **options)
    back = Readback(tmp_path / "slab")
    assert back.values("n").tolist() == list(range(20))
    assert back.column("z5") == [7.5 if number == 5 else None for number in range(20)]
    assert back.column("z12") == [7.5 if number == 12 else None for number in range(20)]
    assert packed.warnings[0] == "z5: null in 19 files of 20, which lack it"
    write_plan_file([folder], tmp_path / "parts", tmp_path / "x.plan", options)
    for number in (2, 1):
        pack_part(tmp_path / "x.plan", PartNumber(number, 2))
    assert finish_parts(tmp_path / "x.plan").manifest.id == packed.manifest.id


def test_what_is_not_widened(tmp_path: Path) -> None:
    """Only types whose values all stay exact are joined."""
    cases = [
        (pa.uint8(), pa.int8(), pa.int16()),
        (pa.uint32(), pa.int64(), pa.int64()),
        (pa.uint64(), pa.int64(), None),
        (pa.int32(), pa.float64(), None),
        (pa.string(), pa.int64(), None),
        (pa.null(), pa.string(), pa.string()),
    ]
    for one, other, expected in cases:
        with case(one, other):
            assert widen_type(one, other) == widen_type(other, one) == expected
    for number, values in enumerate((["a"], [1])):
        pq.write_table(pa.table({"x": values}), tmp_path / f"{number}.parquet")
    with pytest.raises(SourceInconsistent) as caught:
        pack(tmp_path, tmp_path / "slab")
    assert "unify" not in str(caught.value)
    with pytest.raises(SourceInconsistent, match="x: string there, int64 here"):
        pack(tmp_path, tmp_path / "slab", settings={"unify": "widen"})
    with pytest.raises(UsageError, match="must be 'widen'"):
        pack(tmp_path, tmp_path / "slab", settings={"unify": "any"})
