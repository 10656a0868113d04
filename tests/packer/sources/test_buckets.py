"""What every kind of source must do at the URL of a bucket: one battery, as `test_every_source`."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from tests.naming import case
from tests.packer.packing import content
from tests.packer.sources.every_source import CASES
from tests.servers.s3 import SECRET, Bucket
from tests.servers.web import WebServer

from fieldslab.packer import pack, verify
from fieldslab.packer.options import parse_options
from fieldslab.packer.pack_options import PackOptions
from fieldslab.packer.pack_source import pack_plan
from fieldslab.packer.parts.packing import finish_parts, pack_part
from fieldslab.packer.parts.part_number import PartNumber
from fieldslab.packer.parts.plan_file import write_plan_file
from fieldslab.packer.plan import make_plan
from fieldslab.packer.source import find_source
from fieldslab.schemas.errors import AccessDenied, RemoteUnreadable, SourceChanged
from fieldslab.schemas.stores.store import Store, open_store

KINDS = ("npy", "npz", "zarr 2", "zarr 3", "zarr zip", "delta", "lance")
METADATA = ("_delta_log/", "metadata/", "_versions/", "/.z", "zarr.json")
SHARD = 1000


class Uploaded:
    """A dataset on a disk and in a bucket.

    Attributes
    ----------
    path, url
        What is packed, there and here.
    store
        The bucket.
    options
        Options of `pack`, without credentials: they are in the environment.
    """

    def __init__(self, kind: str, folder: Path, bucket: Bucket) -> None:
        """Write the dataset, and upload its files."""
        self.path = str(CASES[kind].write(folder))
        self.url = self.path.replace(str(folder), bucket.url)
        self.store: Store = open_store(bucket.url, bucket.options)
        for path in folder.rglob("*"):
            if path.is_file():
                self.store.write(path.relative_to(folder).as_posix(), path)
        places = {name: bucket.options[name] for name in ("endpoint", "region")}
        self.options: Any = {**CASES[kind].options, "storage_options": places}

    def find(self) -> Any:
        """Find the source at the URL, as another process gets it."""
        source = find_source(self.url, storage_options=self.options["storage_options"])
        return pickle.loads(pickle.dumps(source))


@pytest.fixture(params=KINDS)
def uploaded(
    request: pytest.FixtureRequest, tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> Uploaded:
    """A dataset of each kind."""
    for name in ("access_key_id", "secret_access_key"):
        monkeypatch.setenv(f"AWS_{name.upper()}", bucket.options[name])
    folder = tmp_path / "raw"
    folder.mkdir()
    return Uploaded(request.param, folder, bucket)


def test_a_bucket_gives_the_slab_of_a_disk(tmp_path: Path, uploaded: Uploaded) -> None:
    """The slab is that of the files: whole, in other processes, in parts; `verify` finds it so."""
    expected = content(pack(uploaded.path, tmp_path / "expected", shard_size=SHARD).path)
    plan = make_plan(uploaded.find(), parse_options(shard_size=SHARD))
    assert content(pack_plan(plan, tmp_path / "slab").path) == expected
    storage = uploaded.options["storage_options"]
    assert verify(tmp_path / "slab", against=uploaded.url, storage_options=storage).ok
    options = cast(PackOptions, {**uploaded.options, "shard_size": SHARD})
    path = tmp_path / "x.plan"
    write_plan_file([uploaded.url], tmp_path / "parts", path, options)
    for number in (2, 1):
        pack_part(path, PartNumber(number, 2), storage_options=storage)
    finish_parts(path, storage_options=storage)
    assert content(tmp_path / "parts") == expected
    for file in (tmp_path / "slab" / "manifest.json", path):
        assert SECRET.encode() not in file.read_bytes()


def test_replaced_objects(tmp_path: Path, uploaded: Uploaded) -> None:
    """Objects that were replaced since the plan was made are named by a pack, and by a part."""
    plan, path = make_plan(uploaded.find(), parse_options()), tmp_path / "x.plan"
    options = cast(PackOptions, uploaded.options)
    write_plan_file([uploaded.url], tmp_path / "parts", path, options)
    for info in list(uploaded.store.list_keys()):
        if not any(name in info.key for name in METADATA):
            data = bytearray(uploaded.store.read(info.key))
            data[len(data) // 2] ^= 1
            uploaded.store.write(info.key, data)
    with pytest.raises(SourceChanged) as caught:
        pack_plan(pickle.loads(pickle.dumps(plan)), tmp_path / "slab")
    assert uploaded.store.url in str(caught.value)
    with pytest.raises(SourceChanged) as caught:
        pack_part(path, PartNumber(1, 1), storage_options=uploaded.options["storage_options"])
    assert uploaded.store.url in str(caught.value)
    assert not (tmp_path / "slab").exists()


def test_a_store_that_refuses(
    tmp_path: Path, uploaded: Uploaded, serve: Callable[..., WebServer]
) -> None:
    """A refusal and a failing network are errors of the store, not damage."""
    web = serve(upstream=uploaded.options["storage_options"]["endpoint"])
    places = {**uploaded.options["storage_options"], "endpoint": web.url}
    for fault, error in (("expired", AccessDenied), ("drop", RemoteUnreadable)):
        for after in (0, 2, 5):
            with case(fault, after):
                web.inject(fault, after=after, times=1000)
                options = {**places, "retry_config": {"max_retries": 0}}
                with pytest.raises(error) as caught:
                    pack(uploaded.url, tmp_path / "slab", storage_options=options)
                assert uploaded.store.url in str(caught.value)
                web.heal()
