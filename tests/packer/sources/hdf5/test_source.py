"""HDF5 as a source: rows, names, many files, attributes, rows never written, settings."""

import json
import math
import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tests.packer.sources.hdf5.hdf5_files import error_of, numbers, packed, write

from fieldslab.packer import pack, verify
from fieldslab.packer.source import find_source
from fieldslab.schemas.errors import (
    SourceInconsistent,
    SourceUnsupported,
    UnknownField,
    UsageError,
)


def test_nested_groups(tmp_path: Path) -> None:
    """Datasets in groups are fields with the whole path as their name."""
    path = write(tmp_path / "x.h5", a=np.arange(4), g__h__x=np.arange(8).reshape(4, 2))
    slab = packed(path, tmp_path / "slab")
    assert list(slab.fields) == ["a", "g/h/x"]
    assert numbers(slab, "g/h/x") == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_other_lengths(tmp_path: Path) -> None:
    """Datasets without the most common length are listed with shape and type, not left out."""
    path = write(
        tmp_path / "x.h5",
        a=np.arange(4),
        b=np.ones((4, 2), "f4"),
        names=np.array([b"u", b"d"]),
        version=np.int64(3),
        empty=h5py.Empty("f8"),
    )
    error = error_of(path, tmp_path / "slab")
    assert isinstance(error, SourceInconsistent)
    text = str(error)
    assert "without the 4 rows that most have" in text
    assert "names: text of 1 bytes [2]" in text
    assert "version: int64 (one value)" in text
    assert "empty: float64 no rows" in text
    assert 'exclude=["empty", "names", "version"]' in text
    slab = packed(path, tmp_path / "slab", exclude="empty,names,version")
    assert list(slab.fields) == ["a", "b"]
    assert packed(path, tmp_path / "slab", fields="names").column("names") == ["u", "d"]


def test_one_common_length_of_two(tmp_path: Path) -> None:
    """Of lengths that are equally common the longest counts."""
    path = write(tmp_path / "x.h5", a=np.arange(9), b=np.arange(2))
    assert "without the 9 rows" in str(error_of(path, tmp_path / "slab"))


def test_names_of_any_kind(tmp_path: Path) -> None:
    """Names may be any Unicode, hold dots, or no Unicode at all; equal ones are told apart."""
    columns = {"ünï": 1, "a.b": 2, "with space": 3}
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name, value in columns.items():
            file[name] = np.full(3, value)
        file["a"] = np.ones(3, [("b", "i4")])
        space = h5py.h5s.create_simple((3,))
        h5py.h5d.create(file.id, b"l\xe4tin", h5py.h5t.STD_I8LE, space)
    slab = packed(tmp_path / "x.h5", tmp_path / "slab")
    assert sorted(slab.fields) == sorted([*columns, "a.b#2", "l�tin"])
    for name in ("ünï", "with space"):
        assert numbers(slab, name) == [columns[name]] * 3
    assert numbers(slab, "a.b") == [1] * 3
    assert numbers(slab, "a.b#2") == [2] * 3


def test_no_rows(tmp_path: Path) -> None:
    """Datasets of length 0 become a slab without rows."""
    path = write(tmp_path / "x.h5", a=np.empty((0, 3), "f4"), b=np.empty(0, "i8"))
    slab = packed(path, tmp_path / "slab")
    assert slab.rows == 0
    assert slab.fields["a"]["shape"] == [3]


def test_no_dataset(tmp_path: Path) -> None:
    """A file without datasets is an error."""
    h5py.File(tmp_path / "x.h5", "w").close()
    assert "the file has no dataset that can be packed" in str(
        error_of(tmp_path / "x.h5", tmp_path / "slab")
    )


