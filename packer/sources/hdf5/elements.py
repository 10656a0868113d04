"""What one element of an HDF5 type is: its dtype in memory, and what it becomes in Arrow."""

import re
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import h5py
import numpy as np
import pyarrow as pa
from h5py import h5t

from fieldslab.schemas.fields import DtypeName, Logical, Unit
from fieldslab.schemas.optiontext import mark_option


@dataclass(frozen=True)
class Element:
    """What one element of a type is.

    Attributes
    ----------
    form
        How what was read becomes Arrow: see `fieldslab.packer.sources.hdf5.arrow_columns`.
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
class TypeRefusal:
    """Why something cannot be packed, and what to do about it; `{}` in it is the column."""

    problem: str
    hint: str = f"{mark_option('exclude', ['{}'])} leaves it out."


@dataclass(frozen=True)
class TypeRules:
    """What decides about types beside the types: `raw` admits opaque bytes."""

    raw: bool = False
    pytables: bool = field(default=False, compare=False)


NOTHING = Element("raw", np.dtype("V1"), pa.null(), "")
"""Stands for what cannot be read."""


class UnsupportedType(Exception):
    """A type that cannot be packed."""

    def __init__(self, problem: str, hint: str = TypeRefusal.hint, why: str = "") -> None:
        super().__init__(problem)
        self.refusal = TypeRefusal(problem, hint)
        self.why = why


def describe_element(kind: h5t.TypeID, rules: TypeRules) -> Element:
    """Describe an element that is neither compound nor an array. Raises UnsupportedType."""
    if isinstance(kind, h5t.TypeEnumID):
        return _describe_enum(kind)
    if isinstance(kind, h5t.TypeIntegerID):
        return _describe_number(_find_integer_dtype(kind))
    if isinstance(kind, h5t.TypeFloatID):
        return _describe_float(kind)
    if isinstance(kind, h5t.TypeBitfieldID):
        return _describe_bits(kind, rules)
    if isinstance(kind, h5t.TypeStringID):
        return _describe_text(kind)
    if isinstance(kind, h5t.TypeVlenID):
        return _describe_lists(kind)
    if isinstance(kind, h5t.TypeOpaqueID):
        return _describe_opaque(kind, rules)
    pair = find_complex_dtype(kind)
    if pair is not None:
        name = cast(DtypeName, f"complex{8 * pair.itemsize}")
        why = name + _describe_byte_order(pair)
        return Element("number", pair, pa.binary(pair.itemsize), why, hint=name)
    if isinstance(kind, h5t.TypeReferenceID):
        raise UnsupportedType("object and region references point into the file", why="reference")
    what = {h5t.TIME: "a time type, which HDF5 never finished"}.get(
        kind.get_class(), f"a type of HDF5 class {kind.get_class()}"
    )
    raise UnsupportedType(f"{what}, cannot be packed", why=what)


def _describe_number(dtype: np.dtype[Any]) -> Element:
    return Element(
        "number",
        dtype,
        pa.from_numpy_dtype(_to_little_endian(dtype)),
        f"{dtype.name}{_describe_byte_order(dtype)}",
    )


def _find_integer_dtype(kind: h5t.TypeIntegerID) -> np.dtype[Any]:
    size = kind.get_size()
    if size not in (1, 2, 4, 8):
        raise UnsupportedType(f"integers of {8 * size} bits cannot be packed", why=f"int{8 * size}")
    sign = "u" if kind.get_sign() == h5t.SGN_NONE else "i"
    return np.dtype(f"{_find_byte_order(kind) if is_full_width(kind) else '<'}{sign}{size}")


def is_full_width(kind: h5t.TypeIntegerID) -> bool:
    """Return whether a number fills its bytes; one of 12 bits in 2 bytes is spread out by HDF5."""
    return bool(kind.get_precision() == 8 * kind.get_size() and kind.get_offset() == 0)


_FLOATS = {
    ((15, 10, 5, 0, 10), 15): "f2",
    ((31, 23, 8, 0, 23), 127): "f4",
    ((63, 52, 11, 0, 52), 1023): "f8",
}
_BFLOAT16 = ((15, 7, 8, 0, 7), 127)


def _describe_float(kind: h5t.TypeFloatID) -> Element:
    size, layout = kind.get_size(), (tuple(kind.get_fields()), kind.get_ebias())
    if layout == _BFLOAT16 and size == 2:
        dtype = np.dtype(f"{_find_byte_order(kind)}u2")
        why = f"bfloat16{_describe_byte_order(dtype)}"
        return Element("number", dtype, pa.uint16(), why, logical=Logical("bfloat16"))
    code = _FLOATS.get(layout)
    if code is None or int(code[1]) != size:
        raise UnsupportedType(
            f"floating point numbers of {kind.get_precision()} bits cannot be packed",
            f"Write them as float64, or leave them out: {mark_option('exclude', ['{}'])}.",
            why=f"float of {size} bytes",
        )
    return _describe_number(np.dtype(_find_byte_order(kind) + code))


def _describe_enum(kind: h5t.TypeEnumID) -> Element:
    dtype = _find_integer_dtype(kind.get_super())
    count = range(kind.get_nmembers())
    members = {
        decode_name(kind.get_member_name(index)): kind.get_member_value(index) for index in count
    }
    if members == {"FALSE": 0, "TRUE": 1} and dtype.itemsize == 1:
        return Element("flag", np.dtype("u1"), pa.uint8(), "bool", hint="bool")
    names = tuple(sorted(members, key=lambda name: int(members[name])))
    logical = Logical("enum", names=names, codes=tuple(int(members[name]) for name in names))
    return replace(
        _describe_number(dtype),
        logical=logical,
        why=f"enum of {dtype.name}{_describe_byte_order(dtype)}",
    )


def _describe_bits(kind: h5t.TypeBitfieldID, rules: TypeRules) -> Element:
    size = kind.get_size()
    if size not in (1, 2, 4, 8):
        raise UnsupportedType(f"bit fields of {8 * size} bits cannot be packed", why="bit field")
    if size == 1 and rules.pytables:
        return Element("flag", np.dtype("u1"), pa.uint8(), "bool of PyTables", hint="bool")
    return replace(
        _describe_number(np.dtype(f"{_find_byte_order(kind)}u{size}")),
        why=f"bit field of {8 * size} bits",
    )


def _describe_text(kind: h5t.TypeStringID) -> Element:
    if kind.is_variable_str():
        return Element("texts", kind.dtype, pa.large_string(), "text of any length")
    size = kind.get_size()
    padding: dict[int, Literal["null", "space", "first"]] = {
        h5t.STR_NULLPAD: "null",
        h5t.STR_SPACEPAD: "space",
        h5t.STR_NULLTERM: "first",
    }
    if kind.get_strpad() not in padding:
        raise UnsupportedType("text that is padded in an unknown way cannot be packed", why="text")
    why = f"text of {size} bytes"
    return Element(
        "text", np.dtype(f"V{size}"), pa.large_string(), why, padding=padding[kind.get_strpad()]
    )


def _describe_lists(kind: h5t.TypeVlenID) -> Element:
    inner = kind.get_super()
    element = None
    if isinstance(inner, h5t.TypeIntegerID | h5t.TypeFloatID):
        element = describe_element(inner, TypeRules())
    if (
        element is None
        or element.logical is not None
        or (isinstance(inner, h5t.TypeIntegerID) and not is_full_width(inner))
    ):
        raise UnsupportedType(
            "only variable-length arrays of plain numbers can be packed",
            why="variable-length arrays",
        )
    why = f"{element.why} of any length"
    if element.dtype == np.uint8:  # may be images: whoever plans the field looks at the values
        form = pa.large_binary()
        return Element("lists", kind.dtype, form, why, base=element.dtype, hint="uint8")
    return Element("lists", kind.dtype, pa.large_list(element.type), why, base=element.dtype)


_NUMPY_TIME = re.compile(rb"NUMPY:([<>=|]?)([mM])8\[(s|ms|us|ns)\]\x00*")


def _describe_opaque(kind: h5t.TypeOpaqueID, rules: TypeRules) -> Element:
    """Describe opaque bytes, or numpy's times, which h5py writes so."""
    size, tag = kind.get_size(), bytes(kind.get_tag())
    if (match := _NUMPY_TIME.fullmatch(tag)) and size == 8:
        order, letter, unit = (part.decode() for part in match.groups())
        make = pa.timestamp if letter == "M" else pa.duration
        dtype = np.dtype(f"{'>' if order == '>' else '<'}i8")
        name = "datetime64" if letter == "M" else "timedelta64"
        return Element(
            "number", dtype, make(cast(Unit, unit)), f"{name}[{unit}]{_describe_byte_order(dtype)}"
        )
    why = f"opaque bytes {decode_name(tag)!r}" if tag else "opaque bytes"
    if not rules.raw:
        raise UnsupportedType(
            "opaque bytes are packed only on request",
            f"{mark_option('raw', True)} packs them as uint8[{size}], "
            f"{mark_option('exclude', ['{}'])} "
            "leaves them out.",
            why=why,
        )
    return Element("raw", np.dtype(f"V{size}"), pa.binary(size), why)


