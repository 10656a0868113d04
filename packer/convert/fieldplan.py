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
    "dense", "flat", "permuted", "raw", "list", "bytes", "categorical", "stack", "tokens", "nested"
]
"""How a column becomes arrays; `fieldslab.packer.convert.forms` has a function for each."""


@dataclass(frozen=True, kw_only=True)
class FieldPlan:
    """How one field is converted.

    `paths` lead to its source columns: the index of a top-level column, then of struct children;
    a stack has many, all others one. `options` are what was asked of the column; where their
    `nulls` is a value, `filler` is that value as it is stored. `decoded_image_bytes` is
    an estimate for images that are stored as pixels. With `skips_damaged_images`, rows whose image
    cannot be decoded are left out. `why` is for people; `bytes` an estimate, None if unknown.
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
    decoded_image_bytes: int | None = None
    skips_damaged_images: bool = False
    why: str = ""
    bytes: int | None = None

    @property
    def all_paths(self) -> list[tuple[int, ...]]:
        """Every path that is read to fill the field: of values, shapes and lengths."""
        lengths = None if self.padding is None else self.padding.lengths
        return [*self.paths, *filter(None, (self.shape_path, lengths))]

    @property
    def with_padding(self) -> "FieldPlan":
        """The same plan with the padding still in the field."""
        return self if self.padding is None else replace(self, field=self.padding.padded)


class ConvertedRows(NamedTuple):
    """Some rows of one field.

    `values` is (rows, *shape), or (elements, *shape) with `lengths` int64[rows]; `valid` is
    bool[rows], or None where no row is null. Values under nulls are zero (categories: -1).
    `other_arrays` has the items of the field's other arrays, by role: for offsets, the numbers of
    items, int64[rows]. `tally` counts integers "rounded" by `--cast`, rows "shortened" by
    `--max-length`, and images by codec and by oddity.
    """

    values: np.ndarray
    lengths: np.ndarray | None = None
    valid: np.ndarray | None = None
    other_arrays: Mapping[Role, np.ndarray] = {}
    tally: Mapping[str, int] = {}