def test_other_names_of_the_same(tmp_path: Path) -> None:
    """Soft links, second names and groups that contain themselves are left out, and it is said."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a"] = np.arange(3)
        file["b"] = file["a"]
        file["soft"] = h5py.SoftLink("/a")
        file["dangling"] = h5py.SoftLink("/nowhere")
        file["g/self"] = file.create_group("g")
    slab = packed(tmp_path / "x.h5", tmp_path / "slab")
    assert list(slab.fields) == ["a"]
    assert slab.manifest["made"]["warnings"] == [
        "b is another name of a: left out",
        "dangling is a link to /nowhere: left out",
        "g/self is another name of g: left out",
        "soft is a link to /a: left out",
    ]


def test_any_chunks(tmp_path: Path) -> None:
    """Values do not depend on how a dataset is chunked, nor on where windows and batches end."""
    values = {
        "whole": np.arange(30_000, dtype="i4").reshape(5000, 6),
        "rows": np.random.default_rng(0).standard_normal((5000, 3, 7)),
        "columns": np.arange(5000 * 64, dtype="u2").reshape(5000, 64),
        "odd": np.arange(5000, dtype="f4"),
    }
    chunks = {"whole": None, "rows": (1, 3, 7), "columns": (999, 10), "odd": (4096,)}
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name, array in values.items():
            file.create_dataset(name, data=array, chunks=chunks[name])
    for memory in ("8G", "9M"):
        slab = packed(tmp_path / "x.h5", tmp_path / "slab", settings={"memory": memory})
        for name, array in values.items():
            assert np.stack(slab.column(name)).tobytes() == array.tobytes()


def test_some_rows(tmp_path: Path) -> None:
    """--rows cuts rows out of the middle of chunks and across files."""
    paths = [write(tmp_path / f"{index}.h5", a=np.arange(10) + 10 * index) for index in range(3)]
    assert numbers(packed(paths, tmp_path / "slab", rows="7:22"), "a") == list(range(7, 22))


def test_many_files(tmp_path: Path) -> None:
    """Globs and directories are read in sorted order, lists as given; empty files count."""
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    sizes = {"b.h5": 2, "a.hdf5": 3, "deep/c.h5": 0, "d.H5": 1}
    for number, (name, rows) in enumerate(sizes.items()):
        write(folder / name, a=np.full(rows, number, ">i4"))
    (folder / "notes.txt").write_text("not this")
    write(folder / ".hidden.h5", a=np.zeros(5, "i4"))
    assert numbers(packed(folder, tmp_path / "slab"), "a") == [1, 1, 1, 0, 0, 3]
    assert numbers(packed(f"{folder}/*[5]", tmp_path / "slab"), "a") == [1, 1, 1, 0, 0, 3]
    paths = [folder / "b.h5", folder / "a.hdf5"]
    assert numbers(packed(paths, tmp_path / "slab"), "a") == [0, 0, 1, 1, 1]


def test_files_that_may_differ(tmp_path: Path) -> None:
    """Byte order, chunks and filters may differ from file to file."""
    write(tmp_path / "1.h5", a=np.arange(3, dtype=">f4"))
    with h5py.File(tmp_path / "2.h5", "w") as file:
        file.create_dataset("a", data=np.arange(3, dtype="<f4"), compression="gzip")
    assert numbers(packed(tmp_path, tmp_path / "slab"), "a") == [0, 1, 2, 0, 1, 2]


def test_files_that_differ(tmp_path: Path) -> None:
    """Other types, shapes and columns are an error that shows each of them, and names the file."""
    write(tmp_path / "1.h5", a=np.arange(3), b=np.ones((3, 2)), c=np.ones(3), d=np.ones(3))
    write(tmp_path / "2.h5", a=np.ones(3, "f4"), b=np.ones((3, 4)), d=np.ones(3), e=np.ones(3))
    error = error_of(tmp_path, tmp_path / "slab")
    assert isinstance(error, SourceInconsistent)
    text = str(error)
    assert "2.h5" in text
    assert "1.h5: datasets differ from file to file" in text
    assert f"e: float64 [] in {tmp_path}/2.h5 is missing here" in text
    text = str(error_of(tmp_path, tmp_path / "slab", exclude="e"))
    assert "2.h5: datasets differ from file to file" in text
    assert f"a: int64 [] in {tmp_path}/1.h5, float32 [] here" in text
    assert f"b: float64 [2] in {tmp_path}/1.h5, float64 [4] here" in text
    assert f"c: float64 [] in {tmp_path}/1.h5 is missing here" in text
    assert numbers(packed(tmp_path, tmp_path / "slab", fields="d"), "d") == [1] * 6


def test_enums_that_differ(tmp_path: Path) -> None:
    """Enums of the same numbers and other names differ."""
    for index, name in enumerate("AB"):
        kind = h5py.enum_dtype({name: 1}, "i1")
        write(tmp_path / f"{index}.h5", a=np.ones(3, kind))
    assert "a: enum of int8" in str(error_of(tmp_path, tmp_path / "slab"))


def test_magic(tmp_path: Path) -> None:
    """A file is recognised by its first bytes, whatever its name, a user block included."""
    write(tmp_path / "data", a=np.arange(3))
    with h5py.File(tmp_path / "block", "w", userblock_size=512) as file:
        file["a"] = np.arange(3)
    for name in ("data", "block"):
        assert numbers(packed(tmp_path / name, tmp_path / "slab"), "a") == [0, 1, 2]


def test_attributes(tmp_path: Path) -> None:
    """Attributes of file, groups and datasets stand in the manifest, as strict JSON."""
    told: dict[str, Any] = {
        "text": "ü",
        "bytes": np.bytes_(b"abc"),
        "int": np.int64(2**62 + 1),
        "flag": np.True_,
        "float": 1.5,
        "list": np.array([[1, 2], [3, 4]]),
        "complex": 1 + 2j,
        "nan": math.nan,
        "inf": np.array([math.inf, -math.inf]),
        "words": ["a", "b"],
        "empty": h5py.Empty("f4"),
        "raw": np.void(b"\xff\0"),
        "latin": np.bytes_(b"\xe4"),
        "long": np.zeros(100_000),
    }
    with h5py.File(tmp_path / "x.h5", "w", libver="latest") as file:
        dataset = file.create_dataset("g/x", data=np.arange(3))
        for holder in (file, file["g"], dataset):
            for name, value in told.items():
                holder.attrs[name] = value
        dataset.attrs["reference"] = file["g"].ref
    expected = {
        "text": "ü",
        "bytes": "abc",
        "int": 2**62 + 1,
        "flag": True,
        "float": 1.5,
        "list": [[1, 2], [3, 4]],
        "complex": [1.0, 2.0],
        "nan": "NaN",
        "inf": ["Infinity", "-Infinity"],
        "words": ["a", "b"],
        "empty": None,
        "raw": {"base64": "/wA="},
        "latin": {"base64": "5A=="},
        "long": {"left_out": "float64[100000]"},
    }
    slab = packed(tmp_path / "x.h5", tmp_path / "slab")
    assert slab.manifest["attributes"] == {**expected, "g/": expected}
    assert slab.fields["g/x"]["attributes"] == expected
    json.dumps(slab.manifest, allow_nan=False)
    assert verify(tmp_path / "slab", against=tmp_path / "x.h5").ok


def test_attributes_of_many_files(tmp_path: Path) -> None:
    """Where files differ in attributes, those of the first are kept, and a warning names them."""
    for index in range(3):
        with h5py.File(write(tmp_path / f"{index}.h5", a=np.arange(2)), "a") as file:
            file.attrs["same"] = "s"
            file.attrs["part"] = index
    slab = packed(tmp_path, tmp_path / "slab")
    assert slab.manifest["attributes"] == {"same": "s", "part": 0}
    assert slab.manifest["made"]["warnings"] == [
        f"files differ in the attributes part: those of {tmp_path}/0.h5 are kept"
    ]


def preallocated(path: Path, written: int = 250, **attributes: Any) -> Path:
    """1000 rows in chunks of 100, of which some are written, and one dataset whole."""
    with h5py.File(path, "w") as file:
        data = file.create_dataset("x", (1000, 3), "f4", chunks=(100, 2), fillvalue=7)
        data[:written] = 1
        file["y"] = np.arange(1000)
        file.attrs.update(attributes)
    return path


def test_rows_never_written(tmp_path: Path) -> None:
    """Chunks that were never written are packed as fill values, with a warning that says where."""
    slab = packed(preallocated(tmp_path / "x.h5"), tmp_path / "slab")
    (warning,) = slab.manifest["made"]["warnings"]
    assert "x in " in warning
    assert "14 of 20 chunks were never written and read as 7.0" in warning
    assert "nothing was written from row 300 on" in warning
    assert "rows_attr" in warning
    assert numbers(slab, "x")[249:252] == [[1, 1, 1], [7, 7, 7], [7, 7, 7]]


def test_nothing_ever_written(tmp_path: Path) -> None:
    """A dataset in one piece that was never written is warned of."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (5,), "i4")
    (warning,) = packed(tmp_path / "x.h5", tmp_path / "slab").manifest["made"]["warnings"]
    assert "no data was ever written; it reads as 0" in warning


