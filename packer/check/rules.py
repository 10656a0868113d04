"""Rules for the content of arrays beyond their digests: offsets, flags, category codes."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fieldslab.schemas.access import Folder
from fieldslab.schemas.layout import ArrayFile

FindBroken = Callable[[np.ndarray, int, int], np.ndarray]
"""Flags items that break a rule: (flat items, first index, item before) -> bool[items]."""


class ContentRule(NamedTuple):
    """A rule: what to say where it is broken, what is expected, and which items break it."""

    problem: str
    expected: str
    dtype: np.dtype[np.generic]
    find_broken: FindBroken


def choose_rule(folder: Folder, file: ArrayFile) -> ContentRule | None:
    """Return the rule that the items of an array must obey, or None if any bytes are allowed."""
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


def _make_offsets_rule(last: int, elements: int) -> ContentRule:
    """Make the rule of offsets: item 0 is 0, item `last` is `elements`, and none decreases."""

    def find_broken(items: np.ndarray, first: int, before: int) -> np.ndarray:
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
    return ContentRule(problem, f"0..{elements}, never decreasing", np.dtype("<u8"), find_broken)


def _make_limits_rule(
    limits: tuple[int, int], problem: str, dtype: np.dtype[np.generic]
) -> ContentRule:
    low, high = limits

    def find_broken(items: np.ndarray, first: int, before: int) -> np.ndarray:
        return items > high if dtype.kind == "u" else (items < low) | (items > high)

    return ContentRule(problem, f"{low}..{high}", dtype, find_broken)
