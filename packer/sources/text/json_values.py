"""Values of JSON as columns: types that fit all values of a sample, and the values in them."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa

JSON_TEXT = pa.json_(pa.large_string())
_LIMITS = {
    pa.int64(): (-(2**63), 2**63 - 1),
    pa.uint64(): (0, 2**64 - 1),
}


class Mixed:
    """Stands for values of several types."""


def merge_members(types: dict[str, Any], row: Mapping[str, Any]) -> None:
    """Add the members of an object to the descriptions of all, by key."""
    for name, value in row.items():
        types[name] = merge_types(types.get(name), describe_value(value))


def describe_value(value: Any) -> Any:
    """Describe a value: None, a type of Arrow, a list with one description, or a dict of them."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {name: describe_value(member) for name, member in value.items()}
    if isinstance(value, list):
        kind = None
        for item in value:
            kind = merge_types(kind, describe_value(item))
        return [kind]
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64() if -(2**63) <= value < 2**63 else Mixed
    return pa.float64() if isinstance(value, float) else pa.string()


def merge_types(first: Any, second: Any) -> Any:
    """Merge two descriptions of values; `Mixed` where no type fits both."""
    if first is None or second is None:
        return second if first is None else first
    if isinstance(first, dict) and isinstance(second, dict):
        merged = dict(first)
        for name, kind in second.items():
            merged[name] = merge_types(merged.get(name), kind)
        return merged
    if isinstance(first, list) and isinstance(second, list):
        return [merge_types(first[0], second[0])]
    if not (isinstance(first, pa.DataType) and isinstance(second, pa.DataType)):
        return Mixed
    if {first, second} == {pa.int64(), pa.float64()}:
        return pa.float64()
    return first if first == second else Mixed


def holds_mixed(kind: Any) -> bool:
    """Return whether a description says that values have several types."""
    if isinstance(kind, dict):
        return any(map(holds_mixed, kind.values()))
    return kind is Mixed


def make_type(kind: Any, *, nested: bool = False) -> pa.DataType:
    """Return the type of a description; JSON text for lists of anything but scalars or lists.

    With `nested`, lists of objects are lists of structs, where no value is of several types.
    """
    if kind is None:
        return pa.null()
    if isinstance(kind, dict):
        members = [(name, make_type(member, nested=nested)) for name, member in kind.items()]
        return pa.struct(members) if members else JSON_TEXT
    if isinstance(kind, list):
        inner = kind[0]
        while isinstance(inner, list):
            inner = inner[0]
        if inner is Mixed or (isinstance(inner, dict) and not (nested and _is_typed(inner))):
            return JSON_TEXT
        return pa.list_(make_type(kind[0], nested=nested))
    return JSON_TEXT if kind is Mixed else kind


def _is_typed(kind: Any) -> bool:
    """Return whether objects have members that each have one type."""
    if isinstance(kind, dict):
        return bool(kind) and all(map(_is_typed, kind.values()))
    return _is_typed(kind[0]) if isinstance(kind, list) else isinstance(kind, pa.DataType)


def choose_json_type(kind: pa.DataType, target: str) -> pa.DataType:
    """Choose how values are read that are cast to a target."""
    if target == "json":
        return JSON_TEXT
    if target in ("text", "binary", "categorical"):
        return pa.string() if pa.types.is_string(kind) or pa.types.is_null(kind) else JSON_TEXT
    if pa.types.is_list(kind):
        return pa.list_(choose_json_type(kind.value_type, target))
    if target == "bool":
        return pa.bool_()
    if target.startswith(("float", "bfloat")):
        return pa.float64()
    return pa.uint64() if target == "uint64" else pa.int64()


def make_decoder(types: Mapping[str, pa.DataType], strict: bool) -> Any:
    """Make what decodes objects into members f0, f1 and so on; if `strict`, of no other keys."""
    return msgspec.json.Decoder(_make_struct(types, strict))


def _make_struct(types: Mapping[str, pa.DataType], strict: bool) -> Any:
    fields = [
        (f"f{index}", _make_annotation(kind), None) for index, kind in enumerate(types.values())
    ]
    names = {f"f{index}": name for index, name in enumerate(types)}
    return msgspec.defstruct("Row", fields, rename=names, forbid_unknown_fields=strict, gc=False)


def _make_annotation(kind: pa.DataType) -> Any:
    types = pa.types
    if kind == JSON_TEXT:
        return msgspec.Raw
    if types.is_struct(kind):
        return _make_struct({field.name: field.type for field in kind}, True) | None
    if types.is_list(kind):
        return list[_make_annotation(kind.value_type)] | None  # type: ignore[misc]
    if kind in _LIMITS:
        low, high = _LIMITS[kind]
        return Annotated[int, msgspec.Meta(ge=low, le=high)] | None
    if types.is_null(kind):
        return None
    return (bool if types.is_boolean(kind) else float if types.is_floating(kind) else str) | None


def _holds_structs(kind: pa.DataType) -> bool:
    while pa.types.is_list(kind):
        kind = kind.value_type
    return bool(pa.types.is_struct(kind))


def make_json_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Make a column of decoded values. Raises ValueError where one does not fit."""
    if kind == JSON_TEXT:
        texts = [None if raw is None or bytes(raw) == b"null" else bytes(raw) for raw in values]
        return pa.ExtensionArray.from_storage(
            JSON_TEXT, pa.array(texts, pa.large_binary()).cast(pa.large_string())
        )
    if pa.types.is_list(kind) and _holds_structs(kind):
        lengths = [0 if row is None else len(row) for row in values]
        offsets = pa.array(np.cumsum([0, *lengths], dtype=np.int32))
        items = [item for row in values for item in row or ()]
        mask = pa.array([row is None for row in values], pa.bool_())
        return pa.ListArray.from_arrays(
            offsets, make_json_array(items, kind.value_type), type=kind, mask=mask
        )
    if not pa.types.is_struct(kind):
        return pa.array(values, kind)
    children = [
        make_json_array(
            [None if row is None else getattr(row, f"f{index}") for row in values], field.type
        )
        for index, field in enumerate(kind)
    ]
    mask = pa.array([row is None for row in values], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
