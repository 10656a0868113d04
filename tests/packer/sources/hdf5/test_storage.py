"""How HDF5 files are stored: filters, and data that lies in other files."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest
from tests.packer.readback import Readback

from fieldslab.packer import pack
from fieldslab.packer.source import find_source
from fieldslab.schemas.errors import FieldslabError, SourceChanged, SourceUnsupported

ROWS = 300
VALUES = np.arange(ROWS * 8, dtype="i4").reshape(ROWS, 8) // 7


def packed(source: Any, out: Path, **options: Any) -> Readback:
    """Pack, read back with numpy alone."""
    pack(source, out, force=True, **options)
    return Readback(out)


def error_of(source: Any, out: Path, **options: Any) -> str:
    """What the error of a pack says, which leaves no slab behind."""
    with pytest.raises(FieldslabError) as caught:
        pack(source, out, **options)
    assert not out.exists()
    return str(caught.value)


def column(slab: Readback, name: str = "x") -> np.ndarray:
    """A fixed field in one array."""
    return np.stack(slab.column(name))


# Filters.

NATIVE: dict[str, dict[str, Any]] = {
    "gzip": {"compression": "gzip"},
    "shuffle": {"compression": "gzip", "shuffle": True},
    "lzf": {"compression": "lzf", "shuffle": True},
    "szip": {"compression": "szip"},
    "scaleoffset": {"scaleoffset": 0},
    "fletcher32": {"fletcher32": True},
}
PLUGINS: dict[str, Any] = {
    "blosc": hdf5plugin.Blosc(),
    "blosc2": hdf5plugin.Blosc2(),
    "zstd": hdf5plugin.Zstd(),
    "lz4": hdf5plugin.LZ4(),
    "bitshuffle": hdf5plugin.Bitshuffle(),
    "bzip2": hdf5plugin.BZip2(),
}


@pytest.mark.parametrize("name", NATIVE)
def test_native_filters(tmp_path: Path, name: str) -> None:
    """The filters that come with HDF5 are read."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=VALUES, chunks=(100, 8), **NATIVE[name])
        assert file["x"].id.get_create_plist().get_nfilters()
    assert column(packed(tmp_path / "x.h5", tmp_path / "slab")).tobytes() == VALUES.tobytes()


def write_plugin(path: Path, name: str) -> Path:
    """A file that is compressed with a filter of hdf5plugin."""
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=VALUES, chunks=(100, 8), compression=PLUGINS[name])
    return path


PACK = """
import sys
if sys.argv[1] == "without":
    sys.modules["hdf5plugin"] = None  # what `import` finds where it is not installed
from fieldslab.packer import pack
from fieldslab.schemas.errors import SourceUnsupported
for path in sys.argv[2:]:
    try:
        pack(path, f"{path}.{sys.argv[1]}")
        assert "hdf5plugin" in sys.modules
    except SourceUnsupported as error:
        print(error)
"""


def test_filters_of_hdf5plugin(tmp_path: Path) -> None:
    """Its filters are found where nobody imported it; without it the error says what to install."""
    filters = {"blosc": 32001, "zstd": 32015}
    paths = [str(write_plugin(tmp_path / f"{name}.h5", name)) for name in filters]
    for state in ("without", "with"):
        command = [sys.executable, "-c", PACK, state, *paths]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert all(Path(f"{path}.{state}").exists() == (state == "with") for path in paths)
        errors = done.stdout.splitlines()
        assert len(errors) == (len(paths) if state == "without" else 0)
        for error, path, (name, number) in zip(errors, paths, filters.items(), strict=False):
            assert f"{path}: compressed with the filter {name} ({number})" in error
            assert "field x" in error
            assert "pip install 'hdf5plugin>=5.0'" in error


@pytest.mark.parametrize("name", PLUGINS)
def test_plugin_filters(tmp_path: Path, name: str) -> None:
    """What hdf5plugin writes is read, with each of its lossless filters."""
    path = write_plugin(tmp_path / "x.h5", name)
    assert column(packed(path, tmp_path / "slab")).tobytes() == VALUES.tobytes()


