"""Folders that are tables of Delta, Iceberg, Lance or Hudi are not packed as plain files."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.naming import case
from tests.packer.readback import Readback
from tests.servers.s3 import Bucket

from fieldslab.packer import pack
from fieldslab.schemas.errors import SourceUnsupported
from fieldslab.schemas.stores.store import open_store

TABLE = pa.table({"n": list(range(60)), "day": [row % 2 for row in range(60)]})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A Delta table in partitions, of which a row was deleted, with its old files beside."""
    folder = tmp_path / "all" / "table"
    write_deltalake(folder, TABLE, partition_by=["day"])
    DeltaTable(folder).delete("n = 7")
    return folder


def test_files_of_a_table_are_refused(tmp_path: Path, table: Path) -> None:
    """Whichever way its files are meant, the table is named; on request they are packed."""
    other = tmp_path / "other.parquet"
    pq.write_table(TABLE, other)
    (tmp_path / "link").symlink_to(table / "day=1")
    for source in (
        table / "day=1",
        f"{table}/*/*.parquet",
        f"{tmp_path}/**/*.parquet",
        next(table.glob("day=0/*.parquet")),
        tmp_path / "all",
        tmp_path / "link",
        [other, table / "day=0"],
    ):
        with case(source), pytest.raises(SourceUnsupported, match="is a Delta table") as caught:
            pack(source, tmp_path / "slab")
        assert caught.value.context["file"] == str(table)
        assert 'from_="parquet"' in str(caught.value)
    pack(table / "day=1", tmp_path / "slab", from_="parquet", fields="n")
    assert 7 in Readback(tmp_path / "slab").values("n")


def test_marks_of_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind is known by its log, and a folder that is merely called like one is not."""
    data = tmp_path / "x" / "data"
    data.mkdir(parents=True)
    pq.write_table(TABLE, data / "a.parquet")
    for mark, kind in (
        ("metadata/00001-a.metadata.json", "Iceberg"),
        ("metadata/v3.gz.metadata.json", "Iceberg"),
        ("_versions/1.manifest", "Lance"),
        (".hoodie/hoodie.properties", "Hudi"),
        ("_delta_log/00000000000000000001.checkpoint.parquet", "Delta"),
    ):
        path = tmp_path / "x" / mark
        path.parent.mkdir(exist_ok=True)
        pack(data, tmp_path / "slab", force=True)
        path.touch()
        with case(mark), pytest.raises(SourceUnsupported, match=f"is a {kind} table"):
            pack(data, tmp_path / "other")
        path.unlink()
    (tmp_path / "x" / "_delta_log" / "0.json").touch()
    monkeypatch.chdir(data)
    with pytest.raises(SourceUnsupported, match="is a Delta table"):
        pack("a.parquet", tmp_path / "other")


def test_a_table_in_a_bucket(tmp_path: Path, table: Path, bucket: Bucket) -> None:
    """The log is found above and below a URL, too, and the error names the folder."""
    options = bucket.options
    store = open_store(bucket.url, options)
    for path in (file for file in table.rglob("*") if file.is_file()):
        store.write(f"lake/{os.path.relpath(path, table.parent)}", path.read_bytes())
    for key in ("lake", "lake/table/day=1/", "lake/*/*/*.parquet"):
        with case(key), pytest.raises(SourceUnsupported, match="is a Delta table") as caught:
            pack(f"{bucket.url}/{key}", tmp_path / "slab", storage_options=options)
        assert str(caught.value.context["file"]).endswith("lake/table")
    lake = f"{bucket.url}/lake"
    packed = pack(f"{lake}/table", tmp_path / "table", storage_options=options)
    assert packed.manifest.id == pack(table, tmp_path / "local").manifest.id
    pack(lake, tmp_path / "slab", from_="parquet", fields="n", storage_options=options)
    assert 7 in Readback(tmp_path / "slab").values("n")
