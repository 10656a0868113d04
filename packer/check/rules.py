"""Rules for the content of arrays beyond their digests: offsets, flags, category codes."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fieldslab.schemas.access import Folder
from fieldslab.schemas.layout import ArrayFile

Wrong = Callable[[np.ndarray, int, int], np.ndarray]
"""Flags wrong items: (flat items, index of the first, the item in front of it) -> bool[items]."""


class Rule(NamedTuple):
    """A rule: what to say where it is broken, what is expected, and which items break it."""

    problem: str
    expected: str
    dtype: np.dtype[np.generic]
    wrong: Wrong


def find_rule(folder: Folder, file: ArrayFile) -> Rule | None:
    """The rule of an array; None where any bytes will do."""
    field = file.field
    for other in folder.files:
        if other.field is field and other.spec.by == file.role:
            return _make_offsets_rule(file.shape[0] - 1, other.shape[0])
    if file.spec.limits is None:
        return None
    if file.dtype == np.bool_:
        return _make_limits_rule(file.spec.limits, "a flag is neither 0 nor 1", np.dtype("u1"))
    if field.kind == "categorical":
        return _make_limits_rule(file.spec.limits, "a code has no category", file.dtype)
    return _make_limits_rule(file.spec.limits, f"no {file.role} has this code", file.dtype)


def _make_offsets_rule(last: int, elements: int) -> Rule:
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


def _make_limits_rule(limits: tuple[int, int], problem: str, dtype: np.dtype[np.generic]) -> Rule:
    low, high = limits

    def wrong(items: np.ndarray, first: int, before: int) -> np.ndarray:
        return items > high if dtype.kind == "u" else (items < low) | (items > high)

    return Rule(problem, f"{low}..{high}", dtype, wrong)
