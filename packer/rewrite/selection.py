"""Which fields and rows of a slab are written again."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from fieldslab.packer.check.stored import StoredSlab
from fieldslab.packer.column_names import match_names
from fieldslab.schemas.conditions.filtering import Values, find_rows
from fieldslab.schemas.errors import RowOutOfRange, UsageError
from fieldslab.schemas.fields import Field
from fieldslab.schemas.manifest import Manifest
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.registry import make_unknown_name_error
from fieldslab.schemas.rowfile import SUFFIX, read_row_file


def select_fields(
    fields: Iterable[Field],
    included: str | Iterable[str] | None,
    excluded: str | Iterable[str] = (),
    option: str = "fields",
) -> list[Field]:
    """Choose fields by names and patterns; `option` is that of those included.

    Raises UsageError for a name that is none.
    """
    by_name = {field.name: field for field in fields}
    chosen = by_name.keys() if included is None else _match(included, option, by_name)
    selected = chosen - _match(excluded, "exclude", by_name)
    if not selected:
        raise UsageError("no field is left", hint=f"The slab has {', '.join(by_name)}.")
    return [field for name, field in by_name.items() if name in selected]


def _match(names: str | Iterable[str], option: str, by_name: dict[str, Field]) -> set[str]:
    texts = [names] if isinstance(names, str) else list(names)
    matched: set[str] = set()
    for name in (part for text in texts for part in text.split(",")):
        matches = match_names(name, by_name)
        if not set(matches) & by_name.keys():
            problem = f"{mark_option(option)}: the slab has no field {name!r}"
            raise make_unknown_name_error(problem, name, by_name)
        matched |= set(matches)
    return matched


def select_rows(
    source: Manifest, rows_file: Any, drop_rows: Any, matching: np.ndarray | None
) -> np.ndarray | None:
    """Choose rows of a slab: int64[n], ascending; None for all.

    `matching` are rows that fulfil a condition, if there is one.

    Raises UsageError for what is no list of rows, RowOutOfRange for a row that is not there,
    SlabChanged for rows of another slab.
    """
    if rows_file is None and drop_rows is None:
        return matching
    selected = np.zeros(source.rows, np.bool_)
    selected[
        slice(None) if rows_file is None else read_row_numbers(rows_file, "rows_file", source)
    ] = True
    if drop_rows is not None:
        selected[read_row_numbers(drop_rows, "drop_rows", source)] = False
    return np.flatnonzero(selected) if matching is None else matching[selected[matching]]


def find_matching_rows(slab: StoredSlab, condition: Any) -> np.ndarray:
    """Find the rows of a slab for which a condition is true: ascending, int64[n].

    Raises UsageError for a condition that does not fit, and what `StoredSlab.read` raises.
    """
    fields = {field.name: field for field in slab.manifest.fields}

    def read(rows: range, names: list[str]) -> dict[str, Values]:
        values: dict[str, Values] = {}
        for name in names:
            stored = slab.read(fields[name], rows.start, rows.stop)
            if stored.lengths is None:
                values[name] = stored.values.view(fields[name].view), None, stored.valid
            else:
                offsets = np.concatenate([[0], np.cumsum(stored.lengths)])
                values[name] = stored.values, offsets, stored.valid
        return values

    def read_categories(name: str) -> list[str]:
        return slab.read_categories(fields[name])

    return find_rows(condition, fields, read_categories, read, slab.manifest.rows)


def read_row_numbers(selection: Any, option: str, source: Manifest) -> np.ndarray:
    """Read row numbers of a slab, in the order given: int64[n].

    `selection` is an array, or a file `.rows`, `.npy` or of text; `option` is that of errors. See
    `select_rows` for these.
    """
    total = source.rows
    path = Path(selection) if isinstance(selection, str | Path) else None
    if path is not None and path.suffix == SUFFIX:
        return read_row_file(path, source.id, total).astype(np.int64)
    try:
        if path is None:
            rows = np.asarray(selection)
        elif path.suffix == ".npy":
            rows = np.load(path, allow_pickle=False)
        else:
            rows = _parse_rows(path)
    except OSError as error:
        raise UsageError(
            f"{mark_option(option)}: cannot be read: {error.strerror or error}", file=path
        ) from error
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"{mark_option(option)}: {error}",
            file=path,
            expected="a .npy file of integers, or a text file with a row number per line",
        ) from error
    if rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
        is_mask = rows.dtype.kind == "b" and rows.shape == (total,)
        raise UsageError(
            f"{mark_option(option)}: not a list of row numbers",
            file=path,
            expected="integers, one axis",
            found=f"{rows.dtype}{list(rows.shape)}",
            hint="`np.flatnonzero(mask)` lists the rows of a mask." if is_mask else None,
        )
    out_of_range = (rows < 0) | (rows >= total)
    if out_of_range.any():
        position = int(np.argmax(out_of_range))
        raise RowOutOfRange(
            f"{mark_option(option)}: no such row",
            file=path,
            row=int(rows[position]),
            expected=f"0..{total - 1}" if total else "none, as the slab has no rows",
        )
    return rows.astype(np.int64)


def _parse_rows(path: Path) -> np.ndarray:
    """Parse a text file of row numbers: int64[n]. Raises ValueError with the number of a line."""
    rows = []
    for number, line in enumerate(path.read_text("utf-8-sig").splitlines(), 1):
        text = line.strip()
        if text and not re.fullmatch(r"[+-]?[0-9]+", text):
            shown = text if len(text) <= 40 else text[:40] + "..."
            raise ValueError(f"line {number} is not a row number: {shown!r}")
        if text:
            rows.append(int(text))
    return np.array(rows, np.int64)
