"""Columns of many files as one schema: wider numbers, and nulls where a file lacks a column."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

_SIGNED = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_UNSIGNED = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_FLOATS = (pa.float16(), pa.float32(), pa.float64())


def widen_type(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """Return the smallest type that holds all values of both exactly; None where there is none.

    Integers become wider integers, and floats wider floats; nothing else is changed.
    """
    if first == second or pa.types.is_null(second):
        return first
    if pa.types.is_null(first):
        return second
    for kinds in (_SIGNED, _UNSIGNED, _FLOATS):
        if first in kinds and second in kinds:
            return max(first, second, key=kinds.index)
    if first in _UNSIGNED and second in _SIGNED:
        first, second = second, first
    if first in _SIGNED and second in _UNSIGNED:
        place = max(_SIGNED.index(first), _UNSIGNED.index(second) + 1)
        return _SIGNED[place] if place < len(_SIGNED) else None
    return None


def widen_schema(
    columns: Mapping[str, pa.DataType], files: Iterable[Any]
) -> tuple[dict[str, pa.DataType], list[str]]:
    """Widen the columns of the first file so that they hold those of all files; say what was done.

    A type that cannot be widened stays as it is.
    """
    kinds: dict[str, list[pa.DataType]] = {}
    total = 0
    for file in files:
        total += 1
        for name in file.names:
            kinds.setdefault(name, []).append(file.get_type(name))
    unified: dict[str, pa.DataType] = {}
    lines = []
    for name in dict.fromkeys([*columns, *kinds]):
        kind = kinds[name][0]
        for other in kinds[name][1:]:
            kind = widen_type(kind, other) or kind
        unified[name] = kind
        narrow = [other for other in kinds[name] if other != kind and widen_type(kind, other)]
        if narrow:
            shown = ", ".join(sorted({str(other) for other in narrow}))
            lines.append(f"{name}: read as {kind}; {len(narrow):,} files of {total:,} have {shown}")
        if len(kinds[name]) < total:
            count = total - len(kinds[name])
            lines.append(f"{name}: null in {count:,} files of {total:,}, which lack it")
    return unified, lines
