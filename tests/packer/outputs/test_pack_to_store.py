"""Slabs that are packed to a bucket."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from tests.naming import case
from tests.packer.packing import listing, pack_shards
from tests.servers.s3 import Bucket

from fieldslab.packer.pack_options import PackOptions
from fieldslab.packer.parts.packing import finish_parts, pack_part
from fieldslab.packer.parts.part_number import parse_part
from fieldslab.packer.parts.plan_file import write_plan_file
from fieldslab.schemas.errors import PartsMissing
from fieldslab.schemas.manifest import MANIFEST, decode_manifest
from fieldslab.schemas.stores.store import open_store


@pytest.fixture
def url(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> str:
    """A URL in a bucket; the environment has what it takes."""
    for name, value in bucket.options.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    return f"{bucket.url}/folder/x.slab"


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """An empty directory for scratch folders."""
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def list_bucket(bucket: Bucket) -> list[str]:
    """All keys of a bucket."""
    return sorted(info.key for info in open_store(bucket.url, bucket.options).list_keys())


def read_slab(place: str | Path) -> dict[str, Any]:
    """Everything in a slab that two packs of the same source share."""
    store = open_store(place)
    files: dict[str, Any] = {info.key: bytes(store.read(info.key)) for info in store.list_keys()}
    return files | {MANIFEST: decode_manifest(files[MANIFEST], MANIFEST).id}


def test_the_slab_is_that_of_a_directory(
    source: Path, url: str, bucket: Bucket, scratch: Path, tmp_path: Path
) -> None:
    """Packed here, in processes or in parts, a slab has the bytes of one in a directory."""
    local = pack_shards(source, tmp_path / "local.slab")
    expected = read_slab(local.path)
    for place, options in ((f"{url}-1", {}), (f"{url}-2", {"jobs": 2})):
        with case(options):
            packed = pack_shards(source, place, scratch=scratch, **options)
            assert read_slab(place) == expected
            assert (packed.bytes, str(packed.path)) == (local.bytes, place)
    plan = tmp_path / "x.plan"
    write_plan_file([source], url, plan, cast(PackOptions, {"shard_size": 1000}))
    pack_part(plan, parse_part("2/2"), scratch=scratch)
    with pytest.raises(PartsMissing, match="1/2"):
        finish_parts(plan)
    pack_part(plan, parse_part("1/2"), scratch=scratch)
    with ThreadPoolExecutor(2) as threads:
        ids = {result.manifest.id for result in threads.map(finish_parts, [plan, plan])}
    assert ids == {local.manifest.id}
    assert read_slab(url) == expected
    assert pack_part(plan, parse_part("1/2")).published
    assert {key.split("/")[1] for key in list_bucket(bucket)} == {
        "x.slab",
        "x.slab-1",
        "x.slab-2",
    }
    assert listing(scratch) == bucket.list_uploads() == []
