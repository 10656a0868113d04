"""One dataset as each kind of source: what the shared battery packs, and the rows it expects."""

import gzip
import io
import json
import tarfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from deltalake import write_deltalake
from PIL import Image
from pyiceberg.catalog.sql import SqlCatalog
from tests.packer.sources.litdata.streams import write_stream

from fieldslab.packer import pack

PARTS, ROWS = 4, 60
"""Files, or what is like them, and rows of each."""


def make_table(seed: int, rows: int = ROWS) -> pa.Table:
    """Numbers, text and bools."""
    rng = np.random.default_rng(seed)
    words = ["", "a,b", "two\nlines", "ü 漢 🙂", "NA", "7"]
    return pa.table(
        {
            "n": rng.integers(-(2**62), 2**62, rows),
            "x": rng.random(rows),
            "s": [words[int(n)] for n in rng.integers(0, len(words), rows)],
            "b": rng.random(rows) < 0.5,
        }
    )


TABLES = [make_table(seed) for seed in range(PARTS)]
WHOLE = pa.concat_tables(TABLES)
Arrays = dict[str, np.ndarray]


def make_arrays(table: pa.Table) -> Arrays:
    """The columns of a table as arrays of numpy."""
    arrays = {name: table[name].to_numpy() for name in ("n", "x", "b")}
    return arrays | {"s": np.array(table["s"].to_pylist())}


def _list_rows() -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = {name: list(WHOLE[name].to_numpy()) for name in ("n", "x", "b")}
    return rows | {"s": WHOLE["s"].to_pylist()}


@dataclass(frozen=True)
class Case:
    """A kind of source.

    Attributes
    ----------
    write
        Writes the dataset into a folder; returns what is packed.
    rows
        Returns the value of each row by field, as `Readback.column` gives it; of other fields,
        nothing is expected.
    options
        Of `pack`.
    warns
        Whether `pack` warns.
    """

    write: Callable[[Path], Any]
    rows: Callable[[], Mapping[str, list[Any]]] = _list_rows
    options: Mapping[str, Any] = field(default_factory=dict)
    warns: bool = False


def _write_parquet(folder: Path) -> Path:
    for number, table in enumerate(TABLES):
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=ROWS // 2)
    return folder


def _write_npy(folder: Path) -> str:
    for number, table in enumerate(TABLES):
        (folder / f"part{number}").mkdir()
        for name, array in make_arrays(table).items():
            np.save(folder / f"part{number}" / f"{name}.npy", array)
    return f"{folder}/*/*.npy"


def _write_npz(folder: Path) -> str:
    for number, table in enumerate(TABLES):
        save: Any = np.savez if number % 2 else np.savez_compressed
        save(folder / f"{number}.npz", **make_arrays(table))
    return f"{folder}/*.npz"


