"""HDF5 as MATLAB, netCDF4 and NeXus write it; files in use; rows and bytes beyond 32 bits."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tests.naming import case
from tests.packer.packing import PYTHON
from tests.packer.readback import Readback

from fieldslab.packer import pack, verify
from fieldslab.packer.source import find_source
from fieldslab.schemas.errors import (
    SourceInconsistent,
    SourceUnreadable,
    SourceUnsupported,
    UsageError,
)

LAST = {"rows_axis": -1}


def write_matlab(path: Path, **variables: tuple[str, Any]) -> Path:
    """Write variables as `save -v7.3` does: axes reversed, classes in attributes, a user block.

    "MAT-File Versions" and "Importing HDF5 Files" of MATLAB's documentation describe both.
    """
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, (kind, values) in variables.items():
            array = np.asarray(values)
            file[name] = array.T if array.ndim > 1 else array[None]
            file[name].attrs["MATLAB_class"] = np.bytes_(kind)
    with open(path, "r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\0\2IM")
    return path


def test_matlab(tmp_path: Path) -> None:
    """With `rows_axis` -1, N x d tables and N x 1 columns of MATLAB are fields of N rows."""
    x = np.arange(35.0).reshape(7, 5)
    stack = np.arange(7 * 3 * 2, dtype="i2").reshape(7, 3, 2)
    path = write_matlab(
        tmp_path / "a.mat",
        x=("double", x),
        s__y=("single", np.arange(7.0, dtype="f4")),
        ok=("logical", np.arange(7) % 2 == 0),
        stack=("int16", stack),
    )
    with pytest.raises(SourceInconsistent) as caught:
        pack(path, tmp_path / "slab")
    assert 'settings={"rows_axis": -1}' in str(caught.value.hint)
    pack(path, tmp_path / "slab", settings=LAST)
    back = Readback(tmp_path / "slab")
    assert np.array_equal(back.values("x"), x)
    assert back.values("s__y").tolist() == list(range(7))
    assert back.fields["ok"]["dtype"] == "bool"
    assert "shape" not in back.fields["s__y"]
    assert np.array_equal(back.values("stack"), stack.transpose(0, 2, 1))
    assert verify(tmp_path / "slab", against=path).ok
    square = write_matlab(tmp_path / "b.mat", x=("double", x[:5]))
    assert any("rows_axis" in text for text in pack(square, tmp_path / "b").warnings)


def test_matlab_classes_that_are_no_numbers(tmp_path: Path) -> None:
    """Text, cells, structs, objects and sparse matrices of MATLAB are refused by name."""
    path = write_matlab(tmp_path / "a.mat", x=("double", np.ones((4, 2))))
    with h5py.File(path, "a") as file:
        file["#refs#/a"] = np.zeros(3)
        references = np.array([[file["#refs#/a"].ref] * 4], h5py.ref_dtype)
        for name, kind, values in (
            ("c", "cell", references),
            ("st", "struct", references),
            ("t", "char", np.ones((1, 4), "u2")),
            ("d", "datetime", np.ones((1, 4), "u4")),
        ):
            file[name] = values
            file[name].attrs["MATLAB_class"] = np.bytes_(kind)
        file["e"] = np.zeros(2, "u8")
        file["e"].attrs.update(MATLAB_class=np.bytes_("double"), MATLAB_empty=np.uint8(1))
        file.create_group("sp").attrs.update(MATLAB_class=np.bytes_("double"), MATLAB_sparse=4)
    for name, text in {
        "c": "a cell array of MATLAB",
        "st": "an array of structs",
        "t": "text of MATLAB",
        "d": "a datetime of MATLAB",
        "e": "an empty double",
        "sp": "a sparse matrix of MATLAB",
    }.items():
        with case(name), pytest.raises(SourceUnsupported, match=text) as caught:
            pack(path, tmp_path / "slab", fields=f"x,{name}", settings=LAST)
        assert caught.value.context["field"] == name
    pack(path, tmp_path / "slab", exclude="c,st,t,d,e,sp", settings=LAST)
    assert list(Readback(tmp_path / "slab").fields) == ["x"]


@pytest.mark.parametrize("chunks", [None, (3, 2, 4), (1, 5, 10)])
def test_rows_on_the_last_axis(tmp_path: Path, chunks: tuple[int, ...] | None) -> None:
    """Rows of the last axis are read in windows and batches, whatever the chunks are."""
    values = np.random.default_rng(0).normal(size=(3, 5, 203))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=chunks)
        pair = np.zeros((2, 203), [("a", "i4"), ("b", "f4", 2)])
        pair["a"], pair["b"] = np.arange(406).reshape(2, 203), 7
        file["pair"] = pair
    pack(tmp_path / "a.h5", tmp_path / "slab", settings=LAST)
    back = Readback(tmp_path / "slab")
    assert np.array_equal(back.values("x"), np.moveaxis(values, -1, 0))
    assert np.array_equal(back.values("pair.a"), pair["a"].T)
    assert back.values("pair.b").shape == (203, 2, 2)


def test_rows_axis_that_is_none(tmp_path: Path) -> None:
    """Only the first axis and the last one can have the rows."""
    for axis in (1, True, "last"):
        with case(axis), pytest.raises(UsageError, match="rows_axis"):
            find_source(str(tmp_path), "hdf5", {"rows_axis": axis})


def test_netcdf(tmp_path: Path) -> None:
    """Names of dimensions are kept; phantom dimensions are no columns; values stay as stored."""
    with h5py.File(tmp_path / "a.nc", "w") as file:
        # As netcdf-c 4.9 writes them: https://docs.unidata.ucar.edu/nug/current/file_format_specifications.html
        sizes = {"time": 6, "lat": 3, "band": 2}
        for name, size in sizes.items():
            file[name] = np.arange(float(size))
            file[name].make_scale(name)
        file["band"].attrs["NAME"] = np.bytes_(
            "This is a netCDF dimension but not a netCDF variable.         2"
        )
        file["temp"] = np.arange(36, dtype="i2").reshape(6, 3, 2)
        file["temp"].attrs.update(scale_factor=0.5, add_offset=3.0, _FillValue=np.int16(5))
        for axis, name in enumerate(sizes):
            file["temp"].dims[axis].attach_scale(file[name])
    with pytest.raises(SourceInconsistent, match="lat: float64 \\[3\\]"):
        pack(tmp_path / "a.nc", tmp_path / "slab")
    packed = pack(tmp_path / "a.nc", tmp_path / "slab", exclude="lat")
    back = Readback(tmp_path / "slab")
    assert sorted(back.fields) == ["temp", "time"]
    assert back.values("temp").tolist() == np.arange(36).reshape(6, 3, 2).tolist()
    attributes = back.fields["temp"]["attributes"]
    assert attributes["dimensions"] == ["time", "lat", "band"]
    assert "DIMENSION_LIST" not in attributes
    reason = packed.manifest.made.reasons["temp"]
    assert reason == "HDF5 int16; scale_factor, add_offset, _FillValue not applied"


def test_nexus(tmp_path: Path) -> None:
    """The axes of the signal of a NeXus group are the names of its dimensions."""
    with h5py.File(tmp_path / "a.nxs", "w") as file:
        # https://manual.nexusformat.org/classes/base_classes/NXdata.html
        group = file.create_group("entry/data")
        group.attrs.update(NX_class="NXdata", signal="counts", axes=["time", "angle"])
        group["counts"] = np.arange(12).reshape(4, 3)
        group["time"] = np.arange(4.0)
    pack(tmp_path / "a.nxs", tmp_path / "slab")
    fields = Readback(tmp_path / "slab").fields
    assert fields["entry/data/counts"]["attributes"]["dimensions"] == ["time", "angle"]


_WRITER = """
import os, sys, h5py
files = []
for path in sys.argv[1:]:
    file = h5py.File(path, "w", libver="latest")
    file.create_dataset("x", data=range(9), chunks=(4,), maxshape=(None,))
    if path.endswith("swmr.h5"):
        file.swmr_mode = True
    file.flush()
    files.append(file)
