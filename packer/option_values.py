"""Values of options as users write them: names, pairs, sizes, rows."""

import operator
import re
from collections.abc import Iterable, Mapping
from datetime import date, time
from numbers import Number
from typing import Any
from uuid import UUID

import numpy as np

from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.optiontext import mark_option

_EXAMPLES = {
    "rename": "NEW",
    "cast": "f4",
    "tensor": "f4[3,4]",
    "stack": "feature_*",
    "nulls": "mask",
    "tokenize": "tokenizer.json",
    "compress": "3",
}
"""What may stand behind a name, for people."""


_FILLERS = (str, Number, np.generic, date, time, UUID)
"""Types of what may take the place of nulls."""


def parse_names(name: str, names: str | Iterable[str]) -> tuple[str, ...]:
    """Parse one or several names of columns."""
    columns = (names,) if isinstance(names, str) else tuple(names)
    for column in columns:
        if not isinstance(column, str):
            raise UsageError(f"{mark_option(name)}: not the name of a column", found=repr(column))
    return columns


def parse_pairs(
    name: str,
    pairs: Mapping[str, Any] | Iterable[str],
    types: tuple[type, ...] = (str,),
    empty: bool = False,
) -> dict[str, str]:
    """Parse what is given for each name: `{"a": "f4"}` or `["a=f4"]`.

    Values of a mapping are of these `types`. "" is a value of text if `empty`.
    """
    if isinstance(pairs, Mapping):
        for key, value in pairs.items():
            if not isinstance(key, str):
                raise UsageError(f"{mark_option(name)}: not the name of a column", found=repr(key))
            if not isinstance(value, types):
                raise UsageError(
                    f"{mark_option(name)}: is not valid",
                    field=key,
                    found=repr(value),
                    expected="text",
                )
        return {key: str(value) for key, value in pairs.items()}
    parsed: dict[str, str] = {}
    items: Any = [pairs] if isinstance(pairs, str) or not isinstance(pairs, Iterable) else pairs
    for item in items:
        key, equals, value = (part.strip() for part in str(item).partition("="))
        if not equals or not key or not (value or empty):
            raise UsageError(
                f"{mark_option(name)}: is not valid",
                found=item,
                hint=f"Write {mark_option(name, _EXAMPLES[name], column='NAME')}.",
            )
        if key in parsed:
            raise UsageError(f"{mark_option(name)}: given twice", field=key, found=item)
        parsed[key] = value
    return parsed


def parse_nulls(columns: Mapping[str, Any] | Iterable[str]) -> dict[str, str]:
    """Parse what to do with the nulls of each column: a word, or a value to fill them with."""
    return parse_pairs("nulls", columns, _FILLERS, empty=True)


def parse_integer(name: str, value: Any) -> int:
    """Parse an integer; raises UsageError for anything else, such as text."""
    try:
        return operator.index(value)
    except TypeError as error:
        raise UsageError(f"{mark_option(name)}: must be an integer", found=repr(value)) from error


def parse_rows(
    rows: str | tuple[int, int | None] | None, limit: int | None
) -> tuple[int, int | None] | None:
    """Parse first row and stop row, which is None without an end; return None for all rows."""
    start, stop = 0, None
    if isinstance(rows, str):
        match = re.fullmatch(r"(\d*):(\d*)", rows.strip())
        if match is None:
            raise UsageError(
                f"{mark_option('rows')}: must have the form A:B",
                found=rows,
                expected="0:1000, :1000 or 1000:",
            )
        start, stop = int(match[1] or 0), int(match[2]) if match[2] else None
    elif rows is not None:
        if len(rows) != 2:
            raise UsageError(
                f"{mark_option('rows')}: must be two numbers", found=rows, expected="(0, 1000)"
            )
        start = parse_integer("rows", rows[0])
        stop = None if rows[1] is None else parse_integer("rows", rows[1])
    if limit is not None:
        limit = parse_integer("limit", limit)
        if limit < 0:
            raise UsageError(f"{mark_option('limit')} must not be negative", found=limit)
        stop = start + limit if stop is None else min(stop, start + limit)
    if start < 0 or (stop is not None and stop < start):
        raise UsageError(
            f"{mark_option('rows')}: the end lies before the start", found=f"{start}:{stop}"
        )
    return None if (start, stop) == (0, None) else (start, stop)