def _write_zarr(store: Any, version: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about text of a fixed length in version 3
        group = zarr.open_group(store, mode="w", zarr_format=version)  # type: ignore[arg-type]
        for number, (name, array) in enumerate(make_arrays(WHOLE).items()):
            group.create_array(name, data=array, chunks=(ROWS // (number + 1),))


def _write_zarr_folder(version: int) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        _write_zarr(folder / "a.zarr", version)
        return folder / "a.zarr"

    return write


def _write_zarr_zip(folder: Path) -> Path:
    with zarr.storage.ZipStore(folder / "a.zarr.zip", mode="w") as store:
        _write_zarr(store, 3)
    return folder / "a.zarr.zip"


def _write_hdf5(folder: Path) -> Path:
    for number, table in enumerate(TABLES):
        with h5py.File(folder / f"{number}.h5", "w") as file:
            _write_datasets(file, table)
    return folder


def _write_episodes(folder: Path) -> Path:
    with h5py.File(folder / "demos.h5", "w") as file:
        for number, table in enumerate(TABLES):
            _write_datasets(file.create_group(f"data/demo_{number}"), table)
    return folder / "demos.h5"


def _write_datasets(group: Any, table: pa.Table) -> None:
    for name, array in make_arrays(table).items():
        values = table["s"].to_pylist() if name == "s" else array
        kind = h5py.string_dtype() if name == "s" else None
        group.create_dataset(name, data=values, dtype=kind, chunks=(ROWS // 3,))


def _write_litdata(folder: Path) -> Path:
    rows = WHOLE.to_pylist()
    return write_stream(folder / "stream", lambda row: rows[row], len(rows), ROWS)


def _make_image(row: int) -> bytes:
    stream = io.BytesIO()
    pixels = np.random.default_rng(row).integers(0, 256, (4, 5, 3), np.uint8)
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def _write_images(folder: Path) -> Path:
    for row in range(len(WHOLE)):
        path = folder / f"class{row * PARTS // len(WHOLE)}" / f"{row:04d}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(_make_image(row))
    return folder


def _list_images() -> dict[str, list[Any]]:
    return {"image": [_make_image(row) for row in range(len(WHOLE))]}


def _write_tars(folder: Path) -> Path:
    rows = WHOLE.to_pylist()
    for number in range(PARTS):
        with tarfile.open(folder / f"{number}.tar", "w") as tar:
            for row in range(number * ROWS, (number + 1) * ROWS):
                for name, data in (
                    ("id", str(rows[row]["n"]).encode()),
                    ("txt", rows[row]["s"].encode()),
                    ("png", _make_image(row)),
                ):
                    info = tarfile.TarInfo(f"{row:04d}.{name}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    return folder


def _list_samples() -> dict[str, list[Any]]:
    rows = _list_rows()
    return {"id": rows["n"], "txt": rows["s"]} | {"png": _list_images()["image"]}


def _write_slab(folder: Path) -> Path:
    pack(WHOLE, folder / "a.slab", shard_size=3000)
    return folder / "a.slab"


def _write_delta(folder: Path) -> Path:
    for table in TABLES:
        write_deltalake(folder / "table", table, mode="append")
    return folder / "table"


def _write_lance(folder: Path) -> Path:
    lance.write_dataset(WHOLE, folder / "a.lance", max_rows_per_file=ROWS)
    return folder / "a.lance"


def write_iceberg(folder: Path, tables: Sequence[pa.Table]) -> Any:
    """Write a table of Iceberg, appending some tables; returns it."""
    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
    catalog.create_namespace_if_not_exists("ns")
    table = catalog.create_table("ns.t", tables[0].schema)
    for rows in tables:
        table.append(rows)
    return table


def _write_iceberg(folder: Path) -> Path:
    write_iceberg(folder, TABLES)
    return folder / "ns" / "t"


_ANNDATA = Path(__file__).parent / "hdf5" / "anndata_csr"


def _write_anndata(folder: Path) -> Path:
    for number in range(2):
        data = gzip.decompress(_ANNDATA.with_suffix(".h5ad.gz").read_bytes())
        (folder / f"{number}.h5ad").write_bytes(data)
    return folder


def _list_cells() -> dict[str, list[Any]]:
    told = json.loads(_ANNDATA.with_suffix(".json").read_text())
    sparse = [np.array(row, np.float32) for row in told["matrices"]["X"]]
    return {
        "X.values": [row[row != 0] for row in sparse] * 2,
        "X.indices": [np.flatnonzero(row).astype(np.int32) for row in sparse] * 2,
        "obsm/X_pca": [np.array(row, np.float32) for row in told["pca"]] * 2,
        "obs/kind": told["obs"]["kind"] * 2,
    }


CASES = {
    "parquet": Case(_write_parquet),
    "npy": Case(_write_npy),
    "npz": Case(_write_npz),
    "zarr 2": Case(_write_zarr_folder(2)),
    "zarr 3": Case(_write_zarr_folder(3)),
    "zarr zip": Case(_write_zarr_zip),
    "delta": Case(_write_delta),
    "iceberg": Case(_write_iceberg),
    "lance": Case(_write_lance),
    "hdf5": Case(_write_hdf5),
    "hdf5 episodes": Case(_write_episodes, options={"settings": {"episodes": "data/demo_*"}}),
    "litdata": Case(_write_litdata),
    "images": Case(_write_images, _list_images),
    "webdataset": Case(_write_tars, _list_samples),
    "slab": Case(_write_slab, options={"from_": "slab"}),
    "h5ad": Case(_write_anndata, _list_cells, {"nulls": {"*": "mask"}}, warns=True),
}