def test_unknown_filter(tmp_path: Path) -> None:
    """A filter that nobody knows is refused by its number; other datasets pack."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((100,))
        properties.set_filter(32_999, h5py.h5z.FLAG_OPTIONAL, ())
        space = h5py.h5s.create_simple((ROWS,))
        h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I32LE, space, properties)
        file["y"] = VALUES
    error = error_of(tmp_path / "x.h5", tmp_path / "slab")
    assert "(32999), which is not installed" in error
    assert "not part of hdf5plugin" in error
    assert column(packed(tmp_path / "x.h5", tmp_path / "slab", fields="y"), "y").shape == (ROWS, 8)


# Data that lies in other files.


def external_link(folder: Path) -> None:
    """`x` is a link to a dataset of another file."""
    with h5py.File(folder / "sub" / "other.h5", "w") as file:
        file["g/data"] = VALUES
    with h5py.File(folder / "x.h5", "w") as file:
        file["x"] = h5py.ExternalLink("sub/other.h5", "/g/data")


def virtual(folder: Path) -> None:
    """`x` is stitched together from two other files and a dataset of its own file."""
    third = ROWS // 3
    for index in range(2):
        with h5py.File(folder / "sub" / f"{index}.h5", "w") as file:
            file["part"] = VALUES[index * third : (index + 1) * third]
    layout = h5py.VirtualLayout(VALUES.shape, VALUES.dtype)
    for index, name in enumerate(["sub/0.h5", "sub/1.h5"]):
        part = h5py.VirtualSource(name, "part", (third, 8))
        layout[index * third : (index + 1) * third] = part
    layout[2 * third :] = h5py.VirtualSource(".", "own", (third, 8))
    with h5py.File(folder / "x.h5", "w") as file:
        file["own"] = VALUES[2 * third :]
        file.create_virtual_dataset("x", layout)


def raw_storage(folder: Path) -> None:
    """`x` lies in two raw files."""
    half = VALUES.nbytes // 2
    (folder / "sub" / "one.bin").write_bytes(b"head" + VALUES.tobytes()[:half])
    (folder / "sub" / "two.bin").write_bytes(VALUES.tobytes()[half:])
    with h5py.File(folder / "x.h5", "w") as file:
        files = [("sub/one.bin", 4, half), ("sub/two.bin", 0, h5py.h5s.UNLIMITED)]
        file.create_dataset("x", VALUES.shape, VALUES.dtype, external=files)


OUTSIDE: dict[Callable[[Path], None], tuple[str, str]] = {
    external_link: ("an external link reads another file", "other.h5"),
    virtual: ("a virtual dataset reads other datasets and files", "1.h5"),
    raw_storage: ("external raw storage reads any file of this machine", "two.bin"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a subfolder for other files, which is not where the tests run."""
    (tmp_path / "in" / "sub").mkdir(parents=True)
    return tmp_path / "in"


@pytest.mark.parametrize("write", OUTSIDE, ids=lambda write: write.__name__)
def test_outside(folder: Path, tmp_path: Path, write: Callable[[Path], None]) -> None:
    """Data in other files is refused, and admitted by --external; every file is fingerprinted."""
    write(folder)
    problem, other = OUTSIDE[write]
    error = error_of(folder / "x.h5", tmp_path / "slab", fields="x")
    assert problem in error
    assert "field x" in error
    assert 'settings={"external": True} admits it' in error
    slab = packed(folder / "x.h5", tmp_path / "slab", fields="x", settings={"external": True})
    assert column(slab).tobytes() == VALUES.tobytes()
    assert any(source["path"].endswith(other) for source in slab.manifest["made"]["sources"])


@pytest.mark.parametrize("write", OUTSIDE, ids=lambda write: write.__name__)
def test_outside_missing(folder: Path, tmp_path: Path, write: Callable[[Path], None]) -> None:
    """A file that is missing would read as fill values: it is refused by name."""
    write(folder)
    other = folder / "sub" / OUTSIDE[write][1]
    other.unlink()
    error = error_of(folder / "x.h5", tmp_path / "slab", fields="x", settings={"external": True})
    assert "missing" in error
    assert str(other) in error


def cut_raw(folder: Path) -> None:
    """Cut off a raw file."""
    path = folder / "sub" / "two.bin"
    path.write_bytes(path.read_bytes()[:-1])


def other_shape(folder: Path) -> None:
    """Write a source of a virtual dataset with fewer rows."""
    with h5py.File(folder / "sub" / "1.h5", "w") as file:
        file["part"] = VALUES[:5]