_COMPLEX_CLASS = getattr(h5t, "TypeComplexID", ())


def find_complex_dtype(kind: h5t.TypeID) -> np.dtype[Any] | None:
    """Find the dtype of a complex number, HDF5's or h5py's compound of two; None for others."""
    if _COMPLEX_CLASS and isinstance(kind, _COMPLEX_CLASS):
        parts = [kind.get_super()]
    elif isinstance(kind, h5t.TypeCompoundID) and kind.get_nmembers() == 2:
        if tuple(map(decode_name, map(kind.get_member_name, range(2)))) != _get_complex_names():
            return None
        parts = [kind.get_member_type(0), kind.get_member_type(1)]
        if (kind.get_member_offset(0), kind.get_member_offset(1)) != (0, parts[0].get_size()):
            return None
    else:
        return None
    if not all(isinstance(part, h5t.TypeFloatID) for part in parts) or parts[0] != parts[-1]:
        return None
    try:
        dtype = _describe_float(parts[0]).dtype
    except UnsupportedType:
        return None
    if dtype.kind != "f" or dtype.itemsize < 4 or kind.get_size() != 2 * dtype.itemsize:
        return None
    return np.dtype(f"{dtype.str[0]}c{2 * dtype.itemsize}")


def _get_complex_names() -> tuple[str, str]:
    real, imaginary = h5py.get_config().complex_names
    return real, imaginary


def _find_byte_order(kind: Any) -> str:
    if kind.get_size() == 1:
        return "|"
    order = kind.get_order()
    if order == h5t.ORDER_LE:
        return "<"
    if order == h5t.ORDER_BE:
        return ">"
    raise UnsupportedType("the byte order is neither little nor big endian", why="number")


def _describe_byte_order(dtype: np.dtype[Any]) -> str:
    return ", big-endian" if dtype.str[0] == ">" else ""


def _to_little_endian(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("<")


def decode_name(name: bytes) -> str:
    """Decode a name in HDF5 as text; what is not UTF-8 is replaced."""
    return name.decode(errors="replace")
