"""A small slab with arrays of every role, to be copied and damaged."""

import errno
import io
import random
import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from tests.contents import Row, nested_row
from tests.golden.make import IMAGES, PHOTOS

from fieldslab.packer import pack

ROWS, SHARD = 8, 4
MOST = 2**22
"""Bytes of a file that is still changed: others are sparse, and made to be refused."""


@dataclass(frozen=True)
class Subject:
    """A whole slab and the rows of each of its fields."""

    slab: Path
    rows: dict[str, list[Row]] = field(repr=False)


def make_subject(folder: Path) -> Subject:
    """Pack a small slab with arrays of every role, in two shards."""
    rng = random.Random(1)
    rows: dict[str, list[Row]] = {
        "x": [struct.pack("<f", row / 3) for row in range(ROWS)],
        "nd": [rng.randbytes(12) for _ in range(ROWS)],
        "n": [None if row in (5, 7) else struct.pack("<q", row << 40) for row in range(ROWS)],
        "r": [np.arange(row % 5, dtype="<i4").tobytes() for row in range(ROWS)],
        "t": ["größe" * (row % 3) for row in range(ROWS)],
        "b": [None if row == 2 else bytes(range(row)) for row in range(ROWS)],
        "i": [[*IMAGES.values()][row % 3] for row in range(ROWS)],
        "j": [PHOTOS["420.jpeg" if row in (0, 3, 7) else "grey.png"] for row in range(ROWS)],
        "c": ["abc"[row % 3] for row in range(ROWS)],
        "d": [f"name {row * 140}" for row in range(ROWS)],
        "ts": [struct.pack("<q", row * 10**15) for row in range(ROWS)],
        "z": [f"row {row} " * row for row in range(ROWS)],
        "zf": [struct.pack("<4d", row, 0, 0, 0) for row in range(ROWS)],
        "lt": [nested_row(["größe", "", f"{row}"][: row % 4]) for row in range(ROWS)],
        "ln": [
            None if row == 6 else nested_row([bytes(8 * row), None, b""][: row % 4])
            for row in range(ROWS)
        ],
        "lz": [nested_row([f"{row} " * 9] * (row % 3)) for row in range(ROWS)],
        "big": [rng.randbytes(70_000 if row == 6 else row) for row in range(ROWS)],
    }
    names = pa.array([f"name {row}" for row in range(1100)])
    columns = {
        name: pa.array(values, pa.string() if isinstance(values[0], str) else pa.binary())
        for name, values in rows.items()
    } | {
        "n": pa.array([None if row in (5, 7) else row << 40 for row in range(ROWS)]),
        "c": pa.array(rows["c"]).dictionary_encode(),
        "d": pa.DictionaryArray.from_arrays(pa.array([row * 140 for row in range(ROWS)]), names),
        "lt": pa.array([["größe", "", f"{row}"][: row % 4] for row in range(ROWS)]),
        "ln": pa.array(
            [None if row == 6 else [[0] * row, None, []][: row % 4] for row in range(ROWS)],
            pa.list_(pa.list_(pa.int64())),
        ),
        "lz": pa.array([[f"{row} " * 9] * (row % 3) for row in range(ROWS)]),
        "ts": pa.array([row * 10**15 for row in range(ROWS)], pa.timestamp("us", "UTC")),
    }
    grey = np.asarray(Image.open(io.BytesIO(PHOTOS["grey.png"]))).tobytes() + b"\x80" * 40
    rows["j"] = [grey if row == PHOTOS["grey.png"] else row for row in rows["j"]]
    pq.write_table(pa.table(columns), folder / "rows.parquet", row_group_size=SHARD)
    pack(
        folder / "rows.parquet",
        folder / "whole.slab",
        shard_size=1,
        nulls={"*": "mask"},
        tensor={"x": "f4[]", "nd": "i2[2,3]", "r": "i4[*]", "zf": "f8[4]"},
        image={"i": None, "j": "yuv420,fraction=0.5"},
        compress=["z", "zf", "lz"],
    )
    return Subject(folder / "whole.slab", rows)


def list_files(slab: Path) -> list[str]:
    """Every file of a slab, by its path within."""
    return sorted(str(path.relative_to(slab)) for path in slab.rglob("*") if path.is_file())


def read_file(path: Path) -> bytes:
    """Read a file that is still changed. Raises OSError for a larger one."""
    if path.stat().st_size > MOST:
        raise OSError(errno.EFBIG, "too large to be changed", path)
    return path.read_bytes()


def own_file(path: Path) -> Path:
    """Make a file one of its own, no longer a link to the whole slab's."""
    data = read_file(path)
    path.unlink()
    path.write_bytes(data)
    return path
