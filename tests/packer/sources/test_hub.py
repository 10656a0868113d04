"""Datasets of the Hugging Face Hub, read by its own client from a server of the tests."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.jpegs import encode, photograph
from tests.naming import case
from tests.packer.packing import ROOT, content
from tests.servers.hub import HubServer, run_hub_server

from fieldslab.packer import copy_slab, pack
from fieldslab.packer.pack_options import PackOptions
from fieldslab.packer.parts.packing import finish_parts, pack_part
from fieldslab.packer.parts.part_number import parse_part
from fieldslab.packer.parts.plan_file import write_plan_file
from fieldslab.schemas.errors import (
    AccessDenied,
    FieldslabError,
    MissingLibrary,
    OutputDenied,
    RemoteUnreadable,
    SourceChanged,
    SourceNotFound,
    SourceUnsupported,
    UsageError,
)
from fieldslab.schemas.stores.hub import split_hub_url
from fieldslab.schemas.stores.store import open_store

TOKEN = "hf_secretsecretsecret"
URL = "hf://datasets/me/data"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What is in the dataset: Parquet files, photographs and a description."""
    folder = tmp_path / "dataset"
    (folder / "data").mkdir(parents=True)
    for number in range(2):
        table = pa.table({"x": np.arange(500) + number, "y": np.random.default_rng(1).random(500)})
        pq.write_table(table, folder / "data" / f"train-{number}.parquet", row_group_size=100)
    shutil.copy(ROOT / "examples" / "photos.parquet", folder / "photos.parquet")
    (folder / "images" / "cats").mkdir(parents=True)
    for number in range(2):
        image = encode(photograph(24, 30, number))
        (folder / "images" / "cats" / f"{number}.jpg").write_bytes(image)
    (folder / "README.md").write_text("A dataset")
    return folder


