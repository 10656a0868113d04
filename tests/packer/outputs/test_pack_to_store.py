"""Slabs that are packed to a bucket."""

import errno
import os
import pickle
import shutil
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.naming import case
from tests.packer.commandline import ENVIRONMENT, start
from tests.packer.packing import batches, listing, pack_shards, table
from tests.servers.s3 import SECRET, Bucket
from tests.servers.web import WebServer
from tests.slabs import write_slab

from fieldslab.packer import copy_slab, repack
from fieldslab.packer.outputs import store_output, uploads
from fieldslab.packer.outputs.ownership import MARKER
from fieldslab.packer.outputs.store_attempts import BackgroundUploads, StoreAttempts
from fieldslab.packer.pack_options import PackOptions
from fieldslab.packer.parts.packing import finish_parts, pack_part
from fieldslab.packer.parts.part_number import parse_part
from fieldslab.packer.parts.plan_file import write_plan_file
from fieldslab.packer.write.space import ShardBytes
from fieldslab.packer.write.writers import ShardRecord
from fieldslab.schemas.errors import (
    AccessDenied,
    FieldslabError,
    NoSpace,
    OutputDenied,
    OutputError,
    OutputExists,
    PartsMissing,
    SourceInconsistent,
    UsageError,
)
from fieldslab.schemas.manifest import MANIFEST, decode_manifest
from fieldslab.schemas.stores import remote
from fieldslab.schemas.stores.store import open_store
from fieldslab.schemas.stores.store_place import StorePlace

RETRIES = {"retry_config": {"max_retries": 2, "backoff": {"init_backoff": 0.01}}}
ROWS = 200
ARRAY = "shard-00001/00-x.values.npy"
FIRST_ARRAY = ARRAY.replace("00001", "00000")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A Parquet file that becomes two shards."""
    pq.write_table(table().slice(0, ROWS), tmp_path / "rows.parquet", row_group_size=ROWS // 2)
    return tmp_path / "rows.parquet"


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


@pytest.fixture
def proxy(bucket: Bucket, serve: Callable[..., WebServer]) -> WebServer:
    """A server in front of that of the bucket."""
    return serve(upstream=bucket.endpoint)


def make_options(bucket: Bucket, proxy: WebServer) -> dict[str, Any]:
    """Storage options that lead through a proxy."""
    return {**bucket.options, **RETRIES, "endpoint": proxy.url}


def test_the_slab_is_that_of_a_directory(
    source: Path, url: str, bucket: Bucket, scratch: Path, tmp_path: Path
) -> None:
    """Packed here, in processes or in parts, a slab has the bytes of one in a directory."""
    local = pack_shards(source, tmp_path / "local.slab")
    expected = read_slab(local.path)
    for place, options in ((f"{url}-1", {}), (f"{url}-2", {"engine": "processes", "jobs": 1})):
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
    assert repack(local.path, f"{url}-3", scratch=scratch).manifest.id == local.manifest.id
    assert read_slab(f"{url}-3") == expected
    assert {key.split("/")[1] for key in list_bucket(bucket)} == {
        "x.slab",
        "x.slab-1",
        "x.slab-2",
        "x.slab-3",
    }
    assert listing(scratch) == bucket.list_uploads() == []


def test_finish_reads_each_record_once(
    source: Path, url: str, bucket: Bucket, proxy: WebServer, tmp_path: Path
) -> None:
    """The record of each shard is read once."""
    plan = tmp_path / "x.plan"
    write_plan_file([source], url, plan, cast(PackOptions, {"shard_size": 1000}))
    pack_part(plan, parse_part("1/1"))
    records = [key for key in list_bucket(bucket) if "/records/" in key]
    assert len(records) == 2
    options = make_options(bucket, proxy)
    finish_parts(plan, storage_options=options)
    assert [proxy.count(f"{bucket.name}/{key}") for key in records] == [1, 1]


def test_a_shard_is_packed_while_another_is_uploaded(url: str, scratch: Path) -> None:
    """In one process, an attempt ends before its upload; what is cancelled leaves no scratch."""

    def write(folder: Path) -> ShardRecord:
        (folder / "a.npy").write_bytes(b"content")
        return ShardRecord(0, 1, [], [], "", {}, 7, folder.name, {})

    place, background = StorePlace(url), BackgroundUploads()
    attempts = StoreAttempts(
        place, place.join(".partial"), scratch, ShardBytes(0, None), uploads=background
    )
    for name in ("shard-00000", "shard-00001"):
        assert attempts.write(name, write).objects == {}
    background.wait()
    assert [list(record.objects) for record in background.pop_finished()] == [["a.npy"]] * 2
    assert bytes(place.store.read("shard-00001/a.npy")) == b"content"
    attempts.write("shard-00002", write)
    background.close()
    assert listing(scratch) == []


def test_uploads_are_verified(
    bucket: Bucket, url: str, proxy: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is cut, changed or refused on its way is sent again; what always is, is an error."""
    for module in (remote, uploads):
        monkeypatch.setattr(module, "PART", 5 << 20)  # the smallest that S3 takes
    folder, key = tmp_path / "folder", url.removeprefix("s3://") + "/shard-00000/large.npy"
    folder.mkdir()
    content = np.random.default_rng(0).bytes((5 << 20) + 1000)
    (folder / "large.npy").write_bytes(content)
    (folder / "small.npy").write_bytes(b"small" * 100)
    store = open_store(url, make_options(bucket, proxy))
    faults: list[tuple[str, dict[str, Any]]] = [(kind, {}) for kind in ("garble", "clip", "drop")]
    faults += [("status", {"code": code}) for code in (503, 400)]  # 400: bytes were not right
    for kind, settings in faults:
        with case(kind, settings):
            for name in (key, key.replace("large", "small")):
                proxy.inject(kind, key=name, method="PUT", **settings)
            versions = uploads.upload_folder(store, "shard-00000", folder)
            assert bytes(store.read("shard-00000/large.npy")) == content
            assert bytes(store.read("shard-00000/small.npy")) == b"small" * 100
            assert versions.keys() == {"large.npy", "small.npy"}
    assert proxy.count(key) <= 2 + len(faults)  # ETags tell that it is right: it is not read back
    proxy.inject("garble", key=key, method="PUT", times=100)
    with pytest.raises(OutputError, match="does not keep the bytes"):
        uploads.upload_folder(store, "shard-00000", folder)
    assert bucket.list_uploads() == []


