"""Tables of Delta, Iceberg and Lance: versions, deleted rows, partitions, schemas that grew."""

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyroaring import BitMap64
from tests.packer.packing import content
from tests.packer.readback import Readback
from tests.packer.sources.every_source import write_iceberg
from tests.servers.s3 import Bucket

from fieldslab.packer import pack, verify
from fieldslab.packer.pack_options import PackOptions
from fieldslab.packer.parts.packing import finish_parts, pack_part
from fieldslab.packer.parts.part_number import PartNumber
from fieldslab.packer.parts.plan_file import write_plan_file
from fieldslab.packer.source import find_source
from fieldslab.schemas.errors import (
    SourceChanged,
    SourceInconsistent,
    SourceNotFound,
    SourceUnreadable,
    SourceUnsupported,
    UsageError,
)
from fieldslab.schemas.stores.store import open_store

TABLE = pa.table({"n": list(range(60)), "s": [f"row {n}" for n in range(60)]})
KEPT = [n for n in range(60) if n not in (3, 7, 59)]


class Table:
    """A table on a disk: `change` makes a new version of it."""

    def __init__(self, path: Path, version: int, change: Callable[[], Any]) -> None:
        self.path, self.version, self.change = path, version, change


def _make_delta(folder: Path) -> Table:
    path = folder / "t"
    write_deltalake(path, TABLE)
    DeltaTable(path).delete("n in (3, 7, 59)")
    return Table(path, 1, lambda: write_deltalake(path, TABLE, mode="append"))


def _make_lance(folder: Path) -> Table:
    path = folder / "t.lance"
    lance.write_dataset(TABLE, path, max_rows_per_file=20).delete("n in (3, 7, 59)")
    return Table(path, 2, lambda: lance.write_dataset(TABLE, path, mode="append"))


def _make_iceberg(folder: Path) -> Table:
    table = write_iceberg(folder, [TABLE])
    table.delete("n in (3, 7, 59)")
    version = table.current_snapshot().snapshot_id
    return Table(folder / "ns" / "t", version, lambda: table.append(TABLE))


@pytest.fixture(params=[_make_delta, _make_lance, _make_iceberg])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """A table of each kind, from which rows were deleted."""
    make: Callable[[Path], Table] = request.param
    return make(tmp_path)


def read_numbers(slab: Path) -> list[int]:
    """The field `n` of a slab."""
    numbers: list[int] = Readback(slab).values("n").tolist()
    return numbers


def test_versions(tmp_path: Path, table: Table) -> None:
    """Deleted rows are left out; a named version, and a plan, give what was there then."""
    expected = content(pack(table.path, tmp_path / "slab", shard_size=100).path)
    assert read_numbers(tmp_path / "slab") == KEPT
    options: PackOptions = {"shard_size": 100}
    write_plan_file([table.path], tmp_path / "parts", tmp_path / "x.plan", options)
    pack_part(tmp_path / "x.plan", PartNumber(1, 2))
    table.change()
    pack_part(tmp_path / "x.plan", PartNumber(2, 2))
    finish_parts(tmp_path / "x.plan")
    assert content(tmp_path / "parts") == expected
    assert verify(tmp_path / "slab", against=table.path).ok  # with the version that it has
    pack(table.path, tmp_path / "new")
    assert sorted(read_numbers(tmp_path / "new")) == sorted([*KEPT, *range(60)])
    pack(f"{table.path}@{table.version}", tmp_path / "old", shard_size=100)
    assert read_numbers(tmp_path / "old") == KEPT
    pack(table.path, tmp_path / "set", settings={"table_version": table.version})
    assert read_numbers(tmp_path / "set") == KEPT
    source = find_source(table.path)
    assert source.column_bytes((0,)) == 8 * len(read_numbers(tmp_path / "new"))
    assert source.column_bytes((1,)) is None
    made = Readback(tmp_path / "slab").manifest["made"]
    assert made["options"]["settings"] == {"table_version": table.version}


def test_refused(tmp_path: Path, table: Table) -> None:
    """Versions that are not there, several tables, and files that disappear are named."""
    with pytest.raises(SourceUnreadable) as missing:
        pack(f"{table.path}@4711", tmp_path / "slab")
    assert str(missing.value.context["file"]) == str(table.path)
    with pytest.raises(UsageError, match="the path names another version"):
        pack(f"{table.path}@{table.version}", tmp_path / "slab", settings={"table_version": 0})
    with pytest.raises(UsageError, match="one at a time"):
        pack([table.path, table.path], tmp_path / "slab")
    with pytest.raises(SourceNotFound):
        pack(tmp_path / "nothing@3", tmp_path / "slab")
    write_plan_file([table.path], tmp_path / "parts", tmp_path / "x.plan", PackOptions())
    data = next(path for path in table.path.rglob("*") if path.suffix in (".parquet", ".lance"))
    for path in table.path.rglob(f"*{data.suffix}"):
        path.unlink()
    with pytest.raises((SourceChanged, SourceUnreadable)):
        pack_part(tmp_path / "x.plan", PartNumber(1, 1))


def upload(path: Path, bucket: Bucket) -> str:
    """Put a table into a bucket; returns its URL."""
    store = open_store(bucket.url, bucket.options)
    for file in path.rglob("*"):
        if file.is_file():
            store.write(file.relative_to(path.parent).as_posix(), file)
    return f"{bucket.url}/{path.name}"