@pytest.fixture
def hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A Hub with that dataset, which is private; the environment knows its place and its token."""
    with run_hub_server("me/data", folder, TOKEN) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield hub


def test_the_slab_is_that_of_files(tmp_path: Path, folder: Path, hub: HubServer) -> None:
    """Files, globs and folders of any revision give the slab of the same files on a disk."""
    photos: dict[str, Any] = {"nulls": {"*": "mask"}}
    cases: list[tuple[str, str, dict[str, Any]]] = [
        ("/data/train-*.parquet", "data/train-*.parquet", {}),
        ("@v1/data", "data", {"fields": ["x"]}),
        ("@refs/pr/7/photos.parquet", "photos.parquet", photos),
        ("/images", "images", {}),
    ]
    for number, (path, local, options) in enumerate(cases):
        with case(path):
            expected = pack(folder / local, tmp_path / f"local-{number}", **options)
            remote = pack(URL + path, tmp_path / f"remote-{number}", **options)
            assert content(remote.path) == content(expected.path)
            assert TOKEN not in (remote.path / "manifest.json").read_text()


def test_slabs(tmp_path: Path, folder: Path, hub: HubServer) -> None:
    """A slab in a dataset is copied and verified as from any other place, but not written."""
    packed = pack(folder / "data", folder / "slabs" / "a.slab")
    copied = copy_slab(f"{URL}/slabs/a.slab", tmp_path / "a.slab")
    assert (copied.id, content(tmp_path / "a.slab")) == (packed.manifest.id, content(packed.path))
    with pytest.raises(OutputDenied):
        copy_slab(packed.path, f"{URL}/slabs/b.slab")


def test_parts(tmp_path: Path, folder: Path, hub: HubServer) -> None:
    """Parts read the dataset; a push is noticed, and no plan holds the token."""
    plan, out = tmp_path / "x.plan", tmp_path / "x.slab"
    options: dict[str, Any] = {"shard_size": 1000}
    write_plan_file([f"{URL}/data"], out, plan, cast(PackOptions, options))
    assert TOKEN.encode() not in plan.read_bytes()
    for part in ("1/2", "2/2"):
        pack_part(plan, parse_part(part))
    shutil.copy(folder / "data" / "train-1.parquet", folder / "data" / "train-0.parquet")
    with pytest.raises(SourceChanged, match="changed since the plan was made"):
        finish_parts(plan)


def test_one_commit_is_read(folder: Path, hub: HubServer) -> None:
    """What is pushed while a store is open does not change what it reads; ranges are exact."""
    store = open_store(URL)
    before = (folder / "data" / "train-0.parquet").read_bytes()
    info = store.get_info("data/train-0.parquet")
    (folder / "data" / "train-0.parquet").write_bytes(b"new")
    assert bytes(store.read("data/train-0.parquet")) == before
    assert bytes(store.read("data/train-0.parquet", 10, 90)) == before[10:90]
    data, read_info = store.read_with_info("data/train-0.parquet", 5, 9)
    assert (bytes(data), read_info) == (before[5:9], info)
    assert [found.key for found in store.list_keys("data")] == [
        "data/train-0.parquet",
        "data/train-1.parquet",
    ]
    assert store.list_folder("")[1] == ["data", "images"]
    assert [found.key for found in open_store(f"{URL}/data").list_keys()] == [
        "train-0.parquet",
        "train-1.parquet",
    ]
    assert open_store(URL).get_info("data/train-0.parquet").version != info.version


def test_a_server_that_fails(folder: Path, hub: HubServer) -> None:
    """What fails for a while is asked again; what does not pass names the URL and the status."""
    options = {"retry_config": {"max_retries": 3, "backoff": {"init_backoff": 0.01}}}
    store = open_store(URL, options)
    hub.failures += [503, 429]
    assert bytes(store.read("README.md")) == b"A dataset"
    hub.failures += [503] * 9
    with pytest.raises(RemoteUnreadable) as caught:
        store.read("README.md")
    assert (caught.value.context["status"], caught.value.context["attempts"]) == (503, 4)
    assert caught.value.context["file"] == f"{URL}/README.md"


def test_what_is_refused(tmp_path: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors say what is wrong and never hold the token."""
    wrong = {"token": TOKEN + "wrong"}
    cases: list[tuple[str, dict[str, str], type[FieldslabError], str]] = [
        (f"{URL}/none.parquet", {}, SourceNotFound, "no such object"),
        (f"{URL}@v9/data", {}, AccessDenied, "no such dataset or revision"),
        ("hf://datasets/me/other/data", {}, AccessDenied, "HF_TOKEN"),
        (f"{URL}/data", wrong, AccessDenied, "HF_TOKEN"),
        (f"{URL}/data", {"region": "x"}, UsageError, "the Hub does not take these"),
        ("hf://me/model/x.parquet", {}, UsageError, "hf://datasets/OWNER/NAME"),
        (f"{URL}/a.h5", {}, SourceUnsupported, "hf download .* me/data"),
    ]
    for url, options, kind, words in cases:
        with case((url, options)), pytest.raises(kind, match=words) as caught:
            pack(url, tmp_path / "slab", storage_options=options or None)
        assert TOKEN not in str(caught.value)
        assert TOKEN not in repr(caught.value.__cause__)
    with pytest.raises(OutputDenied, match="only be read"):
        pack(f"{URL}/photos.parquet", f"{URL}/x.slab")
    with pytest.raises(UsageError, match="credentials do not leave this process"):
        pack(
            f"{URL}/data",
            tmp_path / "slab",
            storage_options={"token": TOKEN},
            jobs=2,
            shard_size=1000,
        )


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without huggingface_hub, the error says what to install."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingLibrary, match="pip install 'huggingface_hub"):
        open_store(URL)


def test_urls_of_datasets() -> None:
    """A URL is split into the dataset, with its revision, and a path."""
    for url, expected in {
        "hf://datasets/a/b": ("hf://datasets/a/b", ""),
        "hf://datasets/a/b@v1/x/y": ("hf://datasets/a/b@v1", "x/y"),
        "hf://datasets/a/b@refs%2Fpr%2F1/x": ("hf://datasets/a/b@refs%2Fpr%2F1", "x"),
        "hf://datasets/a/b@refs/convert/parquet/x": (
            "hf://datasets/a/b@refs%2Fconvert%2Fparquet",
            "x",
        ),
    }.items():
        with case(url):
            assert split_hub_url(url) == expected
    for url in ("hf://datasets/a", "hf://a/b/c", "hf://datasets/a/", "hf://spaces/a/b"):
        with case(url), pytest.raises(UsageError):
            split_hub_url(url)
