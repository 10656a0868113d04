"""HDF5 types: the columns that a dataset becomes, and the layout that it is read in.

Data is read in the file's own types, so that the library converts nothing and every bit arrives;
byte order and padding are dealt with afterwards.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal, cast

import h5py
import numpy as np
import pyarrow as pa
from h5py import h5t

from fieldslab.packer.source import Hint
from fieldslab.schemas.fields import DtypeName, Logical, Unit

Member = tuple[bytes, ...]
"""Path to a member of a compound type, its own name last; () for the whole type."""


@dataclass(frozen=True)
class Element:
    """What one element of a type is.

    Attributes
    ----------
    form
        How what was read becomes Arrow: see `fieldslab.packer.sources.hdf5.arrow`.
    dtype
        As it lies in memory once read; object for variable lengths.
    type
        In Arrow.
    base
        Dtype of the numbers of a variable-length array; strings: `null`, `space` or `first`, how
        the end of a string of fixed length is found.
    """

    form: Literal["number", "flag", "text", "texts", "lists", "raw"]
    dtype: np.dtype[Any]
    type: pa.DataType
    why: str
    base: np.dtype[Any] | None = None
    padding: Literal["null", "space", "first"] = "null"
    hint: DtypeName | None = None
    logical: Logical | None = None


@dataclass(frozen=True)
class Column:
    """A column: a dataset, or a member of its compound type; `shape` is that of array types."""

    member: Member
    element: Element
    shape: tuple[int, ...] = ()
    refusal: "Refusal | None" = None

    @property
    def suffix(self) -> str:
        """What follows the dataset's name: '.a.b' for a member."""
        return "".join(f".{readable(name)}" for name in self.member)

    def arrow_type(self, row_shape: tuple[int, ...]) -> pa.DataType:
        """Arrow type of a row that is an array of this shape of elements."""
        kind = self.element.type
        for length in reversed((*row_shape, *self.shape)):
            kind = pa.list_(kind, length)
        return kind

    @property
    def variable(self) -> bool:
        """Whether rows differ in length."""
        return self.element.form in ("texts", "lists")

    def bytes_in(self, row_shape: tuple[int, ...]) -> int:
        """Bytes of a row of this column once read; of variable lengths what stands in for them."""
        return prod((*row_shape, *self.shape)) * self.element.dtype.itemsize

    def hint(self, attributes: dict[str, Any]) -> Hint:
        """What Arrow's type does not say."""
        element, refusal = self.element, self.refusal
        return Hint(
            dtype=element.hint, logical=element.logical, attributes=attributes,
            why=f"HDF5 {element.why}",
            refusal=None if refusal is None else (refusal.problem, refusal.hint),
        )  # fmt: skip


@dataclass(frozen=True)
class Refusal:
    """Why something cannot be packed, and what to do about it; `{}` in it is the column."""

    problem: str
    hint: str = "--exclude '{}' leaves it out."


@dataclass(frozen=True)
class Rules:
    """What decides about types beside the types: `raw` admits opaque bytes."""

    raw: bool = False
    pytables: bool = field(default=False, compare=False)


NOTHING = Element("raw", np.dtype("V1"), pa.null(), "")
"""Stands for what cannot be read."""


class _Refused(Exception):
    """A type that cannot be packed."""

    def __init__(self, problem: str, hint: str = Refusal.hint, why: str = "") -> None:
        super().__init__(problem)
        self.refusal = Refusal(problem, hint)
        self.why = why


def columns_of(kind: h5t.TypeID, rules: Rules) -> Iterator[Column]:
    """The columns of a type: one, or those of the members of a compound type."""
    members = _members(kind)
    if members is not None:
        for name, inner in members:
            for column in columns_of(inner, rules):
                yield replace(column, member=(name, *column.member))
        return
    if isinstance(kind, h5t.TypeArrayID):
        dims = tuple(int(length) for length in kind.get_array_dims())
        for column in columns_of(kind.get_super(), rules):
            yield replace(column, shape=(*dims, *column.shape))
        return
    try:
        yield Column((), _element(kind, rules))
    except _Refused as refused:
        yield Column((), replace(NOTHING, why=refused.why), (), refused.refusal)