def test_rows_attr(tmp_path: Path) -> None:
    """--rows-attr says for each file how many rows there are; nothing is left to warn of."""
    first = preallocated(tmp_path / "1.h5", 250, total_events=250)
    second = preallocated(tmp_path / "2.h5", 300, total_events=np.array([300]))
    settings = {"rows_attr": "total_events"}
    slab = packed([first, second], tmp_path / "slab", settings=settings)
    assert slab.rows == 550
    assert numbers(slab, "y") == [*range(250), *range(300)]
    assert slab.manifest["made"]["options"]["settings"] == settings
    assert not any("written" in text for text in slab.manifest["made"]["warnings"])
    assert verify(tmp_path / "slab", against=[first, second]).ok


@pytest.mark.parametrize("value", [1001, -1, 2.5, "many", None])
def test_rows_attr_that_is_no_number_of_rows(tmp_path: Path, value: Any) -> None:
    """An attribute that is missing or no number of the file's rows is an error that names it."""
    attributes = {"other": 1} if value is None else {"total_events": value}
    path = preallocated(tmp_path / "x.h5", **attributes)
    error = error_of(path, tmp_path / "slab", settings={"rows_attr": "total_events"})
    assert isinstance(error, SourceInconsistent)
    assert (
        'settings["rows_attr"]: the attribute total_events of the file is not a valid number'
        in str(error)
    )
    assert "0..1000" in str(error)


