"""How one field is made, and what a piece of it looks like between Arrow and the disk."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from fieldslab.packer.convert.fillers import Filler
from fieldslab.packer.convert.leaves import ColumnOptions
from fieldslab.packer.convert.padding import Padding
from fieldslab.schemas.fields import Field, Role

Form = Literal[
    "dense", "flat", "permuted", "raw", "list", "bytes", "categorical", "stack", "tokens"
]
"""How a column becomes arrays; `fieldslab.packer.convert.forms` has a function for each."""


@dataclass(frozen=True, kw_only=True)
class FieldPlan:
    """How one field is made.

    `paths` lead to its source columns: the index of a top-level column, then of struct children;
    a stack has many, all others one. `options` are what was asked of the column; where their
    `nulls` is a value, `filler` is that value as it is stored. `decoded` is about the bytes of an
    image as pixels, where pixels are stored, and `sound` says that images which cannot be decoded
    are left out. `why` is for people; `bytes` an estimate, None if unknown.
    """

    field: Field
    form: Form
    paths: tuple[tuple[int, ...], ...]
    columns: tuple[str, ...]
    options: ColumnOptions
    filler: Filler | None = None
    shape_path: tuple[int, ...] | None = None
    permutation: tuple[int, ...] = ()
    padding: Padding | None = None
    decoded: int | None = None
    sound: bool = False
    why: str = ""
    bytes: int | None = None

    @property
    def all_paths(self) -> list[tuple[int, ...]]:
        """Every path that is read to make the field: of values, of shapes, of lengths."""
        lengths = None if self.padding is None else self.padding.lengths
        return [*self.paths, *filter(None, (self.shape_path, lengths))]

    @property
    def as_read(self) -> "FieldPlan":
        """The same with the padding still in."""
        return self if self.padding is None else replace(self, field=self.padding.padded)


class Converted(NamedTuple):
    """Some rows of one field.

    `values` is (rows, *shape), or (elements, *shape) with `lengths` int64[rows]; `valid` is
    bool[rows], or None where no row is null. Values under nulls are zero (categories: -1).
    `beside` has what the field's other arrays may hold, by role: for offsets, the numbers of items,
    int64[rows]. `tally` counts what happened on the way: integers "rounded" by `--cast`, rows
    "shortened" by `--max-length`, images by codec and by what is odd about them.
    """

    values: np.ndarray
    lengths: np.ndarray | None = None
    valid: np.ndarray | None = None
    beside: Mapping[Role, np.ndarray] = {}
    tally: Mapping[str, int] = {}
