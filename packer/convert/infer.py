"""What a column becomes: its field kind and the form it is converted by, and why."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from fieldslab.packer.convert.casts import LAYOUTS, cast_elements, cast_layout
from fieldslab.packer.convert.dense import is_bytes, is_text, strip_layout
from fieldslab.packer.convert.fieldplan import Form
from fieldslab.packer.convert.leaves import Leaf
from fieldslab.packer.convert.shapes import (
    find_described_sizes,
    find_list_sizes,
    get_extension_name,
    infer_sizes,
    strip_type,
)
from fieldslab.schemas.errors import SourceUnsupported, UsageError
from fieldslab.schemas.fields import Logical
from fieldslab.schemas.images import detect_format
from fieldslab.schemas.optiontext import mark_option

Sample = Callable[[str], list[pa.Array]]
"""Gives a few values of a column, nulls left out."""


@dataclass
class InferredField:
    """The members of a field and of its plan that follow from a column's type and options."""

    why: str
    form: Form = "dense"
    members: dict[str, Any] = field(default_factory=dict)
    permutation: tuple[int, ...] = ()


def infer_field(leaf: Leaf, sample: Sample) -> InferredField:
    """Decide what a leaf becomes, where no `--tensor` says it.

    Raises
    ------
    SourceUnsupported
        The type cannot be stored as it is; the hint names the option that admits it.
    UsageError
        An option does not go with the type.
    """
    kind, cast = strip_type(leaf.type), leaf.options.cast
    if leaf.options.image and cast is not None:
        hint = "Leave one of them out: images are bytes that are not cast."
        raise UsageError(
            f"use either {mark_option('image')} or {mark_option('cast')}, not both",
            field=leaf.name,
            hint=hint,
        )
    if leaf.options.image and not is_bytes(kind):
        raise UsageError(
            f"{mark_option('image')}: not a column of bytes",
            field=leaf.name,
            expected="binary",
            found=str(leaf.type),
        )
    if cast == "nested" or (cast is None and leaf.nested):
        return _infer_nested(replace(leaf, options=replace(leaf.options, cast=None)))
    if cast in LAYOUTS:
        return _infer_layout(leaf, cast)
    if cast is None and (ordered := _find_category_order(leaf.type)) is not None:
        attributes = {"attributes": leaf.attributes | {"ordered": True}} if ordered else {}
        members = {"kind": "categorical", "dtype": "int32"} | attributes
        return InferredField(leaf.type_text, "categorical", members)
    if cast is None and is_text(kind):
        logical = Logical("json") if get_extension_name(leaf.type) == "arrow.json" else None
        return InferredField(leaf.type_text, "bytes", {"kind": "text", "logical": logical})
    if cast is None and is_bytes(kind):
        return _infer_bytes(leaf, sample)
    if get_extension_name(kind) == "arrow.fixed_shape_tensor":
        return _infer_fixed_shape_tensor(leaf, kind)
    return _infer_numbers(leaf, sample)


def describe_element(leaf: Leaf, kind: pa.DataType) -> dict[str, Any]:
    """Describe one scalar, as cast: `dtype`, `shape` and `logical`.

    Raises SourceUnsupported where it has no dtype, or cannot be cast.
    """
    kind, cast = strip_type(kind), leaf.options.cast
    if cast is None:
        hint, scalar = leaf.hint, _describe_scalar(kind)
        if scalar is None:
            raise _make_unsupported_error(leaf)
        if hint.dtype is not None:
            return {"dtype": hint.dtype, "shape": (), "logical": hint.logical}
        logical = scalar[2] or hint.logical or _find_class_names(leaf, kind)
        return {"dtype": scalar[0], "shape": scalar[1], "logical": logical}
    try:
        cast_elements(strip_layout(pa.array([], kind)), cast)
    except (pa.ArrowException, TypeError) as error:
        raise SourceUnsupported(
            f"{mark_option('cast')}: {leaf.type} cannot become {cast}",
            field=leaf.name,
            hint=f"{mark_option('tensor', f'{cast}[...]', column=leaf.name)} takes raw bytes."
            if _is_raw(kind)
            else None,
        ) from error
    if cast == "bfloat16":
        return {"dtype": "uint16", "shape": (), "logical": Logical("bfloat16")}
    keeps_names = cast.startswith(("int", "uint"))
    return {
        "dtype": cast,
        "shape": (),
        "logical": _find_class_names(leaf, kind) if keeps_names else None,
    }


