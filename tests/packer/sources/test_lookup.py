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

from fieldslab.packer import pack
from fieldslab.packer.source import find_source
from fieldslab.packer.sources.lookup import look_up
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
@pytest.mark.parametrize("given", ["data", "data/*.parquet", "data/a.parquet", "data/**/*.parquet"])
def test_what_may_not_be_read_is_said(shared: Path, given: str, closed: str) -> None:
    """Nothing that is meant is passed over in silence, and the error names what is closed."""
    (shared / closed).chmod(0)
    source = f"{shared}/{given}"
    needed = {
        "data": True,
        "data/*.parquet": closed in ("data", "data/a.parquet"),
        "data/a.parquet": closed in ("data", "data/a.parquet"),
        "data/**/*.parquet": closed != "data/below",
    }[given]
    if not needed:  # a glob sees what it can see
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
    found = look_up(str(shared / "data"), (".parquet",), "Parquet")
    names = [str(Path(path).relative_to(shared / "data")) for path in found]
    assert names == ["a.parquet", "below/b.parquet", "f/g.PARQUET"]
