"""Tables that PyTables and pandas wrote; nothing in them is unpickled."""

import gzip
import pickle
from pathlib import Path

import pytest
from tests.packer.sources.hdf5.hdf5_files import error_of, numbers, packed

from fieldslab.packer import verify
from fieldslab.schemas.errors import (
    SourceUnsupported,
)

STORED = Path(__file__).parent


def stored(name: str, path: Path) -> Path:
    """A file that PyTables wrote."""
    path.write_bytes(gzip.decompress((STORED / f"{name}.h5.gz").read_bytes()))
    return path


def test_pytables(tmp_path: Path) -> None:
    """Tables of PyTables are compounds: bools, arrays, words and complex numbers; no index."""
    path = stored("pytables", tmp_path / "x.h5")
    slab = packed(path, tmp_path / "slab", exclude="objects")
    columns = ["flag", "number", "vector", "word", "pair"]
    assert list(slab.fields) == ["flags", *(f"rows.{name}" for name in columns)]
    assert numbers(slab, "rows.flag") == [False, True, False, True]
    assert numbers(slab, "flags") == [True, False, True, True]
    assert slab.fields["flags"]["dtype"] == "bool"
    assert numbers(slab, "rows.number") == [0, 1, 2, 3]
    assert numbers(slab, "rows.vector")[2] == [[2, 2, 2], [2, 2, 2]]
    assert slab.column("rows.word") == ["a", "ab", "abc", "abcd"]
    assert numbers(slab, "rows.pair") == [0, 1 - 1j, 2 - 2j, 3 - 3j]
    assert slab.manifest["attributes"]["rows/"]["NROWS"] == 4


def test_pandas_table(tmp_path: Path) -> None:
    """The table layout of pandas packs."""
    slab = packed(stored("pandas_table", tmp_path / "x.h5"), tmp_path / "slab")
    assert list(slab.fields) == [f"df/table.{name}" for name in ("index", "x", "n", "s")]
    assert numbers(slab, "df/table.x") == [0, 1, 2, 3, 4]
    assert slab.column("df/table.s") == list("abcde")


def test_pandas_fixed(tmp_path: Path) -> None:
    """The fixed layout of pandas is refused, with the advice to write Parquet."""
    error = error_of(stored("pandas_fixed", tmp_path / "x.h5"), tmp_path / "slab")
    assert isinstance(error, SourceUnsupported)
    assert "fixed layout of pandas holds pickled objects (field df" in str(error)
    assert "to_parquet" in str(error)


def test_nothing_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pickled objects and attributes of a file that harms whoever unpickles it stay untouched."""
    monkeypatch.chdir(tmp_path)
    path = stored("pytables", tmp_path / "x.h5")
    error = error_of(path, tmp_path / "slab")
    assert "holds pickled Python objects, which are never read" in str(error)
    assert "field objects" in str(error)
    slab = packed(path, tmp_path / "slab", exclude="objects")
    assert "pathlib" in slab.manifest["attributes"]["rows/"]["payload"]
    assert verify(tmp_path / "slab", against=path).ok
    assert not (tmp_path / "unpickled").exists()
    pickle.loads(slab.manifest["attributes"]["rows/"]["payload"].encode())
    assert (tmp_path / "unpickled").exists()
