"""Row numbers in `.npy` files, mapped: in memory only where they are read."""

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from fieldslab.reader.rows import make_out_of_range_error
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.mapping import map_numbers
from fieldslab.schemas.rowfile import SUFFIX

_MAGIC = b"\x93NUMPY"
_CHUNK = 1 << 20
"""Rows that are looked at together."""


def open_row_file(path: str | os.PathLike[str]) -> np.ndarray:
    """Map a `.npy` file of row numbers: an array of integers in one dimension.

    Raises UsageError.
    """
    if Path(path).suffix == SUFFIX:
        raise UsageError(
            "row numbers are read from a .npy file",
            file=Path(path),
            hint="slab.select(path) gives a view of the rows that a view saved.",
        )
    try:
        with open(path, "rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise ValueError("not a .npy file")
        rows: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"cannot read row numbers: {reason}", file=Path(path), hint="Write it with numpy.save."
        ) from None
    if not isinstance(rows, np.ndarray) or rows.ndim != 1 or rows.dtype.kind not in "iu":
        found = f"{rows.dtype}{list(rows.shape)}" if isinstance(rows, np.ndarray) else "an archive"
        raise UsageError(
            "a file of rows has integers in one dimension", file=Path(path), found=found
        )
    if not len(rows):
        return rows
    return map_numbers(Path(path), rows.dtype, getattr(rows, "offset", 0), len(rows))


def check_bounds(rows: np.ndarray, total: int) -> None:
    """Raise RowOutOfRange for a row that is not in -total..total-1."""
    for first in range(0, len(rows), _CHUNK):
        some = rows[first : first + _CHUNK]
        wrong = (some < -total) | (some >= total)
        if wrong.any():
            position = int(np.argmax(wrong))
            raise make_out_of_range_error(int(some[position]), total, first + position)


def is_ascending(rows: np.ndarray) -> bool:
    """Whether each row is above the one before it, from 0 on: none comes twice."""
    chunks = (rows[first : first + _CHUNK + 1] for first in range(0, len(rows), _CHUNK))
    # No differences: those of unsigned integers are never negative.
    return not len(rows) or (
        rows[0] >= 0 and all(bool((chunk[1:] > chunk[:-1]).all()) for chunk in chunks)
    )


def digest_array(array: np.ndarray) -> dict[str, Any]:
    """Count and digest of an array, by which two are told apart; ready for JSON.

    Integers of other widths are digested as int64.
    """
    digest = hashlib.sha256()
    dtype = np.dtype(np.int64) if array.dtype.kind in "iu" else array.dtype
    for first in range(0, len(array), _CHUNK):
        digest.update(np.ascontiguousarray(array[first : first + _CHUNK], dtype).data)
    return {"count": len(array), "sha256": digest.hexdigest()[:16]}