def read_layout(kind: h5t.TypeID, wanted: Iterable[Member]) -> tuple[h5t.TypeID, np.dtype[Any]]:
    """The type to read a dataset in, with these members alone, and the dtype that it fills."""
    wanted = list(wanted)
    members = _members(kind)
    if members is not None:
        return _read_members(members, wanted)
    if isinstance(kind, h5t.TypeArrayID):
        dims = tuple(int(length) for length in kind.get_array_dims())
        inner, dtype = read_layout(kind.get_super(), wanted)
        return h5t.array_create(inner, dims), np.dtype((dtype, dims))
    element = _element(kind, Rules(raw=True))
    if element.form in ("texts", "lists"):
        return h5t.py_create(element.dtype), element.dtype
    if isinstance(kind, h5t.TypeIntegerID) and not _whole(kind):
        return h5t.py_create(element.dtype), element.dtype
    return kind, element.dtype


def _read_members(
    members: list[tuple[bytes, h5t.TypeID]], wanted: list[Member]
) -> tuple[h5t.TypeID, np.dtype[Any]]:
    heads = [name for name, _ in members if any(member[0] == name for member in wanted)]
    inner = {
        name: read_layout(kind, [member[1:] for member in wanted if member[0] == name])
        for name, kind in members
        if name in heads
    }
    dtype = np.dtype([(field_name(name), inner[name][1]) for name in heads])
    compound = h5t.create(h5t.COMPOUND, max(dtype.itemsize, 1))
    for name in heads:
        compound.insert(name, dtype.fields[field_name(name)][1], inner[name][0])  # type: ignore[index]
    return compound, dtype


def field_name(member: bytes) -> str:
    """A member's name as a field name of a structured dtype: any bytes, one to one."""
    return "m" + member.hex()


def readable(name: bytes) -> str:
    """A name in HDF5 as text; what is not UTF-8 in it is replaced."""
    return name.decode(errors="replace")


def _members(kind: h5t.TypeID) -> list[tuple[bytes, h5t.TypeID]] | None:
    """The members of a compound type; None for any other, and for complex numbers."""
    if not isinstance(kind, h5t.TypeCompoundID) or _complex(kind) is not None:
        return None
    count = range(kind.get_nmembers())
    return [(kind.get_member_name(at), kind.get_member_type(at)) for at in count]


def _element(kind: h5t.TypeID, rules: Rules) -> Element:
    if isinstance(kind, h5t.TypeEnumID):
        return _enum(kind)
    if isinstance(kind, h5t.TypeIntegerID):
        return _number(_integer(kind))
    if isinstance(kind, h5t.TypeFloatID):
        return _float(kind)
    if isinstance(kind, h5t.TypeBitfieldID):
        return _bits(kind, rules)
    if isinstance(kind, h5t.TypeStringID):
        return _text(kind)
    if isinstance(kind, h5t.TypeVlenID):
        return _lists(kind)
    if isinstance(kind, h5t.TypeOpaqueID):
        return _opaque(kind, rules)
    pair = _complex(kind)
    if pair is not None:
        name = cast(DtypeName, f"complex{8 * pair.itemsize}")
        why = name + _order(pair)
        return Element("number", pair, pa.binary(pair.itemsize), why, hint=name)
    if isinstance(kind, h5t.TypeReferenceID):
        raise _Refused("object and region references point into the file", why="reference")
    what = {h5t.TIME: "a time type, which HDF5 never finished"}.get(
        kind.get_class(), f"a type of HDF5 class {kind.get_class()}"
    )
    raise _Refused(f"{what}, cannot be packed", why=what)