def test_unknown_settings(tmp_path: Path) -> None:
    """A setting that the kind of source does not know is an error that lists those it knows."""
    path = write(tmp_path / "x.h5", a=np.arange(3))
    error = error_of(path, tmp_path / "slab", settings={"rows_atr": "n"})
    assert isinstance(error, UsageError)
    assert "rows_atr: hdf5 sources have no such setting" in str(error)
    assert "rows_attr, rows_axis, raw, external, memory" in str(error)
    assert isinstance(error_of(path, tmp_path / "slab", fields="b"), UnknownField)
    wrong: dict[str, Any]
    for wrong in ({"rows_attr": 3}, {"raw": []}, {"external": "yes"}, {"memory": "much"}):
        assert isinstance(error_of(path, tmp_path / "slab", settings=wrong), UsageError)


def test_memory(tmp_path: Path) -> None:
    """Chunks that do not fit into --memory are refused before anything is read, with the size."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("small", data=np.arange(4000))
        big = file.create_dataset("big", (4000, 1000), "f8", chunks=(4000, 1000), compression="lzf")
        big[0] = 1
    error = error_of(tmp_path / "x.h5", tmp_path / "slab", settings={"memory": "64M"})
    assert isinstance(error, SourceUnsupported)
    assert "the chunks that hold a row of big take 32.0 MB" in str(error)
    assert 'settings={"memory": "98M"} allows it' in str(error)
    slab = packed(tmp_path / "x.h5", tmp_path / "slab", settings={"memory": "98M"})
    assert slab.column("big")[0].tolist() == [1] * 1000
    assert "settings" not in slab.manifest["made"]["options"]


def test_processes(tmp_path: Path) -> None:
    """A slab is the same in one process and in two, for which the source is pickled."""
    for index in range(3):
        with h5py.File(tmp_path / f"{index}.h5", "w") as file:
            data = np.random.default_rng(index).standard_normal((1000, 50))
            file.create_dataset("x", data=data, chunks=(10, 50), compression="gzip")
            file["s"] = [f"row {row}" for row in range(1000)]
    single = pack(tmp_path, tmp_path / "one", shard_size="100K")
    two = pack(tmp_path, tmp_path / "two", shard_size="100K", jobs=2)
    assert single.manifest.id == two.manifest.id
    assert len(single.manifest.shards) == 3


def test_pickled_after_reading(tmp_path: Path) -> None:
    """A source pickles while it has files open, as its paths and settings."""
    source = find_source(write(tmp_path / "x.h5", a=np.arange(10_000)))
    source.check([0])
    first = next(source.read(source.units[0], [0], 1000))
    again = pickle.loads(pickle.dumps(source))
    assert next(again.read(again.units[0], [0], 1000)).equals(first)