def test_a_store_whose_etags_are_no_checksums(
    bucket: Bucket, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects are read back and compared, as where a key of the user encrypts them."""
    (tmp_path / "a.npy").write_bytes(b"right")
    store = open_store(url)
    with monkeypatch.context() as patch:
        patch.setattr(uploads._PartDigests, "list_etags", lambda digests: [])
        uploads.upload_folder(store, "x", tmp_path)
        patch.setattr(type(store), "write", lambda *args, **options: None)
        (tmp_path / "a.npy").write_bytes(b"wrong")
        with pytest.raises(OutputError, match="does not keep the bytes"):
            uploads.upload_folder(store, "x", tmp_path)


def test_a_killed_pack_goes_on(
    source: Path, url: str, bucket: Bucket, proxy: WebServer, scratch: Path, tmp_path: Path
) -> None:
    """Killed while it uploads, a pack leaves no slab; a rerun takes over its finished shards."""
    key = url.removeprefix(f"{bucket.url}/")
    proxy.inject("hang", key=f"{bucket.name}/{key}/{ARRAY}", method="PUT", times=100)
    arguments = ["pack", source, "-o", url, "--shard-size", "1000", "--scratch", scratch]
    environment = ENVIRONMENT | os.environ
    packer = start(*arguments, env=environment | {"AWS_ENDPOINT": proxy.url})
    while not any(request.key.endswith(ARRAY) for request in proxy.requests):
        assert packer.poll() is None
        time.sleep(0.05)
    packer.send_signal(signal.SIGKILL)
    packer.communicate()
    assert len(listing(scratch)) == 1
    keys = list_bucket(bucket)
    assert f"{key}/{MANIFEST}" not in keys
    assert f"{key}/{MARKER}" in keys
    stored = open_store(bucket.url)
    assert not any(SECRET.encode() in bytes(stored.read(key)) for key in keys)
    with pytest.raises(OutputExists, match="another slab is being copied or packed"):
        pack_shards(source, url, exclude="x")
    with pytest.raises(OutputExists, match="another slab is being copied or packed"):
        copy_slab(write_slab(tmp_path / "other.slab", {"x": np.arange(3)}), url)
    packed = pack_shards(source, url, scratch=scratch)
    assert packed.reused_shards == 1
    assert read_slab(url) == read_slab(pack_shards(source, tmp_path / "local.slab").path)
    assert listing(scratch) == []
    assert {key.split("/")[1] for key in list_bucket(bucket)} == {"x.slab"}


def test_killed_before_it_cleaned_up(
    source: Path, url: str, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rerun removes what a pack left that was killed after it had published its slab."""
    with monkeypatch.context() as patch:
        patch.setattr(store_output.StoreBuilder, "remove", lambda builder: None)
        pack_shards(source, url)
    expected = read_slab(url)
    assert any(".partial/" in key for key in list_bucket(bucket))
    with pytest.raises(OutputExists):
        pack_shards(source, url, exclude="x")
    assert pack_shards(source, url).reused_shards == 2
    del expected[MARKER]
    assert read_slab(url) == expected
    assert not any(".partial/" in key for key in list_bucket(bucket))
    with pytest.raises(OutputExists, match="not replaced"):
        pack_shards(source, url)


def test_another_slab_comes_first(source: Path, url: str, tmp_path: Path) -> None:
    """Who loses the race for the manifest is done if it is the same slab, and else refused."""
    builder = store_output.StoreBuilder

    def race(other: Path) -> Callable[..., None]:
        def publish(self: Any, manifest: Any) -> None:
            open_store(url).write(MANIFEST, (other / MANIFEST).read_bytes())
            before(self, manifest)

        return publish

    before = builder.publish
    same = pack_shards(source, tmp_path / "same.slab").path
    other = write_slab(tmp_path / "other.slab", {"x": np.arange(3)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builder, "publish", race(other))
        with pytest.raises(OutputExists):
            pack_shards(source, url)
        open_store(url).delete(MANIFEST)
        patch.setattr(builder, "publish", race(same))
        assert pack_shards(source, url).reused_shards == 2
    assert read_slab(url) == read_slab(same)


def test_objects_that_others_write(source: Path, url: str) -> None:
    """An object that is not as it was verified keeps the manifest back, and a rerun repairs it."""
    store, before = open_store(url), store_output.StoreBuilder.publish

    def publish(self: Any, manifest: Any) -> None:
        store.write(FIRST_ARRAY, b"of somebody else")
        before(self, manifest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_output.StoreBuilder, "publish", publish)
        with pytest.raises(OutputError, match="another program writes here"):
            pack_shards(source, url)
    assert pack_shards(source, url).reused_shards == 1


def test_failures_leave_nothing(source: Path, url: str, bucket: Bucket, scratch: Path) -> None:
    """Without a finished shard, and where a stream cannot be read again, nothing is kept."""
    with pytest.raises(SourceInconsistent):
        pack_shards(source, url, cast="s=f4", scratch=scratch)
    assert list_bucket(bucket) == []

    def interrupted() -> Any:
        yield from batches(table().slice(0, ROWS))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack_shards(interrupted(), url, scratch=scratch)
    assert list_bucket(bucket) == listing(scratch) == bucket.list_uploads() == []
    assert pack_shards(batches(table().slice(0, ROWS)), url).manifest.rows == ROWS


def test_what_is_refused(
    source: Path, url: str, bucket: Bucket, serve: Callable[..., WebServer], tmp_path: Path
) -> None:
    """Bad outputs are named errors, and nothing is written for them."""
    expired = serve(upstream=bucket.endpoint)
    expired.inject("expired", method="PUT", times=1000)
    unreadable = serve(upstream=bucket.endpoint)
    for method in ("GET", "HEAD"):
        unreadable.inject("expired", method=method, times=1000)
    cases: tuple[tuple[type[FieldslabError], str, str, dict[str, Any]], ...] = (
        (UsageError, url, "a store cannot replace a slab", {"force": True}),
        (UsageError, bucket.url, "not the URL of a folder", {}),
        (UsageError, f"{url}?X-Amz-Signature={SECRET}", "not the URL of a folder", {}),
        (UsageError, url, "temporary files beside the output", {"shuffle": 1}),
        (UsageError, str(tmp_path / "x.slab"), "for outputs at a URL", {"scratch": tmp_path}),
        (UsageError, url, "secret_access_key", {"storage_options": bucket.options, "jobs": 2}),
        (OutputDenied, url, "no directory", {"scratch": tmp_path / "nothing"}),
        (OutputDenied, "https://127.0.0.1:1/x.slab", "only be read", {}),
        (OutputError, "s3://no-such-bucket/x.slab", "no such bucket", {}),
        (OutputDenied, url, "denies access", {"storage_options": make_options(bucket, expired)}),
        (AccessDenied, url, "denies access", {"storage_options": make_options(bucket, unreadable)}),
    )
    for kind, place, message, options in cases:
        with case(message):
            with pytest.raises(kind, match=message) as caught:
                pack_shards(source, place, **options)
            assert SECRET not in str(caught.value) + repr(caught.value.__cause__)
    assert list_bucket(bucket) == []
    with pytest.raises(UsageError, match="secret_access_key") as refused:
        pickle.dumps(StorePlace(url, bucket.options))
    assert SECRET not in str(refused.value)
    assert SECRET not in repr(StorePlace(url, bucket.options))
    harmless = {"endpoint": bucket.endpoint, "AWS_REGION": "us-east-1", **RETRIES}
    assert pickle.loads(pickle.dumps(StorePlace(url, harmless))).storage_options == harmless


def test_a_store_without_conditional_writes(
    source: Path, url: str, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that replaces the marker, though told not to, is refused at once."""
    write = remote.RemoteStore.write

    def write_always(self: Any, key: str, data: Any, *, if_absent: bool = False) -> None:
        write(self, key, data)

    monkeypatch.setattr(remote.RemoteStore, "write", write_always)
    with pytest.raises(OutputError, match="no conditional writes"):
        pack_shards(source, url)
    assert list_bucket(bucket) == []


def test_scratch_that_is_too_small(
    source: Path, url: str, bucket: Bucket, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scratch space that is too small or unknown is told before, and names what is needed."""
    nearly_full = shutil.disk_usage(scratch)._replace(free=500)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: nearly_full)
    with pytest.raises(NoSpace, match=r"at least.*500 B free") as caught:
        pack_shards(source, url, fields="x", scratch=scratch)
    assert caught.value.context["file"] == scratch
    assert list_bucket(bucket) == []

    def fail(path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(shutil, "disk_usage", fail)
    with pytest.raises(OutputError, match="Input/output error"):
        pack_shards(source, url, fields="x", scratch=scratch)
    monkeypatch.undo()

    def fill(*args: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwrite", fill)
    with pytest.raises(NoSpace, match=rf"no space left.*of about .*B in {scratch} before"):
        pack_shards(source, url, fields="x", scratch=scratch, storage_options=bucket.options)
    assert list_bucket(bucket) == listing(scratch) == bucket.list_uploads() == []


def test_the_command(
    cli: Any, source: Path, url: str, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command says what it needs beforehand, and verifies the slab where it is."""
    options = ("--shard-size", "1000", "--scratch", scratch, "--verify")
    done = cli("pack", source, "-o", url, *options)
    assert done.code == 0, done.err
    assert "Each job packs a shard of about 1" in done.err
    assert f"kB in {scratch} before it is uploaded; --scratch names another directory" in done.err
    assert done.out.count(url) >= 1
    assert cli("pack", source, "-o", url, "--force").code == UsageError.exit_code
    again = cli("pack", source, "-o", url, "--json")
    assert (again.code, again.json["error"]) == (OutputExists.exit_code, "OutputExists")