def _number(dtype: np.dtype[Any]) -> Element:
    return Element(
        "number", dtype, pa.from_numpy_dtype(_native(dtype)), f"{dtype.name}{_order(dtype)}"
    )


def _integer(kind: h5t.TypeIntegerID) -> np.dtype[Any]:
    size = kind.get_size()
    if size not in (1, 2, 4, 8):
        raise _Refused(f"integers of {8 * size} bits cannot be packed", why=f"int{8 * size}")
    sign = "u" if kind.get_sign() == h5t.SGN_NONE else "i"
    return np.dtype(f"{_order_of(kind) if _whole(kind) else '<'}{sign}{size}")


def _whole(kind: h5t.TypeIntegerID) -> bool:
    """Whether a number fills its bytes; one of 12 bits in 2 bytes is spread out by HDF5."""
    return bool(kind.get_precision() == 8 * kind.get_size() and kind.get_offset() == 0)


_FLOATS = {
    ((15, 10, 5, 0, 10), 15): "f2",
    ((31, 23, 8, 0, 23), 127): "f4",
    ((63, 52, 11, 0, 52), 1023): "f8",
}
_BFLOAT16 = ((15, 7, 8, 0, 7), 127)


def _float(kind: h5t.TypeFloatID) -> Element:
    size, layout = kind.get_size(), (tuple(kind.get_fields()), kind.get_ebias())
    if layout == _BFLOAT16 and size == 2:
        dtype = np.dtype(f"{_order_of(kind)}u2")
        why = f"bfloat16{_order(dtype)}"
        return Element("number", dtype, pa.uint16(), why, logical=Logical("bfloat16"))
    code = _FLOATS.get(layout)
    if code is None or int(code[1]) != size:
        raise _Refused(
            f"floating point numbers of {kind.get_precision()} bits cannot be packed",
            "Write them as float64, or leave them out: --exclude '{}'.",
            why=f"float of {size} bytes",
        )
    return _number(np.dtype(_order_of(kind) + code))


def _enum(kind: h5t.TypeEnumID) -> Element:
    dtype = _integer(kind.get_super())
    count = range(kind.get_nmembers())
    members = {readable(kind.get_member_name(at)): kind.get_member_value(at) for at in count}
    if members == {"FALSE": 0, "TRUE": 1} and dtype.itemsize == 1:
        return Element("flag", np.dtype("u1"), pa.uint8(), "bool", hint="bool")
    names = tuple(sorted(members, key=lambda name: int(members[name])))
    logical = Logical("enum", names=names, codes=tuple(int(members[name]) for name in names))
    return replace(_number(dtype), logical=logical, why=f"enum of {dtype.name}{_order(dtype)}")


def _bits(kind: h5t.TypeBitfieldID, rules: Rules) -> Element:
    size = kind.get_size()
    if size not in (1, 2, 4, 8):
        raise _Refused(f"bit fields of {8 * size} bits cannot be packed", why="bit field")
    if size == 1 and rules.pytables:
        return Element("flag", np.dtype("u1"), pa.uint8(), "bool of PyTables", hint="bool")
    return replace(
        _number(np.dtype(f"{_order_of(kind)}u{size}")), why=f"bit field of {8 * size} bits"
    )


def _text(kind: h5t.TypeStringID) -> Element:
    if kind.is_variable_str():
        return Element("texts", kind.dtype, pa.large_string(), "text of any length")
    size = kind.get_size()
    padding: dict[int, Literal["null", "space", "first"]] = {
        h5t.STR_NULLPAD: "null", h5t.STR_SPACEPAD: "space", h5t.STR_NULLTERM: "first",
    }  # fmt: skip
    if kind.get_strpad() not in padding:
        raise _Refused("text that is padded in an unknown way cannot be packed", why="text")
    why = f"text of {size} bytes"
    return Element(
        "text", np.dtype(f"V{size}"), pa.large_string(), why, padding=padding[kind.get_strpad()]
    )


