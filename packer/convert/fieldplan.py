"""How one field is made, and what a piece of it looks like between Arrow and the disk."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from fieldslab.packer.convert.fillers import Filler
from fieldslab.packer.convert.padding import Padding
from fieldslab.packer.image_options import ImageAs
from fieldslab.packer.options import Tensor, Tokenize
from fieldslab.schemas.fields import Field, Role

Form = Literal[
    "dense", "flat", "permuted", "raw", "list", "bytes", "categorical", "stack", "tokens"
]
"""How a column becomes arrays; `fieldslab.packer.convert.forms` has a function for each."""


@dataclass(frozen=True, kw_only=True)
class FieldPlan:
    """How one field is made.

    `paths` lead to its source columns: the index of a top-level column, then of struct children;
    a stack has many, all others one. `nulls` is 'mask', 'error' or a value, which `filler` holds
    as it is stored; `compress` is a level of zstd, `decoded` about the bytes of an image as pixels,
    where that is what is stored, and `sound` says that only images are that can be decoded. `why`
    is for people; `bytes` an estimate, None if unknown.
    """

    field: Field
    form: Form
    paths: tuple[tuple[int, ...], ...]
    columns: tuple[str, ...]
    nulls: str = "error"
    filler: Filler | None = None
    cast: str | None = None
    tensor: Tensor | None = None
    shape_path: tuple[int, ...] | None = None
    permutation: tuple[int, ...] = ()
    padding: Padding | None = None
    tokenize: Tokenize | None = None
    image_as: ImageAs | None = None
    decoded: int | None = None
    sound: bool = False
    compress: int | None = None
    why: str = ""
    bytes: int | None = None

    @property
    def as_read(self) -> "FieldPlan":
        """The same with the padding still in."""
        return self if self.padding is None else replace(self, field=self.padding.padded)


class Converted(NamedTuple):
    """Some rows of one field.

    `values` is (rows, *shape), or (elements, *shape) with `lengths` int64[rows]; `valid` is
    bool[rows], or None where no row is null. Values under nulls are zero (categories: -1).
    `beside` has what the field's other arrays may hold, by role: for offsets, the numbers of items,
    int64[rows]. `remarks` counts the images of which something is to be told, `shortened` the rows
    that `--max-length` has cut, `rounded` the integers that became another number by `--cast`.
    """

    values: np.ndarray
    lengths: np.ndarray | None = None
    valid: np.ndarray | None = None
    shortened: int = 0
    beside: Mapping[Role, np.ndarray] = {}
    remarks: Mapping[str, int] = {}
    rounded: int = 0
