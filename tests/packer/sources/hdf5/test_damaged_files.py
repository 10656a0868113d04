"""Files of HDF5 that are missing, cut off, damaged, or changed while they are read."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from tests.packer.sources.hdf5.hdf5_files import error_of, write

from fieldslab.packer import pack
from fieldslab.packer.source import find_source
from fieldslab.schemas.errors import (
    FieldslabError,
    SourceChanged,
    SourceInconsistent,
    SourceUnreadable,
)


def test_changed(tmp_path: Path) -> None:
    """A file that is replaced after it was looked at is SourceChanged."""
    source = find_source(write(tmp_path / "x.h5", a=np.arange(3)))
    source.check([0])
    write(tmp_path / "y.h5", a=np.arange(4))
    (tmp_path / "y.h5").rename(tmp_path / "x.h5")
    with pytest.raises(SourceChanged, match=r"x\.h5"):
        list(source.read(source.units[0], [0], 1000))


def test_missing(tmp_path: Path) -> None:
    """Files that are not there, or that nobody may read, are named."""
    assert "no such file" in str(error_of(tmp_path / "x.h5", tmp_path / "slab"))
    (tmp_path / "empty").mkdir()
    error = error_of(tmp_path / "empty", tmp_path / "slab", from_="hdf5")
    assert "no HDF5 files" in str(error)
    os.mkfifo(tmp_path / "pipe.h5")
    assert "is not a file" in str(error_of(tmp_path / "pipe.h5", tmp_path / "slab"))


def sample_file(path: Path, text: bool = True) -> Path:
    """A file with groups, chunks, checksums, attributes and perhaps text of any length."""
    with h5py.File(path, "w") as file:
        data = np.arange(4000, dtype="f4").reshape(1000, 4)
        file.create_dataset("g/x", data=data, chunks=(100, 4), compression="gzip", fletcher32=True)
        if text:
            file["s"] = [f"row {row}" for row in range(1000)]
        file["c"] = np.ones(1000, [("a", "i4"), ("b", "S3")])
        file.attrs["n"] = [1, 2, 3]
    return path


def damage(path: Path, change: Callable[[bytearray], None]) -> None:
    """Rewrite a file with a change."""
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


@pytest.mark.parametrize("kept", [0, 5, 100, 0.3, 0.7, 0.99])
def test_truncated(tmp_path: Path, kept: float) -> None:
    """A file that was cut off is SourceUnreadable, wherever the cut is."""
    path = sample_file(tmp_path / "x.h5")
    size = path.stat().st_size
    os.truncate(path, int(kept * size) if kept < 1 else int(kept))
    error = error_of(path, tmp_path / "slab")
    assert isinstance(error, SourceUnreadable)
    assert str(path) in str(error)


def test_checksums(tmp_path: Path) -> None:
    """A chunk whose fletcher32 does not match is an error with dataset and rows."""
    path = sample_file(tmp_path / "x.h5")
    with h5py.File(path) as file:
        place = file["g/x"].id.get_chunk_info(5)
    damage(path, lambda data: data.__setitem__(place.byte_offset + place.size - 2, 255))
    error = error_of(path, tmp_path / "slab")
    assert isinstance(error, SourceUnreadable)
    assert "field g/x, row 0..999" in str(error)


def test_any_damage(tmp_path: Path) -> None:
    """Bytes that are not what they were give a slab or an error with a name, and no traceback.

    Without text of any length: damage in the heap that holds it makes the library run for ever.
    """
    path = sample_file(tmp_path / "x.h5", text=False)
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    errors = 0
    for _ in range(60):
        data = bytearray(whole)
        for place in random.integers(0, len(whole), 8):
            data[place] = random.integers(256)
        path.write_bytes(data)
        shutil.rmtree(tmp_path / "slab", ignore_errors=True)
        try:
            pack(path, tmp_path / "slab", settings={"memory": "1G"})
        except FieldslabError:
            errors += 1
    assert errors > 10


def test_more_rows_than_can_be(tmp_path: Path) -> None:
    """A dataset that claims petabytes is refused before units are listed."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (2**50,), "f8", chunks=(1000,))
    error = error_of(tmp_path / "x.h5", tmp_path / "slab")
    assert isinstance(error, SourceInconsistent)
    assert "rows_attr" in str(error)