_NUMBERS = {
    pa.bool_(): "bool",
    pa.float16(): "float16",
    pa.float32(): "float32",
    pa.float64(): "float64",
    pa.int8(): "int8",
    pa.int16(): "int16",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.uint8(): "uint8",
    pa.uint16(): "uint16",
    pa.uint32(): "uint32",
    pa.uint64(): "uint64",
}


def _describe_scalar(kind: pa.DataType) -> tuple[str, tuple[int, ...], Logical | None] | None:
    types = pa.types
    if kind in _NUMBERS:
        return _NUMBERS[kind], (), None
    if get_extension_name(kind) == "arrow.bool8":
        return "bool", (), None
    if get_extension_name(kind) == "arrow.uuid":
        return "uint8", (16,), Logical("uuid")
    if types.is_fixed_size_binary(kind):
        return "uint8", (kind.byte_width,), Logical("bytes")
    if types.is_date(kind):
        return (
            f"int{kind.bit_width}",
            (),
            Logical("date", unit="D" if kind.bit_width == 32 else "ms"),
        )
    if types.is_time(kind):
        return f"int{kind.bit_width}", (), Logical("time", unit=kind.unit)
    if types.is_timestamp(kind):
        return "int64", (), Logical("timestamp", unit=kind.unit, timezone=kind.tz)
    if types.is_duration(kind):
        return "int64", (), Logical("duration", unit=kind.unit)
    return None


def _infer_numbers(leaf: Leaf, sample: Sample) -> InferredField:
    """Infer the field of scalars and of (nested) lists of scalars."""
    sizes, element = find_list_sizes(leaf.type)
    if sizes and leaf.options.cast is None and (is_text(element) or is_bytes(element)):
        return _infer_nested(leaf)
    members = describe_element(leaf, element)
    why = _describe_leaf(leaf)
    if described := find_described_sizes(leaf.feature, sizes):
        sizes, why = (
            described,
            f"HuggingFace {leaf.feature.get('_type')} of shape {list(described)}",
        )
    if None in sizes[1:]:
        inferred, why = infer_sizes(sizes, sample(leaf.name))
        if inferred is None:
            return _infer_nested(leaf)
        sizes = inferred
    has_names = members["logical"] is not None and members["logical"].type == "class_label"
    if has_names and not leaf.hint.why:
        why = f"HuggingFace ClassLabel with {len(members['logical'].names)} names"
    if sizes[:1] == (None,):
        members |= {"kind": "ragged", "shape": (*sizes[1:], *members["shape"])}
        return InferredField(why, "list", members)
    members |= {"kind": "fixed", "shape": (*sizes, *members["shape"])}
    return InferredField(why, "dense", members)


def _infer_nested(leaf: Leaf) -> InferredField:
    """Infer the field of lists of text, of bytes, or of lists of numbers that differ in length.

    Lists of plain numbers, which a cast of a whole struct names as well, are ragged.
    """
    sizes, element = find_list_sizes(leaf.type)
    why, members, depth, shape = _describe_leaf(leaf), dict[str, Any](), len(sizes), sizes[2:]
    if is_text(element) or is_bytes(element):
        depth += 1
        members = {"inner": "text" if is_text(element) else "binary"}
    else:
        members = describe_element(leaf, element) | {"inner": "ragged"}
        members["shape"] = (*shape, *members["shape"])
    if depth == 1 and members["inner"] == "ragged":
        return InferredField(why, "list", describe_element(leaf, element) | {"kind": "ragged"})
    if depth < 2 or None in shape or (members["inner"] != "ragged" and depth > 2):
        problem = "lists in lists, deeper than two levels" if depth > 2 else "not lists of lists"
        hint = _make_json_hint(leaf.name)
        raise SourceUnsupported(problem, field=leaf.name, found=str(leaf.type), hint=hint)
    return InferredField(why, "nested", {"kind": "nested", **members})


def _infer_fixed_shape_tensor(leaf: Leaf, kind: Any) -> InferredField:
    members = describe_element(leaf, kind.value_type)
    order = tuple(kind.permutation or range(len(kind.shape)))
    shape = tuple(kind.shape[axis] for axis in order)
    members |= {"kind": "fixed", "shape": shape}
    return InferredField(_describe_leaf(leaf), "permuted", members, permutation=order)


