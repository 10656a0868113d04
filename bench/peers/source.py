"""What every peer converts: columns in plain `.npy` files, which any environment can read.

This file and what a peer's process imports from here need numpy alone (pyarrow for `batches`).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]
DESCRIPTION = "workload.json"
LEAST_BATCHES = 16
"""In an epoch: with fewer, a loader's queues would hold most of it before the clock starts."""


@dataclass(frozen=True)
class Column:
    """One column: "fixed" rows are `values[i]`, "ragged" and "bytes" lie between offsets."""

    name: str
    kind: str
    values: np.ndarray
    offsets: np.ndarray | None = None

    def row(self, row: int) -> Any:
        """Return a view of one row; `bytes` for encoded data."""
        if self.offsets is None:
            return self.values[row]
        part = self.values[self.offsets[row] : self.offsets[row + 1]]
        return part.tobytes() if self.kind == "bytes" else part

    def bytes_of(self, value: Any) -> bytes:
        """Return a peer's row as the bytes that the source should have there.

        Numbers of a wider type (Python's own, or int64 where a library makes that of int32) are
        taken back to the column's, if that loses nothing.
        """
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        array = np.asarray(value)
        same = array.astype(self.values.dtype)
        return same.tobytes() if np.array_equal(same, array) else array.tobytes()


class Workload:
    """A workload's data: rows of columns, mapped from a folder."""

    def __init__(self, folder: Path) -> None:
        about = json.loads((folder / DESCRIPTION).read_text())
        self.folder = folder
        self.name: str = about["name"]
        self.title: str = about["title"]
        self.batch: int = about["batch"]
        self.rows: int = about["rows"]
        self.columns = {name: _load(folder, name, kind) for name, kind in about["columns"].items()}

    def __len__(self) -> int:
        return self.rows

    @property
    def nbytes(self) -> int:
        """Bytes of all values; offsets are not counted."""
        return sum(column.values.nbytes for column in self.columns.values())

    @property
    def fixed(self) -> bool:
        """Whether all rows have one size, so that default collate functions can stack them."""
        return all(column.kind == "fixed" for column in self.columns.values())

    def row(self, row: int) -> Row:
        """Return one row: arrays are views of the map, encoded data are bytes."""
        return {name: column.row(row) for name, column in self.columns.items()}

    def batches(self, rows: int | None = None) -> Iterator[Any]:
        """Record batches of Arrow, of `rows` rows or about 16 MB; nd rows are flat lists."""
        import pyarrow as pa

        rows = rows or max(1, self.rows * 2**24 // max(self.nbytes, 1))
        for start in range(0, self.rows, rows):
            stop = min(start + rows, self.rows)
            arrays = [_arrow(column, start, stop) for column in self.columns.values()]
            yield pa.record_batch(arrays, names=list(self.columns))


def save(folder: Path, name: str, title: str, batch: int, columns: Mapping[str, Any]) -> Workload:
    """Write a workload. An array is a fixed column, a list of arrays ragged, of bytes encoded."""
    folder.mkdir(parents=True)
    kinds = {}
    for column, rows in columns.items():
        kinds[column] = "fixed"
        values = rows
        if not isinstance(rows, np.ndarray):
            kinds[column] = "bytes" if isinstance(rows[0], bytes) else "ragged"
            parts = [
                np.frombuffer(row, np.uint8) if isinstance(row, bytes) else row for row in rows
            ]
            values = np.concatenate(parts)
            offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
            np.save(folder / f"{column}.offsets.npy", offsets)
        np.save(folder / f"{column}.values.npy", values)
    count = len(next(iter(columns.values())))
    batch = max(1, min(batch, count // LEAST_BATCHES))
    about = {"name": name, "title": title, "batch": batch, "columns": kinds, "rows": count}
    (folder / DESCRIPTION).write_text(json.dumps(about))
    return Workload(folder)


def chunk_bytes(source: Workload) -> int:
    """Return the chunk size for formats made of chunks: 64 MB, at most an eighth of the data.

    Real sets have many chunks, and a reader of few is faster than it would be there.
    """
    return min(2**26, source.nbytes // 8)


def _load(folder: Path, name: str, kind: str) -> Column:
    values = np.load(folder / f"{name}.values.npy", mmap_mode="r")
    if kind == "fixed":
        return Column(name, kind, values)
    return Column(name, kind, values, np.load(folder / f"{name}.offsets.npy"))


def _arrow(column: Column, start: int, stop: int) -> Any:
    import pyarrow as pa

    if column.offsets is None:
        part = np.ascontiguousarray(column.values[start:stop])
        if part.ndim == 1:
            return pa.array(part)
        return pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), part[0].size)
    offsets = column.offsets[start : stop + 1]
    values = np.array(column.values[offsets[0] : offsets[-1]])
    offsets = pa.array(offsets - offsets[0])
    if column.kind == "bytes":
        buffers = [None, offsets.buffers()[1], pa.py_buffer(values)]
        return pa.Array.from_buffers(pa.large_binary(), stop - start, buffers)
    return pa.LargeListArray.from_arrays(offsets, pa.array(values))
