"""Sources in buckets and on web servers: the same slab, few bytes, and named errors."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tests.naming import case
from tests.packer.packing import content
from tests.servers.s3 import SECRET, Bucket
from tests.servers.web import WebServer

from fieldslab.packer import pack
from fieldslab.packer.check.verify import verify
from fieldslab.packer.options import parse_options
from fieldslab.packer.pack_options import PackOptions
from fieldslab.packer.pack_source import pack_plan
from fieldslab.packer.parts.packing import finish_parts, pack_part
from fieldslab.packer.parts.part_number import PartNumber
from fieldslab.packer.parts.plan_file import write_plan_file
from fieldslab.packer.plan import make_plan
from fieldslab.packer.source import find_source
from fieldslab.schemas.errors import (
    AccessDenied,
    FieldslabError,
    RemoteUnreadable,
    SourceChanged,
    SourceNotFound,
    SourceUnreadable,
    SourceUnsupported,
    UsageError,
)
from fieldslab.schemas.stores.store import open_store

Serve = Callable[..., WebServer]
NO_RETRIES = {"retry_config": {"max_retries": 0}}
ROWS, GROUP = 60_000, 20_000
FILES = ("raw/day=1/a.parquet", "raw/day=1/b.parquet", "raw/day=2/a.parquet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of three row groups each, in two partitions, and others that are passed over."""
    folder = tmp_path_factory.mktemp("local")
    rng = np.random.default_rng(0)
    for name in FILES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        texts = [f"text {number}" for number in rng.integers(0, 999, ROWS)]
        table = pa.table({"x": rng.random(ROWS), "s": texts, "y": rng.random(ROWS)})
        pq.write_table(table, path, row_group_size=GROUP)
    for name in ("raw/_SUCCESS", "raw/.a.parquet", "raw/_old/a.parquet", "raw/day=1/notes.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"no Parquet")
    return folder


def draw(gray: int) -> bytes:
    """A small PNG of one gray."""
    file = io.BytesIO()
    Image.new("L", (8, 8), gray).save(file, "PNG")
    return file.getvalue()


def upload(folder: Path, bucket: Bucket) -> None:
    """Put all files of a folder into a bucket."""
    store = open_store(bucket.url, bucket.options)
    for path in folder.rglob("*"):
        if path.is_file():
            store.write(path.relative_to(folder).as_posix(), path)


def test_a_bucket_gives_the_slab_of_a_disk(tmp_path: Path, folder: Path, bucket: Bucket) -> None:
    """Folders, globs and lists of URLs are the files that they are on a disk, in the same order."""
    upload(folder, bucket)
    for number, patterns in enumerate(
        (
            ["raw"],
            ["raw/"],
            ["raw/day=*/?.parquet"],
            ["raw/**/day=*/*.parquet"],
            [FILES[2], FILES[0]],
            ["raw/day=1", "raw/day=2/*"],
        )
    ):
        with case(patterns):
            local, remote = tmp_path / f"local-{number}", tmp_path / f"remote-{number}"
            pack([str(folder / name) for name in patterns], local, shard_size=10**6)
            urls = [f"{bucket.url}/{name}" for name in patterns]
            pack(urls, remote, shard_size=10**6, storage_options=bucket.options)
            assert content(local) == content(remote)


def test_processes_and_parts(
    cli: Any, tmp_path: Path, folder: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials do not leave the process: workers and parts take them from the environment."""
    upload(folder, bucket)
    url, size = f"{bucket.url}/raw", 10**6
    expected = pack(str(folder / "raw"), tmp_path / "local", shard_size=size).manifest.id
    options = bucket.options
    assert verify(tmp_path / "local", against=url, storage_options=options).ok
    with pytest.raises(UsageError, match="do not leave this process"):
        pack(url, tmp_path / "slab", shard_size=size, jobs=2, storage_options=options)
    for name in ("access_key_id", "secret_access_key"):
        monkeypatch.setenv(f"AWS_{name.upper()}", options[name])
    harmless = {name: options[name] for name in ("endpoint", "region")}
    out, plan = tmp_path / "slab", tmp_path / "x.plan"
    packed = pack(url, out, shard_size=size, jobs=2, storage_options=harmless)
    assert packed.manifest.id == expected
    pairs = [f"--storage-option={name}={value}" for name, value in harmless.items()]
    for arguments in (
        [url, "-o", tmp_path / "parts", "--shard-size", size, "--plan", plan],
        ["--plan", plan, "--dry-run"],
        ["--plan", plan, "--part", "1/1"],
    ):
        assert cli("pack", *arguments, *pairs).code == 0
    assert expected in cli("finish", plan, "--json", *pairs).out
    for path in (out / "manifest.json", plan):
        assert SECRET.encode() not in path.read_bytes()


def test_a_replaced_object(tmp_path: Path, folder: Path, serve: Serve) -> None:
    """An object that is replaced after the plan was made is named by a pack, part, and `finish`."""
    web = serve(folder)
    url = f"{web.url}/{FILES[0]}"
    source = find_source(url)
    out, path = tmp_path / "slab", tmp_path / "x.plan"
    write_plan_file([url], tmp_path / "parts", path, PackOptions())
    pack_part(path, PartNumber(1, 1))
    web.replaced[FILES[0]] = (folder / FILES[1]).read_bytes()
    calls: dict[str, Callable[[], Any]] = {
        "pack": lambda: pack_plan(make_plan(source, parse_options()), out),
        "part": lambda: pack_part(path, PartNumber(1, 1)),
        "finish": lambda: finish_parts(path),
    }
    for name, call in calls.items():
        with case(name), pytest.raises(SourceChanged) as caught:
            call()
        assert caught.value.context["file"] == url
    web.replaced[FILES[0]] = b"no Parquet any more"
    with pytest.raises(SourceChanged, match="changed since the plan was made"):
        finish_parts(path)
    assert not out.exists()


def test_few_bytes_are_fetched(tmp_path: Path, folder: Path, serve: Serve) -> None:
    """A plan reads footers alone, once; one column of several is fetched by itself, once."""
    web = serve(folder)
    urls = [f"{web.url}/{name}" for name in FILES]
    plan = make_plan(find_source(urls), parse_options(fields=["y"]))
    assert web.count_bytes() <= len(FILES) * 2**16 + 3 * 10**6  # samples of three row groups
    web.requests.clear()
    pack_plan(plan, tmp_path / "slab")
    assert web.count() == len(FILES) * ROWS // GROUP
    footers = [pq.read_metadata(folder / name) for name in FILES]
    chunks = [footer.row_group(group).column(2) for footer in footers for group in range(3)]
    assert web.count_bytes() == sum(chunk.total_compressed_size for chunk in chunks)


def test_a_failing_server(tmp_path: Path, folder: Path, serve: Serve) -> None:
    """What fails for a while is asked for again; what goes on failing is an error with the URL."""
    web = serve(folder)
    url = f"{web.url}/{FILES[0]}"
    quick = {"retry_config": {"max_retries": 3, "backoff": {"init_backoff": 0.01}}}
    expected = pack(str(folder / FILES[0]), tmp_path / "local").manifest.id
    for fault in ("cut", "drop", "short", "status"):
        with case(fault):
            settings: dict[str, Any] = {"code": 503} if fault == "status" else {}
            web.inject(fault, after=1, times=2, **settings)
            packed = pack(url, tmp_path / fault, storage_options=quick)
            assert packed.manifest.id == expected
            web.heal()
    cases: list[tuple[str, type[FieldslabError], int | None]] = [
        ("status", RemoteUnreadable, 503),
        ("cut", RemoteUnreadable, None),
        ("expired", AccessDenied, 403),
    ]
    for fault, error, status in cases:
        with case(fault):
            settings = {"code": status} if fault == "status" else {}
            web.inject(fault, after=1, times=1000, **settings)
            with pytest.raises(error) as caught:
                pack(url, tmp_path / "slab", storage_options=NO_RETRIES)
            assert (caught.value.context["file"], caught.value.context.get("status")) == (
                url,
                status,
            )
            assert not (tmp_path / "slab").exists()
            web.heal()


def test_damage(tmp_path: Path, folder: Path, serve: Serve) -> None:
    """A damaged page of an object is the error that it is on a disk, by its URL."""
    web = serve(folder)
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"x": np.arange(10**5)}), path, write_page_checksum=True, compression="none"
    )
    web.replaced["a.parquet"] = path.read_bytes()[:1000] + b"\1" + path.read_bytes()[1001:]
    with pytest.raises(SourceUnreadable, match="damaged or unreadable Parquet") as caught:
        pack(f"{web.url}/a.parquet", tmp_path / "slab")
    assert caught.value.context["file"] == f"{web.url}/a.parquet row group 0"


def test_what_is_refused(tmp_path: Path, folder: Path, serve: Serve, bucket: Bucket) -> None:
    """What no store can be asked for is refused, with what to do instead."""
    web = serve(folder)
    upload(folder / "raw" / "day=1", bucket)
    cases: list[tuple[str, type[FieldslabError], str]] = [
        (f"{web.url}/*.parquet", UsageError, "Give the URL of each file"),
        (f"{web.url}/raw/", UsageError, "Give the URL of each file"),
        (f"{web.url}/a.parquet?X-Amz-Signature=abc", UsageError, "downloaded first"),
        ("https://me:secret@host/a.parquet", UsageError, "in the environment"),
        (f"{web.url}/none.parquet", SourceNotFound, "no such object"),
        (f"{bucket.url}/none.parquet", SourceNotFound, "no such object"),
        (f"{bucket.url}/none-*.parquet", SourceNotFound, "no object matches"),
        (f"{bucket.url}/notes.txt", SourceNotFound, "nothing at this URL"),
        (f"{bucket.url}/a.h5", SourceUnsupported, f"aws s3 cp {bucket.url}/a.h5 ."),
    ]
    for url, error, words in cases:
        options = bucket.options if url.startswith("s3") else None
        with case(url), pytest.raises(error, match=words) as caught:
            pack(url, tmp_path / "slab", storage_options=options)
        assert "secret" not in str(caught.value)
        assert "abc" not in str(caught.value)


def test_options_of_stores_are_for_urls(cli: Any, tmp_path: Path, folder: Path) -> None:
    """Where neither source nor output is a URL, options of stores are refused, not passed over."""
    with pytest.raises(UsageError, match="neither the source nor the output"):
        pack(folder / FILES[0], tmp_path / "slab", storage_options={"region": "x"})
    for more in ([], ["--plan", tmp_path / "x.plan"]):
        arguments = [folder / FILES[0], "-o", tmp_path / "slab", "--storage-option=region=x"]
        assert "neither the source nor the output" in cli("pack", *arguments, *more).err


def test_images(tmp_path: Path, bucket: Bucket) -> None:
    """A folder of images in a bucket gives the slab of that on a disk; a replaced one is named."""
    raw = tmp_path / "raw"
    for number in range(20):
        path = raw / ("cats" if number % 2 else "dogs") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(draw(number))
    (raw / "cats" / ".hidden.png").write_bytes(b"")
    (raw / "notes.txt").write_bytes(b"")
    upload(raw, bucket)
    for number, patterns in enumerate((["."], ["cats"], ["*/1*"], ["cats/1.png", "dogs/2.png"])):
        with case(patterns):
            local, remote = tmp_path / f"local-{number}", tmp_path / f"remote-{number}"
            pack([str(raw / name) for name in patterns], local)
            urls = [f"{bucket.url}/{name}".removesuffix("/.") for name in patterns]
            pack(urls, remote, storage_options=bucket.options)
            assert content(local) == content(remote)
    source = find_source(bucket.url, storage_options=bucket.options)
    open_store(bucket.url, bucket.options).write("dogs/2.png", draw(99))
    with pytest.raises(SourceChanged) as caught:
        pack_plan(make_plan(source, parse_options()), tmp_path / "slab")
    assert caught.value.context["file"] == f"{bucket.url}/dogs/2.png"
    with pytest.raises(UsageError, match="in one store"):
        pack([f"{bucket.url}/dogs", str(raw)], tmp_path / "slab", from_="images")
