"""Files of rows, `*.rows`: the rows of a slab that somebody chose. FORMAT.md describes them."""

import hashlib
import json
import os
from pathlib import Path

import msgspec
import numpy as np

from fieldslab.schemas.drafts import replace_file
from fieldslab.schemas.errors import SlabChanged, Unreadable, UsageError
from fieldslab.schemas.mapping import map_numbers
from fieldslab.schemas.write_errors import name_write_errors

SUFFIX = ".rows"
_HEADER_BYTES = 512
_REPLACE = "Save the view again: view.save(path)."


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The first line of a file."""

    format: str
    version: int
    slab: str
    total: int
    count: int
    dtype: str
    sha256: str


def write_row_file(path: Path, slab: str, total: int, rows: np.ndarray) -> None:
    """Write a file of rows of the slab with the id `slab`, which has `total`; replace another one.

    Raises OutputDenied, NoSpace, OutputError.
    """
    dtype = "<u4" if total <= 2**32 else "<i8"
    data = np.ascontiguousarray(rows, dtype)
    header = _Header(
        format="fieldslab rows",
        version=1,
        slab=slab,
        total=total,
        count=len(data),
        dtype=dtype,
        sha256=hashlib.sha256(data.data).hexdigest(),
    )
    text = json.dumps(msgspec.to_builtins(header)).encode()
    with name_write_errors(path), replace_file(path) as file:
        file.write(text.ljust(_HEADER_BYTES - 1) + b"\n")
        file.write(data.data)


def read_row_file(path: Path, slab: str, total: int) -> np.ndarray:
    """Map the rows of a slab from a file: uint32 or int64, of shape (n,), each in 0..total-1.

    Raises
    ------
    SlabChanged
        The file has rows of another slab than the one with the id `slab`.
    UsageError, Unreadable
        It is no file of rows, or damaged; it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            line = file.read(_HEADER_BYTES)
        header = msgspec.json.decode(line, type=_Header)
    except OSError as error:
        raise Unreadable(f"rows cannot be read: {error.strerror or error}", file=path) from error
    except msgspec.DecodeError as error:
        raise UsageError(f"not a file of rows: {error}", file=path, hint=_REPLACE) from None
    if (header.format, header.version) != ("fieldslab rows", 1):
        found = f"{header.format!r}, version {header.version}"
        raise UsageError("not a file of rows that this version reads", file=path, found=found)
    if header.slab != slab:
        raise SlabChanged(
            "the rows are those of another slab",
            file=path,
            expected=f"the id {header.slab}, of {header.total:,} rows",
            found=f"{slab}, of {total:,}",
            hint="Select them from that slab, or save a view of this one. Slabs that are opened as "
            "one have another id once a slab is added, removed or replaced, or comes elsewhere in "
            "their sequence.",
        )
    if header.dtype not in ("<u4", "<i8"):
        raise UsageError("not a file of rows", file=path, found=f"dtype {header.dtype!r}")
    dtype = np.dtype(header.dtype)
    size, expected = os.path.getsize(path), _HEADER_BYTES + header.count * dtype.itemsize
    if size != expected:
        raise UsageError(
            "the file of rows is damaged",
            file=path,
            expected=f"{expected:,} bytes",
            found=f"{size:,}",
            hint=_REPLACE,
        )
    if not header.count:
        return np.empty(0, dtype)
    try:
        rows = map_numbers(path, dtype, _HEADER_BYTES, header.count)
    except OSError as error:
        raise Unreadable(f"rows cannot be read: {error.strerror or error}", file=path) from error
    sound = hashlib.sha256(rows.data).hexdigest() == header.sha256
    if not sound or rows.min() < 0 or rows.max() >= total:
        raise UsageError("the file of rows is damaged", file=path, hint=_REPLACE)
    return rows