def _infer_layout(leaf: Leaf, cast: str) -> InferredField:
    """Text, binary, JSON and categories, by `--cast`."""
    if cast != "json":
        try:
            cast_layout(pa.array([], strip_type(leaf.type)), cast)
        except pa.ArrowException as error:
            raise SourceUnsupported(
                f"{mark_option('cast')}: {leaf.type} cannot become {cast}",
                field=leaf.name,
                hint=_make_json_hint(leaf.name),
            ) from error
    if cast == "categorical":
        members: dict[str, Any] = {"kind": "categorical", "dtype": "int32"}
        return InferredField(_describe_leaf(leaf), "categorical", members)
    if cast == "binary":
        return InferredField(_describe_leaf(leaf), "bytes", {"kind": "binary"})
    logical = Logical("json") if cast == "json" else None
    return InferredField(_describe_leaf(leaf), "bytes", {"kind": "text", "logical": logical})


def _infer_bytes(leaf: Leaf, sample: Sample) -> InferredField:
    media = leaf.feature.get("_type")
    if media == "Audio":
        members = {"kind": "binary", "logical": Logical("audio")}
        return InferredField("HuggingFace Audio", "bytes", members)
    picture = {"kind": "image", "codec": "mixed"}
    if leaf.hint.image:
        return InferredField(leaf.type_text, "bytes", picture)
    if leaf.options.image or media == "Image":
        return InferredField(
            "image, as asked for" if leaf.options.image else "HuggingFace Image", "bytes", picture
        )
    values = [memoryview(value.as_buffer()) for array in sample(leaf.name) for value in array]
    formats = [detect_format(value) for value in values if len(value)]
    images = [name for name in formats if name is not None]
    plain_bytes: dict[str, Any] = {"kind": "binary"}
    if leaf.hint.dtype == "uint8":
        plain_bytes = {"kind": "ragged", "dtype": "uint8"}
    if not images:
        return InferredField(leaf.type_text, "bytes", plain_bytes)
    why = f"{len(images)} of {len(formats)} sampled values are {'/'.join(sorted(set(images)))}"
    if len(images) == len(formats):
        return InferredField(why, "bytes", picture)
    why += ": not all, so they stay bytes; the option `image` makes them images"
    return InferredField(why, "bytes", plain_bytes)


def _find_category_order(kind: pa.DataType) -> bool | None:
    """Return True if the categories of a type are ordered; None if it has no text categories."""
    while not pa.types.is_dictionary(kind):
        if pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        elif isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        else:
            return None
    return kind.ordered if is_text(kind.value_type) else None


def _find_class_names(leaf: Leaf, kind: pa.DataType) -> Logical | None:
    """Find the names that HuggingFace's ClassLabel gives integers, or the elements of lists."""
    if leaf.hint.logical is not None and leaf.hint.logical.names:
        return leaf.hint.logical
    feature: Any = leaf.feature
    while True:
        if isinstance(feature, list) and len(feature) == 1:
            feature = feature[0]
        elif isinstance(feature, dict) and "feature" in feature:
            feature = feature["feature"]
        else:
            break
    if not isinstance(feature, dict) or feature.get("_type") != "ClassLabel":
        return None
    names = feature.get("names")
    if not isinstance(names, list) or not names or not pa.types.is_integer(kind):
        return None
    return Logical("class_label", names=tuple(map(str, names)))


def _describe_leaf(leaf: Leaf) -> str:
    cast = leaf.options.cast
    return leaf.type_text if cast is None else f"cast to {cast} of {leaf.type_text}"


def _is_raw(kind: pa.DataType) -> bool:
    return is_bytes(kind) or pa.types.is_fixed_size_binary(kind)


def _make_json_hint(column: str) -> str:
    return (
        f"{mark_option('cast', 'json', column=column)} stores it as JSON text, "
        f"{mark_option('exclude', [column])} leaves it out."
    )


def _make_unsupported_error(leaf: Leaf) -> SourceUnsupported:
    column, kind = leaf.name, strip_type(leaf.type)
    hint = _make_json_hint(column)
    if pa.types.is_decimal(kind):
        hint = (
            f"{mark_option('cast', 'text', column=column)} keeps every digit, "
            f"{mark_option('cast', 'f8', column=column)} the nearest float64, "
            f"{mark_option('exclude', [column])} leaves it out."
        )
    elif pa.types.is_null(kind):
        hint = (
            f"The column holds nothing but nulls: {mark_option('exclude', [column])} leaves it out."
        )
    return SourceUnsupported(
        "type cannot be stored as it is", field=column, found=str(leaf.type), hint=hint
    )
