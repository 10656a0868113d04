"""Categories that no row has any more, and what codes become without them."""

from typing import NamedTuple

import msgspec
import numpy as np

from fieldslab.packer.check.stored import StoredSlab
from fieldslab.packer.rewrite.runs import group_runs
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import (
    MAX_INLINE_BYTES,
    MAX_INLINE_CATEGORIES,
    CategoryTable,
    Field,
)

_PIECE = 2**20
"""Rows whose codes are read at a time."""


class UsedCategories(NamedTuple):
    """The categories that rows have, and what each code becomes: int32[all categories]."""

    names: list[str]
    codes: np.ndarray

    def convert(self, values: np.ndarray) -> np.ndarray:
        """Replace codes, int32[n]; negative ones stay."""
        return np.where(values < 0, values, self.codes[values]).astype(np.int32)

    def describe(self, field: Field) -> Field:
        """Describe the field with these categories: few in the manifest, many in a table."""
        size = sum(len(name.encode()) for name in self.names)
        inline = len(self.names) <= MAX_INLINE_CATEGORIES and size <= MAX_INLINE_BYTES
        return msgspec.structs.replace(
            field,
            categories=tuple(self.names) if inline else None,
            table=None if inline else CategoryTable(len(self.names), size),
        )


def find_used_categories(slab: StoredSlab, field: Field, runs: np.ndarray) -> UsedCategories:
    """Find the categories that the rows in `runs` have.

    Raises UsageError for a field that is not categorical, and what `StoredSlab.read` raises.
    """
    if field.kind != "categorical":
        raise UsageError("a field without categories has none to remove", field=field.name)
    names = slab.read_categories(field)
    is_used = np.zeros(len(names), np.bool_)
    for group in group_runs(runs, 0, _PIECE):
        for first, end in group.tolist():
            values = slab.read(field, first, end).values
            is_used[values[values >= 0]] = True
    codes = np.where(is_used, np.cumsum(is_used) - 1, -1).astype(np.int32)
    return UsedCategories([names[code] for code in np.flatnonzero(is_used)], codes)
