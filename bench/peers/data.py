"""The workloads, made on the spot: encoded photographs, short rows, tensors, jets, tokens."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fieldslab.bench.peers.source import Workload, save
from fieldslab.bench.photographs import own_photographs, photographs
from fieldslab.schemas.errors import UsageError

Make = Callable[[Path, int], Workload]
"""Writes a workload of about as many bytes into a folder."""

PHOTOGRAPH = 70_000
VOCABULARY = 50_000


def make_photographs(folder: Path, size: int, images: Path | None = None) -> Workload:
    """Make rows of JPEG files, shipped ones or those of the user's folder, and a label."""
    count = max(size // PHOTOGRAPH, 8)
    files = list(own_photographs(images, count) if images else photographs(count))
    labels = np.random.default_rng(1).integers(0, 1000, len(files))
    columns = {"image": files, "label": labels}
    return save(folder, "photographs", "encoded photographs, variable size", 64, columns)


def make_rows(folder: Path, size: int) -> Workload:
    """Make rows of 256 float32, a label and 5 to 60 tokens."""
    count = max(size // 4 // 1100, 8)  # fewer bytes where each row costs the peers much
    rng = np.random.default_rng(2)
    lengths = rng.integers(5, 60, count)
    columns = {
        "vector": rng.standard_normal((count, 256), np.float32),
        "label": rng.integers(0, 1000, count),
        "tokens": _documents(rng, lengths, np.int32),
    }
    return save(folder, "rows", "1 KB of floats, a label, ragged tokens", 256, columns)


def make_tensors(folder: Path, size: int) -> Workload:
    """Make rows of 400 x 500 float32 and a label."""
    count = max(size // 800_000, 8)
    rng = np.random.default_rng(3)
    columns = {
        "tensor": rng.standard_normal((count, 400, 500), np.float32),
        "label": rng.integers(0, 1000, count),
    }
    return save(folder, "tensors", "tensors of 800 KB and a label", 16, columns)


def make_jets(folder: Path, size: int) -> Workload:
    """Make rows of 100 x 11 float32, about 40 x 11 not padding, their number and a label."""
    count = max(size // 2 // 4416, 8)
    rng = np.random.default_rng(4)
    particles = np.clip(rng.normal(40, 15, count).round(), 1, 100).astype(np.int32)
    features = rng.standard_normal((count, 100, 11), np.float32)
    features[np.arange(100) >= particles[:, None]] = 0
    columns = {"features": features, "particles": particles, "label": rng.integers(0, 10, count)}
    return save(folder, "jets", "padded jets as in JetClass", 128, columns)


def make_tokens(folder: Path, size: int) -> Workload:
    """Make documents of 16 to 8,192 uint16, about 500 on average."""
    count = max(size // 4 // 1000, 8)
    rng = np.random.default_rng(5)
    lengths = np.clip(rng.lognormal(5.7, 1.0, count), 16, 8192).astype(np.int64)
    documents = _documents(rng, lengths, np.uint16)
    return save(folder, "tokens", "tokenised documents", 256, {"tokens": documents})


def make_own(folder: Path, size: int, file: Path) -> Workload:
    """Read the user's Parquet file: columns of numbers, lists of numbers, text and binary."""
    try:
        table = pq.read_table(file)
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"this Parquet file cannot be read: {error}", found=file) from error
    keep = max(1, min(table.num_rows, table.num_rows * size // max(table.nbytes, 1)))
    columns: dict[str, Any] = {}
    for name in table.column_names:
        values = table[name].slice(0, keep)
        if values.null_count == 0 and (rows := _plain(values)) is not None:
            columns[name] = rows
    if not columns:
        raise UsageError("no column that can be measured", found=file, hint="Nulls are left out.")
    return save(folder, "own", f"{file.name}: {', '.join(columns)}", 64, columns)


QUICK = ("photographs", "rows")
"""What a quick run is content with."""

MAKERS: dict[str, Make] = {
    "photographs": make_photographs,
    "rows": make_rows,
    "tensors": make_tensors,
    "jets": make_jets,
    "tokens": make_tokens,
}


def _documents(rng: np.random.Generator, lengths: np.ndarray, dtype: Any) -> list[np.ndarray]:
    ends = np.cumsum(lengths)
    words = (rng.zipf(1.2, ends[-1]) % VOCABULARY).astype(dtype)
    return np.split(words, ends[:-1])


def _plain(values: Any) -> Any:
    kind = str(values.type)
    if kind.endswith(("string", "binary", "binary_view", "string_view")):
        rows = [row.encode() if isinstance(row, str) else row for row in values.to_pylist()]
        return rows if any(rows) else None
    if "list<" in kind:
        rows = values.combine_chunks().to_numpy(zero_copy_only=False)
        return list(rows) if rows[0].dtype.kind in "iuf" else None
    array = values.to_numpy()
    return array if array.dtype.kind in "iuf" else None
