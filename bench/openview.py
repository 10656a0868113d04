"""The rows of a slab that a command reads: all, or those that a file lists."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fieldslab.packer.rewrite.selection import read_row_numbers
from fieldslab.reader import Slab, open_slab
from fieldslab.schemas.errors import UsageError
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


def slice_as_saved(slab: Slab, state: Mapping[str, Any], rows_file: Path | None) -> Slab:
    """Slice a slab as the one was with which a loader saved its state; itself where it was whole.

    Raises UsageError where the state is of a slice and `rows_file` is given, or of other rows and
    it is not.
    """
    view = state.get("view")
    if isinstance(view, dict) and rows_file is None:
        hint = "Save it with view.save('NAME.rows'), and give --rows-file NAME.rows."
        raise UsageError("--state: the run had a view of chosen rows", hint=hint)
    if not isinstance(view, list) or [type(number) for number in view] != [int] * 3 or not view[2]:
        return slab
    if rows_file is None:
        start, stop, step = view
        return slab[start : stop if stop >= 0 else None : step]
    problem = "--rows-file: the run had a slice of the slab, which its state tells"
    raise UsageError(problem, found=f"[{':'.join(map(str, view))}]", hint="Leave it out.")