def _lists(kind: h5t.TypeVlenID) -> Element:
    inner = kind.get_super()
    element = None
    if isinstance(inner, h5t.TypeIntegerID | h5t.TypeFloatID):
        element = _element(inner, Rules())
    if (
        element is None
        or element.logical is not None
        or (isinstance(inner, h5t.TypeIntegerID) and not _whole(inner))
    ):
        raise _Refused(
            "variable-length arrays of anything but plain numbers cannot be packed",
            why="variable-length arrays",
        )
    why = f"{element.why} of any length"
    if element.dtype == np.uint8:  # may be images: whoever plans the field looks at the values
        form = pa.large_binary()
        return Element("lists", kind.dtype, form, why, base=element.dtype, hint="uint8")
    return Element("lists", kind.dtype, pa.large_list(element.type), why, base=element.dtype)


_NUMPY_TIME = re.compile(rb"NUMPY:([<>=|]?)([mM])8\[(s|ms|us|ns)\]\x00*")


def _opaque(kind: h5t.TypeOpaqueID, rules: Rules) -> Element:
    """Bytes without a meaning, or numpy's times, which h5py writes so."""
    size, tag = kind.get_size(), bytes(kind.get_tag())
    if (match := _NUMPY_TIME.fullmatch(tag)) and size == 8:
        order, letter, unit = (part.decode() for part in match.groups())
        make = pa.timestamp if letter == "M" else pa.duration
        dtype = np.dtype(f"{'>' if order == '>' else '<'}i8")
        name = "datetime64" if letter == "M" else "timedelta64"
        return Element("number", dtype, make(cast(Unit, unit)), f"{name}[{unit}]{_order(dtype)}")
    why = f"opaque bytes {readable(tag)!r}" if tag else "opaque bytes"
    if not rules.raw:
        raise _Refused(
            "opaque bytes are packed only on request",
            f"--raw packs them as uint8[{size}], --exclude '{{}}' leaves them out.", why=why,
        )  # fmt: skip
    return Element("raw", np.dtype(f"V{size}"), pa.binary(size), why)


_COMPLEX_CLASS = getattr(h5t, "TypeComplexID", ())


def _complex(kind: h5t.TypeID) -> np.dtype[Any] | None:
    """Dtype of a complex number: HDF5's own, or h5py's compound of two; None for anything else."""
    if _COMPLEX_CLASS and isinstance(kind, _COMPLEX_CLASS):
        parts = [kind.get_super()]
    elif isinstance(kind, h5t.TypeCompoundID) and kind.get_nmembers() == 2:
        if tuple(map(readable, map(kind.get_member_name, range(2)))) != _complex_names():
            return None
        parts = [kind.get_member_type(0), kind.get_member_type(1)]
        if (kind.get_member_offset(0), kind.get_member_offset(1)) != (0, parts[0].get_size()):
            return None
    else:
        return None
    if not all(isinstance(part, h5t.TypeFloatID) for part in parts) or parts[0] != parts[-1]:
        return None
    try:
        dtype = _float(parts[0]).dtype
    except _Refused:
        return None
    if dtype.kind != "f" or dtype.itemsize < 4 or kind.get_size() != 2 * dtype.itemsize:
        return None
    return np.dtype(f"{dtype.str[0]}c{2 * dtype.itemsize}")


def _complex_names() -> tuple[str, str]:
    real, imaginary = h5py.get_config().complex_names
    return real, imaginary


def _order_of(kind: Any) -> str:
    if kind.get_size() == 1:
        return "|"
    order = kind.get_order()
    if order == h5t.ORDER_LE:
        return "<"
    if order == h5t.ORDER_BE:
        return ">"
    raise _Refused("the byte order is neither little nor big endian", why="number")


def _order(dtype: np.dtype[Any]) -> str:
    return ", big-endian" if dtype.str[0] == ">" else ""


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("<")
