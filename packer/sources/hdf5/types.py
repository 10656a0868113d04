"""HDF5 types: the columns that a dataset becomes, and the layout that it is read in.

Data is read in the file's own types, so that the library converts nothing and every bit arrives;
byte order and padding are dealt with afterwards.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
from h5py import h5t

from fieldslab.packer.source import ColumnHint
from fieldslab.packer.sources.hdf5.elements import (
    NOTHING,
    Element,
    TypeRefusal,
    TypeRules,
    UnsupportedType,
    decode_name,
    describe_element,
    find_complex_dtype,
    is_full_width,
)
from fieldslab.packer.sources.nested_arrays import describe_idle_attributes

Member = tuple[bytes, ...]
"""Path to a member of a compound type, its own name last; () for the whole type."""


@dataclass(frozen=True)
class HDF5Column:
    """A column: a dataset, or a member of its compound type; `shape` is that of array types.

    `items` are the mean elements of a row where they are known though the rows differ.
    """

    member: Member
    element: Element
    shape: tuple[int, ...] = ()
    refusal: TypeRefusal | None = None
    items: float | None = None

    @property
    def suffix(self) -> str:
        """What follows the dataset's name: '.a.b' for a member."""
        return "".join(f".{decode_name(name)}" for name in self.member)

    def make_arrow_type(self, row_shape: tuple[int, ...]) -> pa.DataType:
        """Make the Arrow type of a row that is an array of this shape of elements."""
        kind = self.element.type
        for length in reversed((*row_shape, *self.shape)):
            kind = pa.list_(kind, length)
        return kind

    @property
    def variable(self) -> bool:
        """Whether rows differ in length."""
        return self.element.form in ("texts", "lists") and self.items is None

    def count_row_bytes(self, row_shape: tuple[int, ...]) -> float:
        """Count the bytes of a row once read; of variable lengths only their references."""
        if self.items is not None:
            return self.items * self.element.dtype.itemsize
        return prod((*row_shape, *self.shape)) * self.element.dtype.itemsize

    def make_hint(self, attributes: dict[str, Any]) -> ColumnHint:
        """Make the hint about what Arrow's type does not say."""
        element, refusal = self.element, self.refusal
        return ColumnHint(
            dtype=element.hint,
            logical=element.logical,
            attributes=attributes,
            why=f"HDF5 {element.why}{describe_idle_attributes(attributes)}",
            refusal=None if refusal is None else (refusal.problem, refusal.hint),
        )


def list_columns(kind: h5t.TypeID, rules: TypeRules) -> Iterator[HDF5Column]:
    """List the columns of a type: one, or those of the members of a compound type."""
    members = _list_members(kind)
    if members is not None:
        for name, inner in members:
            for column in list_columns(inner, rules):
                yield replace(column, member=(name, *column.member))
        return
    if isinstance(kind, h5t.TypeArrayID):
        dims = tuple(int(length) for length in kind.get_array_dims())
        for column in list_columns(kind.get_super(), rules):
            yield replace(column, shape=(*dims, *column.shape))
        return
    try:
        yield HDF5Column((), describe_element(kind, rules))
    except UnsupportedType as refused:
        yield HDF5Column((), replace(NOTHING, why=refused.why), (), refused.refusal)


def make_layout(kind: h5t.TypeID, chosen: Iterable[Member]) -> tuple[h5t.TypeID, np.dtype[Any]]:
    """Make the type to read only these members of a dataset with, and its numpy dtype."""
    chosen = list(chosen)
    members = _list_members(kind)
    if members is not None:
        return _make_members_layout(members, chosen)
    if isinstance(kind, h5t.TypeArrayID):
        dims = tuple(int(length) for length in kind.get_array_dims())
        inner, dtype = make_layout(kind.get_super(), chosen)
        return h5t.array_create(inner, dims), np.dtype((dtype, dims))
    element = describe_element(kind, TypeRules(raw=True))
    if element.form in ("texts", "lists"):
        return h5t.py_create(element.dtype), element.dtype
    if isinstance(kind, h5t.TypeIntegerID) and not is_full_width(kind):
        return h5t.py_create(element.dtype), element.dtype
    return kind, element.dtype


def _make_members_layout(
    members: list[tuple[bytes, h5t.TypeID]], chosen: list[Member]
) -> tuple[h5t.TypeID, np.dtype[Any]]:
    heads = [name for name, _ in members if any(member[0] == name for member in chosen)]
    inner = {
        name: make_layout(kind, [member[1:] for member in chosen if member[0] == name])
        for name, kind in members
        if name in heads
    }
    dtype = np.dtype([(encode_member_name(name), inner[name][1]) for name in heads])
    compound = h5t.create(h5t.COMPOUND, max(dtype.itemsize, 1))
    for name in heads:
        compound.insert(name, dtype.fields[encode_member_name(name)][1], inner[name][0])  # type: ignore[index]
    return compound, dtype


def _list_members(kind: h5t.TypeID) -> list[tuple[bytes, h5t.TypeID]] | None:
    """List the members of a compound type; None for any other, and for complex numbers."""
    if not isinstance(kind, h5t.TypeCompoundID) or find_complex_dtype(kind) is not None:
        return None
    count = range(kind.get_nmembers())
    return [(kind.get_member_name(index), kind.get_member_type(index)) for index in count]


def encode_member_name(member: bytes) -> str:
    """Encode a member's name, which may be any bytes, as a unique field name of a numpy dtype."""
    return "m" + member.hex()
