"""The rows of a slab that a command reads: all, or those that a file lists."""

from pathlib import Path
from typing import Any

from fieldslab.packer.rewrite.selection import read_row_numbers
from fieldslab.reader import Slab, open_slab
from fieldslab.schemas.rowfile import SUFFIX


def open_view(place: str | Path, rows_file: Path | None = None, **opening: Any) -> Slab:
    """Open a slab with options of `open_slab`, and choose the rows of a file, in its order.

    Raises what `open_slab` raises; UsageError, RowOutOfRange, SlabChanged for files that do not
    list rows of this slab.
    """
    slab = open_slab(place, **opening)
    if rows_file is None:
        return slab
    if rows_file.suffix == SUFFIX:  # it is mapped
        return slab.select(rows_file)
    return slab.select(read_row_numbers(rows_file, "rows_file", slab.manifest))
