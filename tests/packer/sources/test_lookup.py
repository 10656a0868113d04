"""Which files are meant, who may read them, and which kind of source they are."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.packer.readback import Readback

from fieldslab.packer import pack
from fieldslab.packer.source import find_source
from fieldslab.packer.sources.images.image_files import find_images
from fieldslab.packer.sources.path_lookup import list_files
from fieldslab.schemas.errors import SourceUnreadable, UsageError

NOBODY = 65534


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that every user may enter, with a Parquet file in it and one below it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "data" / "below").mkdir(parents=True)
        for path in (folder / "data" / "a.parquet", folder / "data" / "below" / "b.parquet"):
            pq.write_table(pa.table({"x": [1, 2]}), path)
        find_source(str(folder / "data"))  # loads what the user below may not be able to import
        yield folder
        for path in (folder / "data", folder / "data" / "below"):
            path.chmod(0o755)


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Give up the right of root to read everything; any other user has none to give up."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("closed", ["data", "data/below", "data/a.parquet", "data/below/b.parquet"])
@pytest.mark.parametrize(
    "pattern", ["data", "data/*.parquet", "data/a.parquet", "data/**/*.parquet"]
)
def test_what_may_not_be_read_is_said(shared: Path, pattern: str, closed: str) -> None:
    """Nothing that is meant is passed over in silence, and the error names what is closed."""
    (shared / closed).chmod(0)
    source = f"{shared}/{pattern}"
    needed = {
        "data": True,
        "data/*.parquet": closed in ("data", "data/a.parquet"),
        "data/a.parquet": closed in ("data", "data/a.parquet"),
        "data/**/*.parquet": True,
    }[pattern]
    if not needed:  # what is closed is not meant
        with ordinary_user():
            assert find_source(source).name == "parquet"
        return
    with ordinary_user(), pytest.raises(SourceUnreadable, match="no permission") as caught:
        find_source(source)
    assert caught.value.exit_code == 3
    assert str(caught.value.context["file"]).startswith(str(shared / "data"))


def test_a_closed_file_without_a_telling_name(shared: Path) -> None:
    """That no kind of source accepts a file that may not be read is told by its true reason."""
    (shared / "numbers").write_bytes(b"PAR1")
    (shared / "numbers").chmod(0)
    with ordinary_user(), pytest.raises(SourceUnreadable, match="no permission to read it"):
        find_source(str(shared / "numbers"))


def test_kinds_are_not_mixed(shared: Path) -> None:
    """Files of two kinds are a mistake of the call; no file is blamed for what it is not."""
    with h5py.File(shared / "c.h5", "w") as file:
        file["x"] = np.arange(3)
    both = [shared / "data" / "a.parquet", shared / "c.h5"]
    with pytest.raises(UsageError, match="of one kind") as caught:
        pack(both, shared / "x.slab")
    assert caught.value.context["found"] == "hdf5"


def test_hidden_files_are_left_out(shared: Path) -> None:
    """A directory means its files with a known suffix, none that is hidden."""
    for name in (".a.parquet", "_b.parquet", "c.txt", "_d/e.parquet", "f/g.PARQUET"):
        path = shared / "data" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    actual = list_files(str(shared / "data"), (".parquet",), "Parquet")
    names = [str(Path(path).relative_to(shared / "data")) for path in actual]
    assert names == ["a.parquet", "below/b.parquet", "f/g.PARQUET"]


def linked(folder: Path) -> Path:
    """A folder with a link to a file, one to a folder, and two that go round."""
    for name in ("data", "store/more"):
        (folder / name).mkdir(parents=True)
    pq.write_table(pa.table({"x": [1, 2]}), folder / "data" / "a.parquet")
    pq.write_table(pa.table({"x": [3]}), folder / "store" / "blob")
    pq.write_table(pa.table({"x": [4]}), folder / "store" / "more" / "d.parquet")
    (folder / "data" / "b.parquet").symlink_to("../store/blob")
    (folder / "data" / "c").symlink_to("../store/more")
    (folder / "data" / "c" / "round").symlink_to("../../data")
    (folder / "data" / "round").symlink_to(".")
    return folder / "data"


@pytest.mark.parametrize("pattern", ["", "**/*.parquet", "../data/**/*.parquet"])
@pytest.mark.parametrize("from_here", [False, True])
def test_links_are_followed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, from_here: bool
) -> None:
    """Links in a source are followed, in folders and globs, but not in circles."""
    data = linked(tmp_path)
    (tmp_path / "link").symlink_to("data")
    for folder in (data, tmp_path / "link"):
        monkeypatch.chdir(folder)
        start = "" if from_here else f"{folder}/"
        pack(f"{start}{pattern}" or ".", tmp_path / "slab", force=True)
        assert Readback(tmp_path / "slab").values("x").tolist() == [1, 2, 3, 4]


def test_links_to_nothing(tmp_path: Path) -> None:
    """A link to a file that is not there is an error: its rows would be missing."""
    data = linked(tmp_path)
    (tmp_path / "store" / "blob").unlink()
    with pytest.raises(SourceUnreadable, match="broken link") as caught:
        pack(data, tmp_path / "slab")
    assert caught.value.context["file"] == str(data / "b.parquet")
    (data / "b.parquet").unlink()
    (data / "c" / "self").symlink_to("self")
    with pytest.raises(SourceUnreadable, match="cannot be read"):
        pack(data, tmp_path / "slab")


def test_links_to_folders_of_images(tmp_path: Path) -> None:
    """Links to folders of images are classes like any folder, but not in circles."""
    for name in ("data/cat", "store"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("data/cat/1.png", "store/2.png"):
        (tmp_path / name).write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(30))
    (tmp_path / "data" / "dog").symlink_to("../store")
    (tmp_path / "store" / "round").symlink_to("../data")
    for source in (tmp_path / "data", f"{tmp_path}/data/**/*.png"):
        files = find_images([str(source)])
        assert files.paths.to_pylist() == ["cat/1.png", "dog/2.png"]
        assert files.labels == ("cat", "dog")


def test_errors_of_a_disk_are_named(tmp_path: Path) -> None:
    """What the system says of a file that cannot be read is SourceUnreadable, with its name."""
    endless = "/".join(["x" * 200] * 30)
    with pytest.raises(SourceUnreadable) as caught:
        find_source(f"{tmp_path}/{endless}")
    assert str(tmp_path) in str(caught.value)
