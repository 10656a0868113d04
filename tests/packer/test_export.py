"""`fieldslab export`: a slab as a Parquet file."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.kinds import make_table

from fieldslab.packer import pack, parquet_export, repack
from fieldslab.packer.check.stored import StoredSlab
from fieldslab.packer.shard_rows import SHARDS_KEY
from fieldslab.reader import open_slab
from fieldslab.schemas import arrow_arrays
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.folder import load_manifest, open_slab_files

TABLE = make_table()
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def slab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A slab with fields of every kind."""
    path = tmp_path_factory.mktemp("slabs") / "x.slab"
    pack(TABLE, path, nulls="*=mask")
    return path


def test_a_file_packs_to_the_same_slab(slab: Path, tmp_path: Path, cli: Any) -> None:
    """Packed with the same options, the file gives a slab with the same id."""
    file = tmp_path / "x.parquet"
    assert cli("export", slab, "-o", file) == (0, f"{file}: {len(TABLE)} rows\n", "")
    assert list(tmp_path.iterdir()) == [file]
    pack(file, tmp_path / "again.slab", nulls="*=mask")
    assert load_manifest(tmp_path / "again.slab").id == load_manifest(slab).id


def test_shards_are_cut_again(tmp_path: Path) -> None:
    """A slab of many shards packs back to the same id, unless another size is asked for."""
    path, file, again = tmp_path / "a.slab", tmp_path / "a.parquet", tmp_path / "b.slab"
    pack(TABLE, path, nulls="*=mask", shard_size="4K")
    manifest = load_manifest(path)
    assert len(manifest.shards) > 2
    for source in (path, repack(path, tmp_path / "c.slab").path):
        with open_slab_files(source) as files:
            parquet_export.export_parquet(StoredSlab(files), file, manifest.fields, force=True)
        pack(file, again, nulls="*=mask", force=True)
        assert load_manifest(again).id == manifest.id
    pack(file, again, nulls="*=mask", shard_size="1M", force=True)
    assert len(load_manifest(again).shards) == 1
    pack(file, again, nulls="*=mask", rows=f"0:{len(TABLE) - 1}", force=True)
    assert len(load_manifest(again).shards) == 1
    schema = pq.read_schema(file)
    for lie in (b"[", b"{}", b'{"rows":[1]}', b'{"rows":[-1,%d]}' % (len(TABLE) + 1)):
        table = pq.read_table(file).replace_schema_metadata({**schema.metadata, SHARDS_KEY: lie})
        pq.write_table(table, tmp_path / "d.parquet")
        pack(tmp_path / "d.parquet", again, nulls="*=mask", force=True)
        assert load_manifest(again).rows == len(TABLE)


def test_images_pack_to_the_same_slab(tmp_path: Path, cli: Any) -> None:
    """Encoded images are written as they are; images that are stored as pixels are refused."""
    photos, file = ROOT / "examples" / "photos.parquet", tmp_path / "x.parquet"
    pack(photos, tmp_path / "a.slab", rows="0:5", nulls="*=mask")
    assert cli("export", tmp_path / "a.slab", "-o", file).code == 0
    pack(file, tmp_path / "b.slab", nulls="*=mask")
    assert load_manifest(tmp_path / "b.slab").id == load_manifest(tmp_path / "a.slab").id
    pack(photos, tmp_path / "c.slab", rows="0:2", image={"image": "rgb"}, fields="image")
    done = cli("export", tmp_path / "c.slab", "-o", file, "--force")
    assert done.code == UsageError.exit_code
    assert "--fields" in done.err


def test_rows_and_fields_are_chosen(
    slab: Path, tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chosen rows are written group by group; parts without any are not read."""
    rows = np.array([1, 2, 3, 40, 49])
    open_slab(slab).select(rows).save(tmp_path / "few.rows")
    monkeypatch.setattr(arrow_arrays, "_MOST_ROWS", 2)
    monkeypatch.setattr(parquet_export, "GROUP_BYTES", 1)
    file = tmp_path / "x.parquet"
    done = cli(
        "export", slab, "-o", file, "--fields", "te*,int8", "--rows-file", tmp_path / "few.rows"
    )
    assert done.code == 0
    assert pq.ParquetFile(file).num_row_groups == 4
    names = ["text", "text or null", "int8"]
    assert pq.read_table(file).equals(TABLE.take(pa.array(rows)).select(names))


def test_files_are_replaced_only_on_request(slab: Path, tmp_path: Path, cli: Any) -> None:
    """A file that is there stays, without `--force`; so it does after an error."""
    file = tmp_path / "x.parquet"
    file.write_text("mine")
    done = cli("export", slab, "-o", file)
    assert done.code != 0
    assert "--force" in done.err
    assert cli("export", tmp_path, "-o", file, "--force").code != 0
    assert file.read_text() == "mine"
    assert cli("export", slab, "-o", file, "--force", "--json").code == 0
    assert pq.read_table(file).num_rows == len(TABLE)