def other_name(folder: Path) -> None:
    """Write a source of a virtual dataset under another name."""
    with h5py.File(folder / "sub" / "1.h5", "w") as file:
        file["other"] = VALUES


def no_hdf5(folder: Path) -> None:
    """Write something else in the place of a source."""
    (folder / "sub" / "1.h5").write_text("not HDF5")


def hole(folder: Path) -> None:
    """Leave rows of a virtual dataset without a source."""
    layout = h5py.VirtualLayout((ROWS + 9, 8), VALUES.dtype)
    layout[:100] = h5py.VirtualSource("sub/0.h5", "part", (100, 8))
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_virtual_dataset("x", layout)


@pytest.mark.parametrize(
    ("write", "change", "problem"),
    [
        (raw_storage, cut_raw, "two.bin is shorter than"),
        (virtual, other_shape, "too small"),
        (virtual, other_name, "has no dataset part"),
        (virtual, no_hdf5, "cannot be read"),
        (virtual, hole, "its parts cover 800 of 2472 elements"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_outside_and_wrong(
    folder: Path,
    tmp_path: Path,
    write: Callable[[Path], None],
    change: Callable[[Path], None],
    problem: str,
) -> None:
    """Other files that would be read as fill values in part are refused, too."""
    write(folder)
    change(folder)
    settings = {"external": True}
    assert problem in error_of(folder / "x.h5", tmp_path / "slab", fields="x", settings=settings)


def test_virtual_over_a_missing_file(folder: Path, tmp_path: Path) -> None:
    """A virtual dataset over a virtual dataset is looked through to the last file."""
    virtual(folder)
    (folder / "x.h5").rename(folder / "below.h5")
    layout = h5py.VirtualLayout(VALUES.shape, VALUES.dtype)
    layout[:] = h5py.VirtualSource("below.h5", "x", VALUES.shape)
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
    settings = {"external": True}
    slab = packed(folder / "x.h5", tmp_path / "slab", settings=settings)
    assert column(slab).tobytes() == VALUES.tobytes()
    (folder / "sub" / "0.h5").unlink()
    assert "0.h5 is missing" in error_of(folder / "x.h5", tmp_path / "other", settings=settings)


def test_prefix_from_the_environment(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that sends the library to other files than were checked is refused."""
    virtual(folder)
    monkeypatch.setenv("HDF5_VDS_PREFIX", str(tmp_path))
    settings = {"external": True}
    error = error_of(folder / "x.h5", tmp_path / "slab", fields="x", settings=settings)
    assert "HDF5_VDS_PREFIX is set" in error


def test_links_to_groups(folder: Path, tmp_path: Path) -> None:
    """An external link to a group brings its datasets along; links in a circle come to an end."""
    with h5py.File(folder / "sub" / "other.h5", "w") as file:
        file["g/data"] = VALUES
        file["g/back"] = h5py.ExternalLink("../x.h5", "/")
    with h5py.File(folder / "x.h5", "w") as file:
        file["a"] = VALUES
        file["link"] = h5py.ExternalLink("sub/other.h5", "/g")
    slab = packed(folder / "x.h5", tmp_path / "slab", settings={"external": True})
    assert list(slab.fields) == ["a", "link/data"]


def test_other_files_that_change(folder: Path, tmp_path: Path) -> None:
    """A change of a file behind a link is a change of the source."""
    external_link(folder)
    source = find_source(folder / "x.h5", settings={"external": True})
    source.check([0])
    with h5py.File(folder / "sub" / "other.h5", "a") as file:
        file["more"] = VALUES
    with pytest.raises(SourceChanged, match=r"other\.h5"):
        list(source.read(source.units[0], [0], 1 << 20))


def test_outside_and_excluded(folder: Path, tmp_path: Path) -> None:
    """What lies in other files does not stand in the way once it is excluded."""
    external_link(folder)
    with h5py.File(folder / "x.h5", "a") as file:
        file["y"] = VALUES
    with pytest.raises(SourceUnsupported):
        pack(folder / "x.h5", tmp_path / "slab")
    assert list(packed(folder / "x.h5", tmp_path / "slab", exclude="x").fields) == ["y"]