os._exit(0)
"""


def test_files_of_a_writer_that_died(tmp_path: Path) -> None:
    """A file that a dead program left marked as open is refused, with what removes the mark."""
    paths = [tmp_path / "plain.h5", tmp_path / "swmr.h5"]
    subprocess.run([sys.executable, "-c", _WRITER, *paths], env=PYTHON, check=True)
    for path in paths:
        with case(path.name), pytest.raises(SourceUnreadable, match="marked as open") as caught:
            pack(path, tmp_path / "never")
        assert f"h5clear -s {path}" in str(caught.value.hint)
        with h5py.File(tmp_path / "whole.h5", "w", libver="latest") as file:
            file.create_dataset("x", data=np.arange(9), chunks=(4,), maxshape=(None,))
            if path.name == "swmr.h5":
                file.swmr_mode = True
        pack(tmp_path / "whole.h5", tmp_path / "slab", force=True)
        assert Readback(tmp_path / "slab").values("x").tolist() == list(range(9))


def test_other_formats_of_the_same_name(tmp_path: Path) -> None:
    """Older MATLAB files and classic netCDF are told apart, with what makes HDF5 of them."""
    for name, head, text in (
        ("a.mat", b"MATLAB 5.0 MAT-file", "-v7.3"),
        ("a.nc", b"CDF\x01\0\0\0\0", "nccopy -k nc4"),
    ):
        (tmp_path / name).write_bytes(head.ljust(600, b"\0"))
        with case(name), pytest.raises(SourceUnreadable, match="is not an HDF5 file") as caught:
            pack(tmp_path / name, tmp_path / "slab")
        assert text in str(caught.value.hint)


def test_matlab_in_folders_of_images(tmp_path: Path) -> None:
    """Annotations of MATLAB do not keep a folder of images from being packed; a glob finds them."""
    (tmp_path / "a").mkdir()
    picture = Path(__file__).parents[3] / "golden" / "images" / "tiny.png"
    (tmp_path / "a" / "one.png").write_bytes(picture.read_bytes())
    write_matlab(tmp_path / "a" / "labels.mat", x=("double", np.ones((4, 2))))
    assert find_source(str(tmp_path / "a")).name == "images"
    assert find_source(str(tmp_path / "a" / "*.mat")).name == "hdf5"


def test_more_than_32_bits(tmp_path: Path) -> None:
    """Rows beyond 2**31 and bytes beyond 4 GiB are found; most of these files is never written."""
    rows = 2**31 + 9
    with h5py.File(tmp_path / "a.h5", "w") as file:
        x = file.create_dataset("x", (rows,), "u1", chunks=(2**20,), fillvalue=3)
        x[-9:] = np.arange(9)
    packed = pack(tmp_path / "a.h5", tmp_path / "slab", rows=(rows - 12, rows))
    assert Readback(tmp_path / "slab").values("x").tolist() == [3, 3, 3, *range(9)]
    assert "chunks were never written" in " ".join(packed.warnings)
    with h5py.File(tmp_path / "b.h5", "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        space = h5py.h5s.create_simple((2**29 + 4, 2))
        made = h5py.h5d.create(file.id, b"y", h5py.h5t.IEEE_F64LE, space, properties)
        h5py.Dataset(made)[-4:] = np.arange(8.0).reshape(4, 2)
    assert (tmp_path / "b.h5").stat().st_size > 2**33
    pack(tmp_path / "b.h5", tmp_path / "slab", rows=(2**29 + 2, 2**29 + 4), force=True)
    assert Readback(tmp_path / "slab").values("y").tolist() == [[4.0, 5.0], [6.0, 7.0]]
