"""Tables of Iceberg: files of deletes, metadata files, and tables without a snapshot."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.typedef import Record
from tests.naming import case
from tests.packer.readback import Readback
from tests.packer.sources.every_source import write_iceberg

from fieldslab.packer import pack, verify
from fieldslab.packer.pack_options import PackOptions
from fieldslab.packer.parts.packing import finish_parts, pack_part
from fieldslab.packer.parts.part_number import PartNumber
from fieldslab.packer.parts.plan_file import write_plan_file
from fieldslab.schemas.errors import SourceUnreadable, SourceUnsupported

TABLE = pa.table({"n": list(range(60)), "s": [f"row {n}" for n in range(60)]})
KEPT = [n for n in range(60) if n not in (3, 7, 59)]


class _DeleteWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        """Delete files."""
        return ManifestContent.DELETES


def commit_deletes(
    table: Any, folder: Path, deletes: pa.Table, kind: DataFileContent, **of_file: Any
) -> Path:
    """Write a file of deletes into a table, and a snapshot with it: the new metadata file."""
    io, before = PyArrowFileIO({}), table.current_snapshot()
    file = folder / "data" / "deletes.parquet"
    pq.write_table(deletes, file)
    data = DataFile.from_args(
        content=kind,
        file_path=f"file://{file}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=deletes.num_rows,
        file_size_in_bytes=file.stat().st_size,
        lower_bounds={},
        upper_bounds={},
        **of_file,
    )
    number, snapshot_id = table.metadata.last_sequence_number + 1, 4711
    output = io.new_output(f"file://{folder}/metadata/deletes-m0.avro")
    spec = UNPARTITIONED_PARTITION_SPEC
    with _DeleteWriter(spec, table.schema(), output, snapshot_id, "null") as writer:
        writer.add_entry(
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=snapshot_id,
                sequence_number=number,
                data_file=data,
            )
        )
    manifests = [*before.manifests(io), writer.to_manifest_file()]
    place = f"file://{folder}/metadata/snap-deletes.avro"
    with write_manifest_list(
        2, io.new_output(place), snapshot_id, before.snapshot_id, number, "null"
    ) as listed:
        listed.add_manifests(manifests)
    values: dict[str, Any] = {
        "snapshot_id": snapshot_id,
        "parent_snapshot_id": before.snapshot_id,
        "sequence_number": number,
        "timestamp_ms": before.timestamp_ms + 1,
        "manifest_list": place,
        "summary": Summary(Operation.DELETE),
        "schema_id": before.schema_id,
    }
    metadata = table.metadata.model_copy(
        update={
            "snapshots": [*table.metadata.snapshots, Snapshot(**values)],
            "current_snapshot_id": snapshot_id,
            "last_sequence_number": number,
            "properties": {"py-io-impl": "antigravity.None"},  # nothing it names is imported
        }
    )
    path = folder / "metadata" / "00009-x.metadata.json"
    ToOutputFile.table_metadata(metadata, io.new_output(str(path)), overwrite=True)
    return path


def test_position_deletes(tmp_path: Path) -> None:
    """Rows that a file of position deletes lists are left out."""
    table, folder = write_iceberg(tmp_path, [TABLE, TABLE]), tmp_path / "ns" / "t"
    file = next(iter(table.scan().plan_files())).file.file_path
    deletes = pa.table({"file_path": [file] * 3, "pos": [3, 7, 59]})
    path = commit_deletes(table, folder, deletes, DataFileContent.POSITION_DELETES)
    for source in (path, folder):
        with case(source):
            pack(source, tmp_path / "slab", force=True)
            numbers = Readback(tmp_path / "slab").values("n").tolist()
            assert sorted(numbers) == sorted([*KEPT, *range(60)])


def test_equality_deletes_are_refused(tmp_path: Path) -> None:
    """A table with deletes by value is refused by name: its deleted rows are never packed."""
    table, folder = write_iceberg(tmp_path, [TABLE]), tmp_path / "ns" / "t"
    version = table.current_snapshot().snapshot_id
    field = pa.field("n", pa.int64(), metadata={"PARQUET:field_id": "1"})
    deletes = pa.table({"n": [3, 7, 59]}, pa.schema([field]))
    kind = DataFileContent.EQUALITY_DELETES
    commit_deletes(table, folder, deletes, kind, equality_ids=[1])
    with pytest.raises(SourceUnsupported, match="equality deletes") as caught:
        pack(folder, tmp_path / "slab")
    assert str(caught.value.context["found"]).endswith("data/deletes.parquet")
    assert "rewrite_data_files" in str(caught.value)
    pack(f"{folder}@{version}", tmp_path / "before")
    assert Readback(tmp_path / "before").rows == 60


def test_a_table_without_a_snapshot(tmp_path: Path) -> None:
    """It is packed as version 0, which has no rows, whatever is written to the table later."""
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("ns")
    table, folder = catalog.create_table("ns.t", TABLE.schema), tmp_path / "ns" / "t"
    pack(folder, tmp_path / "slab")
    made = Readback(tmp_path / "slab").manifest["made"]
    assert made["options"]["settings"] == {"table_version": 0}
    write_plan_file([folder], tmp_path / "parts", tmp_path / "x.plan", PackOptions())
    table.append(TABLE)
    pack_part(tmp_path / "x.plan", PartNumber(1, 1))
    finish_parts(tmp_path / "x.plan")
    assert Readback(tmp_path / "parts").rows == 0
    assert verify(tmp_path / "slab", against=folder).ok  # with the version that it has
    pack(f"{folder}@0", tmp_path / "old")
    assert Readback(tmp_path / "old").rows == 0
    pack(folder, tmp_path / "new")
    assert Readback(tmp_path / "new").rows == 60


def test_which_metadata_is_the_newest(tmp_path: Path) -> None:
    """A hint names it, or else the highest number; two of one number are refused."""
    write_iceberg(tmp_path, [TABLE, TABLE])
    folder = tmp_path / "ns" / "t"
    newest = max((folder / "metadata").glob("*.metadata.json"))
    (folder / "metadata" / f"{newest.name[:5]}-other.metadata.json").write_text("{}")
    with pytest.raises(SourceUnreadable, match="several metadata files may be the newest"):
        pack(folder, tmp_path / "slab")
    (folder / "metadata" / "version-hint.text").write_text(newest.name)
    pack(folder, tmp_path / "slab")
    assert Readback(tmp_path / "slab").rows == 120
