"""The plan: where shards are cut, and what the id of a slab depends on."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.packer.readback import Readback

from fieldslab.packer import pack
from fieldslab.packer.options import parse_options
from fieldslab.packer.plan import make_plan
from fieldslab.packer.shardsize import MAX_MAPS
from fieldslab.packer.source import find_source
from fieldslab.schemas.errors import SourceUnsupported, UsageError

TABLE = pa.table(
    {
        "n": np.arange(1000),
        "c": pa.array([f"c{index % 7}" for index in range(1000)]).dictionary_encode(),
        "t": [f"text {index}" for index in range(1000)],
    }
)


def written(folder: Path, **options: Any) -> Path:
    """The table as a Parquet file with ten row groups."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(TABLE, folder / "a.parquet", row_group_size=100, **options)
    return folder / "a.parquet"


def plan_of(source: Path, **options: Any) -> Any:
    """The plan for a source."""
    return make_plan(find_source(source), parse_options(**options))


def test_id_depends_on_content_alone(tmp_path: Path) -> None:
    """Paths, times, jobs, row groups and compression of the source do not change the id."""
    source = written(tmp_path / "one")
    first = pack(source, tmp_path / "first.slab").manifest
    again = pack(source, tmp_path / "again.slab").manifest
    copy = tmp_path / "two" / "other name.parquet"
    copy.parent.mkdir()
    shutil.copyfile(source, copy)
    os.utime(copy, ns=(10**18, 10**18))
    moved = pack(copy, tmp_path / "moved.slab", jobs=2).manifest
    zipped = pack(written(tmp_path / "three", compression="zstd"), tmp_path / "zip.slab").manifest
    assert {again.id, moved.id, zipped.id} == {first.id}
    assert pack(source, tmp_path / "b.slab", limit=999).manifest.id != first.id
    assert pack(source, tmp_path / "c.slab", rename="n=m").manifest.id != first.id
    assert pack(source, tmp_path / "d.slab", exclude="t").manifest.id != first.id


def test_cuts_repeat(tmp_path: Path) -> None:
    """The same source and options are cut in the same way, and every cut holds the same rows."""
    source = written(tmp_path)
    for size in (1, 5000, 20_000, "1G"):
        packed = [
            pack(source, tmp_path / f"{index}.slab", shard_size=size, force=True).manifest
            for index in range(2)
        ]
        assert packed[0].id == packed[1].id
        assert Readback(tmp_path / "0.slab").values("n").tolist() == list(range(1000))
    assert len(packed[0].shards) == 1
    assert len(pack(source, tmp_path / "x.slab", shard_size=1).manifest.shards) == 10


def test_cuts_lie_between_row_groups(tmp_path: Path) -> None:
    """A shard is a run of whole row groups near the wanted size, and no row is lost."""
    sizes = [unit.bytes for unit in find_source(written(tmp_path)).units]
    target = 3 * (sizes[0] or 0)
    plan = plan_of(tmp_path / "a.parquet", shard_size=target)
    assert [task.rows for task in plan.tasks] == [300, 300, 300, 100]
    assert [task.first_row for task in plan.tasks] == [0, 300, 600, 900]
    assert plan.rows == 1000


def test_shards_are_not_too_many(tmp_path: Path) -> None:
    """The wanted size grows with the data, and with the number of arrays in a shard."""
    table = pa.table({"n": np.arange(3000)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1)
    plan = plan_of(tmp_path / "a.parquet", shard_size=1)
    assert len(plan.tasks) == 3000
    wide = pa.table({f"c{index}": np.arange(40) for index in range(500)})
    pq.write_table(wide, tmp_path / "b.parquet", row_group_size=1)
    plan = plan_of(tmp_path / "b.parquet", shard_size=1)
    assert 10 < len(plan.tasks) <= MAX_MAPS // 1000
    assert plan.rows == 40


def test_a_plan_reads_no_data(tmp_path: Path) -> None:
    """What a plan says follows from the footers, as long as types tell enough."""
    source = written(tmp_path)
    data = bytearray(source.read_bytes())
    footer = int.from_bytes(data[-8:-4], "little") + 8
    data[4:-footer] = bytes(len(data) - footer - 4)
    source.write_bytes(data)
    plan = plan_of(source, cast="n=f4", stack=[])
    assert [field_plan.field.name for field_plan in plan.fields] == ["n", "c", "t"]
    assert plan.fields[0].why == "cast to float32 of int64"
    assert all(field_plan.bytes for field_plan in plan.fields)


@pytest.mark.parametrize("options", [{}, {"rows": "250:260"}, {"fields": "c"}], ids=repr)
def test_sizes_are_estimated(tmp_path: Path, options: dict[str, Any]) -> None:
    """The bytes of each field are known beforehand, to the byte where rows have one size."""
    plan = plan_of(written(tmp_path), **options)
    actual = {field_plan.field.name: field_plan.bytes for field_plan in plan.fields}
    assert actual.get("n", 8000) == 8000
    assert actual["c"]


def test_children_have_sizes_of_their_own(tmp_path: Path) -> None:
    """Each part of a struct is counted by itself."""
    struct = pa.StructArray.from_arrays(
        [pa.array(range(50), pa.int8()), pa.array(range(50), pa.int64())], ["a", "b"]
    )
    pq.write_table(pa.table({"x": range(50), "s": struct}), tmp_path / "a.parquet")
    plan = plan_of(tmp_path / "a.parquet")
    assert {field_plan.field.name: field_plan.bytes for field_plan in plan.fields} == {
        "x": 400,
        "s.a": 200,
        "s.b": 400,
    }


def test_all_refused_columns_are_told_at_once(tmp_path: Path) -> None:
    """One run names every column that cannot be packed, each with the option that helps."""
    prices = pa.array([1, 2], pa.decimal128(5, 2))
    pairs = pa.array([[[["k"]]]] * 2)
    pq.write_table(pa.table({"p": prices, "x": [1, 2], "m": pairs}), tmp_path / "a.parquet")
    with pytest.raises(SourceUnsupported) as caught:
        plan_of(tmp_path / "a.parquet")
    errors = (caught.value, *caught.value.others)
    assert [error.context["field"] for error in errors] == ["p", "m"]
    assert 'cast={"p": "text"}' in str(caught.value)
    assert 'cast={"m": "json"}' in str(caught.value)
    assert plan_of(tmp_path / "a.parquet", exclude="p,m").rows == 2


def test_rows_behind_the_end_of_a_stream_are_refused(tmp_path: Path) -> None:
    """A stream tells only at its end that it has no such rows: nothing is published then."""
    with pytest.raises(UsageError, match="after the last row"):
        pack(TABLE, tmp_path / "x.slab", rows="1000:1010")
    assert list(tmp_path.iterdir()) == []
    assert pack(TABLE, tmp_path / "x.slab", rows="999:1010").manifest.rows == 1
    assert pack(TABLE, tmp_path / "y.slab", rows="5:5").manifest.rows == 0