def test_delta_deletion_vectors(tmp_path: Path, bucket: Bucket) -> None:
    """Rows that a deletion vector lists are left out, whichever batches they are in."""
    path = tmp_path / "t"
    write_deltalake(path, TABLE, configuration={"delta.enableDeletionVectors": "true"})
    log = path / "_delta_log"
    added = next(
        json.loads(line)["add"]
        for line in (log / f"{0:020}.json").read_text().splitlines()
        if "add" in json.loads(line)
    )
    data = (1681511377).to_bytes(4, "little") + BitMap64([3, 7, 59]).serialize()
    data += bytes(-len(data) % 4)
    signs = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    z85 = str.maketrans(
        f"{signs[:10]}{signs[36:]}{signs[10:36]}!#$%&()*+-;<=>?@^_`{{|}}~",
        f"{signs}.-:+=^!/*?&<>()[]{{}}@%$#",
    )
    vector = {
        "storageType": "i",
        "pathOrInlineDv": base64.b85encode(data).decode().translate(z85),
        "sizeInBytes": len(data),
        "cardinality": 3,
    }
    now = int(time.time() * 1000)
    actions = [
        {"commitInfo": {"timestamp": now, "operation": "DELETE", "operationParameters": {}}},
        {"remove": {"path": added["path"], "deletionTimestamp": now, "dataChange": True}},
        {"add": {**added, "deletionVector": vector}},
    ]
    (log / f"{1:020}.json").write_text("\n".join(map(json.dumps, actions)))
    pack(path, tmp_path / "slab")
    assert read_numbers(tmp_path / "slab") == KEPT
    pack(path, tmp_path / "some", rows="3:50")
    assert read_numbers(tmp_path / "some") == KEPT[3:50]
    pack(f"{path}@0", tmp_path / "all")
    assert read_numbers(tmp_path / "all") == list(range(60))
    url = upload(path, bucket)
    pack(url, tmp_path / "remote", storage_options=bucket.options)
    assert read_numbers(tmp_path / "remote") == KEPT
    pack(f"{url}@0", tmp_path / "first", storage_options=bucket.options)
    assert read_numbers(tmp_path / "first") == list(range(60))


def test_deleted_rows_of_an_unknown_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where deltalake names the file of deleted rows otherwise, nothing is packed with them."""
    path = tmp_path / "t"
    write_deltalake(path, TABLE)
    vectors = pa.table({"filepath": [str(path / "x.parquet")], "selection_vector": [[True, False]]})
    monkeypatch.setattr(DeltaTable, "deletion_vectors", lambda _table: vectors)
    with pytest.raises(SourceInconsistent, match=r"x\.parquet: the table lists deleted rows"):
        pack(path, tmp_path / "slab")


def test_delta_partitions_and_new_columns(tmp_path: Path, bucket: Bucket) -> None:
    """Partitions have the types of the schema; a column that older files lack is null there."""
    path = tmp_path / "t"
    days = TABLE.append_column("day", pa.array(["a b/ü%", None] * 30))
    days = days.append_column("k", pa.array([1, 2, None] * 20, pa.int32()))
    write_deltalake(path, days, partition_by=["day", "k"])
    more = days.append_column("new", pa.array(range(60), pa.float64()))
    write_deltalake(path, more, mode="append", schema_mode="merge")
    pack(path, tmp_path / "slab", nulls={"*": "mask"})
    back = Readback(tmp_path / "slab")
    rows = zip(*(back.column(name) for name in ("n", "day", "k", "new")), strict=True)
    expected = [tuple(row.values()) for row in days.select(["n", "day", "k"]).to_pylist()]
    both = [(*row, None) for row in expected] + [(*row, float(row[0])) for row in expected]
    assert sorted(map(repr, map(_unpack, rows))) == sorted(map(repr, both))
    options: Any = {"storage_options": bucket.options, "nulls": {"*": "mask"}}
    pack(upload(path, bucket), tmp_path / "remote", **options)
    assert content(tmp_path / "remote") == content(tmp_path / "slab")


def test_delta_times_of_spark(tmp_path: Path) -> None:
    """INT96, as Spark writes times, keeps those outside of 1677 to 2262."""
    path = tmp_path / "t"
    times = pa.table({"t": pa.array([-(2**55), 0, 2**55], pa.timestamp("us", "UTC"))})
    write_deltalake(path, times)
    pq.write_table(times, next(path.glob("*.parquet")), use_deprecated_int96_timestamps=True)
    pack(path, tmp_path / "slab")
    assert Readback(tmp_path / "slab").values("t").tolist() == [-(2**55), 0, 2**55]


def _unpack(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.item() if hasattr(value, "item") else value for value in row)


def test_delta_column_mapping_is_refused(tmp_path: Path) -> None:
    """Columns whose names are mapped are refused, with what packs them from Python."""
    path = tmp_path / "t"
    write_deltalake(path, TABLE)
    log = path / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for action in lines:
        if "metaData" in action:
            action["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}
    log.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises((SourceUnsupported, SourceUnreadable)):
        pack(path, tmp_path / "slab")
