"""Directories as stores."""

import os
import resource
from pathlib import Path

import pytest
from tests.naming import case
from tests.schemas.stores.contract import Contract

from fieldslab.schemas.errors import (
    NoSpace,
    ObjectNotFound,
    OutputError,
    Unreadable,
    UsageError,
)
from fieldslab.schemas.stores.directory import DirectoryStore
from fieldslab.schemas.stores.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A directory that is not there yet."""
    return open_store(tmp_path / "parent" / "store")


class TestContract(Contract):
    """What every store must do."""


def test_paths_and_file_urls_are_directories(tmp_path: Path) -> None:
    """A path, also one with a colon, and a file URL with escapes give the same store."""
    folder = tmp_path / "a b:c"
    folder.mkdir()
    (folder / "x").write_bytes(b"content")
    for place in (folder, str(folder), folder.as_uri(), f"file://{tmp_path}/a%20b:c"):
        with case(place):
            store = open_store(place)
            assert isinstance(store, DirectoryStore)
            assert bytes(store.read("x")) == b"content"
            assert store.url == str(folder)


def test_a_directory_takes_no_options(tmp_path: Path) -> None:
    """`storage_options` for a directory are a mistake; their values are not repeated."""
    with pytest.raises(UsageError, match=r"storage_options.*region") as caught:
        open_store(tmp_path, {"region": "secret"})
    assert "secret" not in str(caught.value)


def test_unknown_schemes_are_refused() -> None:
    """A URL of a scheme that nobody registered names those that are known."""
    with pytest.raises(UsageError, match="no such kind of store 'ftp'") as caught:
        open_store("ftp://host/x.slab")
    assert "s3" in caught.value.context["expected"]


def test_files_in_the_way_are_named(tmp_path: Path) -> None:
    """A file where a folder should be, and a folder where a file should be, are named errors."""
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    store = open_store(tmp_path)
    with pytest.raises(ObjectNotFound, match="file/x"):
        store.read("file/x")
    with pytest.raises(Unreadable, match="folder"):
        store.read("folder")
    for key in ("file/x", "folder"):
        with case(key), pytest.raises(OutputError, match=key.partition("/")[0]):
            store.write(key, b"")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_what_does_not_fit_leaves_no_file(store: Store) -> None:
    """A write that does not fit is NoSpace, and what was written of it is removed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(NoSpace):
            store.write("a", bytes(2000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(store.url) == []


def test_deleting_removes_empty_folders(tmp_path: Path) -> None:
    """The last object of a folder takes the folder along, but not the store itself."""
    store = open_store(tmp_path / "store")
    store.write("a/b/c", b"")
    store.write("a/d", b"")
    store.delete("a/b/c")
    assert os.listdir(tmp_path / "store" / "a") == ["d"]
    store.delete("a/d")
    assert os.listdir(tmp_path / "store") == []
