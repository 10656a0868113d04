"""A disk that fails at any read of a source: a named error that gives the reason, no wrong row."""

import io
import json
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
from tests.faults.shim import build_shim, run_with_shim
from tests.jpegs import encode, photograph
from tests.packer.sources.litdata.streams import write_stream


def write_parquet(folder: Path) -> Path:
    """Two files of two row groups, with numbers, text and lists."""
    for number in range(2):
        table = pa.table(
            {
                "x": np.arange(200),
                "t": [f"row {row}" for row in range(200)],
                "l": [[row] * (row % 3) for row in range(200)],
            }
        )
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=100)
    return folder


def write_hdf5(folder: Path) -> Path:
    """A chunked dataset, one in a piece, and text of any length, in a file without a suffix."""
    path, texts = folder / "rows", [f"row {row}" for row in range(2000)]
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(2000.0), chunks=(500,), compression="gzip")
        file["y"] = np.arange(2000)
        file.create_dataset("t", data=texts, dtype=h5py.string_dtype())
    return path


def write_litdata(folder: Path) -> Path:
    """Items with bytes, a number and text, in two chunks."""
    # No arrays, whose dtypes only litdata knows: to import it takes longer than all reads.
    return write_stream(folder, lambda row: {"x": bytes(32), "n": row, "t": f"{row}"}, 2, 1)


def write_litdata_zstd(folder: Path) -> Path:
    """The same, each chunk one zstd frame."""
    return write_stream(folder, lambda row: {"n": row, "t": "é" * 99}, 2, 1, compression="zstd")


def write_images(folder: Path) -> Path:
    """JPEG files in two folders."""
    for number in range(4):
        path = folder / f"class{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encode(photograph(40, 48, number)))
    return folder


def write_archive(folder: Path) -> Path:
    """The same in a zip, with a table of metadata."""
    with zipfile.ZipFile(folder / "x.zip", "w") as archive:
        archive.writestr("metadata.csv", "file_name,n\na/0.jpg,1\nb/1.jpg,2\n")
        for number, name in enumerate(("a/0.jpg", "b/1.jpg")):
            archive.writestr(name, encode(photograph(40, 48, number)))
    return folder / "x.zip"


def write_tar(folder: Path) -> Path:
    """Samples of two members in a tar."""
    with tarfile.open(folder / "x.tar", "w") as tar:
        for name in ("0.cls", "0.txt", "1.cls", "1.txt"):
            info = tarfile.TarInfo(name)
            info.size = 1
            tar.addfile(info, io.BytesIO(b"7"))
    return folder / "x.tar"


def write_feather(folder: Path) -> Path:
    """An IPC file of two record batches."""
    table = pa.table({"x": np.arange(200), "t": [f"row {row}" for row in range(200)]})
    pyarrow.feather.write_feather(table, folder / "a.feather", chunksize=100)
    return folder


def write_csv(folder: Path) -> Path:
    """Numbers and text."""
    rows = "".join(f"{row},row {row}\n" for row in range(200))
    (folder / "a.csv").write_text(f"x,t\n{rows}")
    return folder


WRITERS: dict[str, Callable[[Path], Path]] = {
    "zip": write_archive,
    "webdataset": write_tar,
    "parquet": write_parquet,
    "ipc": write_feather,
    "csv": write_csv,
    "hdf5": write_hdf5,
    "litdata": write_litdata,
    "litdata, zstd": write_litdata_zstd,
    "images": write_images,
}


PROBED = ("zip", "webdataset")
"""Single files, which sources before theirs look into: such a read may fail without harm."""


def test_every_read_fails_in_turn(tmp_path: Path) -> None:
    """Whichever read fails, the error is SourceUnreadable with the system's reason."""
    paths = {}
    for name, write in WRITERS.items():
        folder = tmp_path / "sources" / name
        folder.mkdir(parents=True)
        paths[name] = write(folder)
    shim = build_shim(tmp_path)
    text = run_with_shim(
        "tests.faults.every_source_read", shim, tmp_path / "sources", *paths.values()
    )
    outcomes: list[list[list[str]]] = json.loads(text)
    for name, of_source in zip(paths, outcomes, strict=True):
        for kind in ("EIO", "ESTALE"):
            counts = Counter(result for failure, result in of_source if failure == kind)
            harmless = {"right"} if name in PROBED else set()
            assert set(counts) - harmless == {"SourceUnreadable"}, (name, kind, counts)
            assert counts["SourceUnreadable"] >= 3, name
        counts = Counter(result for failure, result in of_source if failure == "short")
        assert set(counts) == {"right"}, (name, counts)
