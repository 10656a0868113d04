"""What the content of an array must obey besides its digests: offsets, flags, category codes."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fieldslab.schemas.access import Folder
from fieldslab.schemas.fields import Role
from fieldslab.schemas.images import CODES
from fieldslab.schemas.layout import ArrayFile

OFFSETS: dict[Role, Role] = {
    "offsets": "values", "points.offsets": "points.values",
    "categories.offsets": "categories.values",
}  # fmt: skip
"""Offsets, and the array of what they divide."""

Wrong = Callable[[np.ndarray, int, int], np.ndarray]
"""Flags wrong items: (flat items, index of the first, the item in front of it) -> bool[items]."""


class Rule(NamedTuple):
    """A rule: what to say where it is broken, what is expected, and which items break it."""

    problem: str
    expected: str
    dtype: np.dtype[np.generic]
    wrong: Wrong


def rule_of(folder: Folder, file: ArrayFile) -> Rule | None:
    """The rule of an array; None where any bytes will do."""
    field = file.field
    if file.role in OFFSETS:
        return _offsets(file.shape[0] - 1, len(folder.require(field, OFFSETS[file.role])))
    if file.dtype == np.bool_:
        return Rule("a flag is neither 0 nor 1", "0 or 1", np.dtype("u1"), _not_a_flag)
    if file.role == "codec":
        problem, known = "no codec has this code", f"0..{max(CODES.values())}"
        return Rule(problem, known, np.dtype("u1"), _not_a_code)
    if file.role == "values" and field.kind == "categorical":
        count = field.table.count if field.table is not None else len(field.categories or ())
        return _codes(count)
    return None


def _offsets(last: int, elements: int) -> Rule:
    """Offsets rise from 0, at item 0, to the number of elements, at item `last`."""

    def wrong(items: np.ndarray, first: int, before: int) -> np.ndarray:
        flags = np.empty(len(items), np.bool_)
        flags[0] = items[0] < before
        np.less(items[1:], items[:-1], out=flags[1:])
        if items[-1] > elements or flags.any():  # else none is: they rise
            flags |= items > elements
        if first == 0:
            flags[0] |= items[0] != 0
        if first + len(items) == last + 1:
            flags[-1] |= items[-1] != elements
        return flags

    problem = f"offsets do not rise from 0 to {elements}"
    return Rule(problem, f"0..{elements}, never decreasing", np.dtype("<u8"), wrong)


def _codes(count: int) -> Rule:
    def wrong(items: np.ndarray, first: int, before: int) -> np.ndarray:
        return (items < -1) | (items >= count)

    return Rule("a code names no category", f"-1..{count - 1}", np.dtype("<i4"), wrong)


def _not_a_code(items: np.ndarray, first: int, before: int) -> np.ndarray:
    return items > max(CODES.values())


def _not_a_flag(items: np.ndarray, first: int, before: int) -> np.ndarray:
    return items > 1
