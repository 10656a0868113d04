"""What a column becomes: its field kind and the form it is converted by, and why."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from fieldslab.packer.dense import plain
from fieldslab.packer.fieldplan import Form
from fieldslab.packer.forms import cast_array
from fieldslab.packer.leaves import Leaf
from fieldslab.packer.options import Options, parse_shape
from fieldslab.schemas.errors import SourceInconsistent, SourceUnsupported, UsageError
from fieldslab.schemas.fields import Logical
from fieldslab.schemas.images import image_format

Sample = Callable[[Leaf], list[Any]]
"""Gives a few values of a leaf, as Arrow scalars that are not null."""


@dataclass
class Inferred:
    """The members of a field and of its plan that follow from a column's type and options."""

    why: str
    form: Form = "dense"
    members: dict[str, Any] = field(default_factory=dict)
    permutation: tuple[int, ...] = ()


_NUMBERS = {
    pa.bool_(): "bool", pa.float16(): "float16", pa.float32(): "float32", pa.float64(): "float64",
    pa.int8(): "int8", pa.int16(): "int16", pa.int32(): "int32", pa.int64(): "int64",
    pa.uint8(): "uint8", pa.uint16(): "uint16", pa.uint32(): "uint32", pa.uint64(): "uint64",
}  # fmt: skip


def infer(leaf: Leaf, options: Options, sample: Sample) -> Inferred:
    """Decide what a leaf becomes.

    Raises
    ------
    SourceUnsupported
        The type cannot be stored as it is; the hint names the option that admits it.
    UsageError
        An option does not go with the type.
    """
    cast = options.cast.get(leaf.name)
    kind, why = leaf.type, str(leaf.type)
    if cast is not None:
        why = f"--cast {cast} of {leaf.type}"
        if cast == "json":
            return Inferred(why, "bytes", {"kind": "text", "logical": Logical("json")})
        kind = _cast_type(leaf, cast)
        if cast == "bfloat16":
            return Inferred(why, "dense", _fixed("uint16", logical=Logical("bfloat16")))
    if leaf.name in options.tensor:
        return _tensor(leaf, kind, options, sample)
    if leaf.name in options.image and not _is_bytes(kind):
        raise UsageError(
            "--image: not a column of bytes", field=leaf.name, expected="binary", found=str(kind)
        )
    return _by_type(leaf, kind, why, leaf.name in options.image, sample)


def _by_type(leaf: Leaf, kind: pa.DataType, why: str, image: bool, sample: Sample) -> Inferred:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _extension(leaf, kind, why, image, sample)
    if types.is_run_end_encoded(kind):
        return _by_type(leaf, kind.value_type, why, image, sample)
    if types.is_dictionary(kind):
        if types.is_string(kind.value_type) or types.is_large_string(kind.value_type):
            attributes = {"attributes": leaf.attributes | {"ordered": True}} if kind.ordered else {}
            return Inferred(
                why, "categorical", {"kind": "categorical", "dtype": "int32"} | attributes
            )
        return _by_type(leaf, kind.value_type, why, image, sample)
    if kind in _NUMBERS or types.is_temporal(kind):
        dtype, logical = scalar_type(leaf, kind)
        names = leaf.feature.get("names") if leaf.feature.get("_type") == "ClassLabel" else None
        if names and types.is_integer(kind):
            logical = Logical("class_label", names=tuple(map(str, names)))
            why = f"HuggingFace ClassLabel with {len(names)} names"
        return Inferred(why, "dense", _fixed(dtype, logical=logical))
    if types.is_fixed_size_binary(kind):
        shape = (kind.byte_width,)
        return Inferred(why, "dense", _fixed("uint8", shape, Logical("bytes")))
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return Inferred(why, "bytes", {"kind": "text"})
    if _is_bytes(kind):
        return _bytes(leaf, why, image, sample)
    if _is_list(kind):
        return _list(leaf, kind, why, sample)
    raise _unsupported(leaf, kind)


def scalar_type(leaf: Leaf, kind: pa.DataType) -> tuple[str, Logical | None]:
    """Dtype name and logical type of a number or a time. Raises SourceUnsupported for others."""
    kind = plain(pa.array([], kind)).type
    if kind in _NUMBERS:
        return _NUMBERS[kind], None
    if pa.types.is_date32(kind):
        return "int32", Logical("date", unit="D")
    if pa.types.is_date64(kind):
        return "int64", Logical("date", unit="ms")
    if pa.types.is_time(kind):
        return f"int{kind.bit_width}", Logical("time", unit=kind.unit)
    if pa.types.is_timestamp(kind):
        return "int64", Logical("timestamp", unit=kind.unit, timezone=kind.tz)
    if pa.types.is_duration(kind):
        return "int64", Logical("duration", unit=kind.unit)
    raise _unsupported(leaf, kind)


def _extension(leaf: Leaf, kind: Any, why: str, image: bool, sample: Sample) -> Inferred:
    name, storage = kind.extension_name, kind.storage_type
    if name == "arrow.uuid":
        return Inferred(why, "dense", _fixed("uint8", (16,), Logical("uuid")))
    if name == "arrow.bool8":
        return Inferred(why, "bool8", _fixed("bool"))
    if name == "arrow.json":
        return Inferred(why, "bytes", {"kind": "text", "logical": Logical("json")})
    if name == "arrow.fixed_shape_tensor":
        dtype, logical = scalar_type(leaf, storage.value_type)
        order = tuple(kind.permutation or range(len(kind.shape)))
        shape = tuple(kind.shape[axis] for axis in order)
        return Inferred(why, "permuted", _fixed(dtype, shape, logical), permutation=order)
    return _by_type(leaf, storage, why, image, sample)


def _bytes(leaf: Leaf, why: str, image: bool, sample: Sample) -> Inferred:
    media = leaf.feature.get("_type")
    if media == "Audio":
        logical = Logical("audio")
        return Inferred("HuggingFace Audio", "bytes", {"kind": "binary", "logical": logical})
    picture = {"kind": "image", "codec": "mixed"}
    if image or media == "Image":
        return Inferred("--image" if image else "HuggingFace Image", "bytes", picture)
    formats = [image_format(memoryview(value.as_buffer())) for value in sample(leaf)]
    if formats and all(formats):
        why = (
            f"{len(formats)} of {len(formats)} sampled values are {'/'.join(sorted(set(formats)))}"  # type: ignore[arg-type]
        )
        return Inferred(why, "bytes", picture)
    return Inferred(why, "bytes", {"kind": "binary"})


def _list(leaf: Leaf, kind: pa.DataType, why: str, sample: Sample) -> Inferred:
    sizes, element = list_sizes(kind)
    dtype, logical = scalar_type(leaf, element)
    described = leaf.feature.get("shape")
    if isinstance(described, list | tuple) and len(described) == len(sizes):
        pairs = zip(sizes, described, strict=True)
        sizes = tuple(known if size is None else size for size, known in pairs)
        why = f"HuggingFace {leaf.feature.get('_type')} of shape {tuple(described)}"
    if None in sizes[1:]:
        sizes, why = _sampled_sizes(leaf, sizes, sample)
    if sizes[0] is None:
        members = {"kind": "ragged", "dtype": dtype, "shape": sizes[1:], "logical": logical}
        return Inferred(why, "list", members)
    return Inferred(why, "dense", _fixed(dtype, sizes, logical))


def _sampled_sizes(
    leaf: Leaf, sizes: tuple[int | None, ...], sample: Sample
) -> tuple[tuple[Any, ...], str]:
    """Lengths of nested lists that the type leaves open, from sampled rows."""
    shapes = [_shape_of(value.as_py(), len(sizes)) for value in sample(leaf)]
    if not shapes:
        return tuple(size or 0 for size in sizes), "no rows to tell the shape from"
    if None not in shapes and len({shape[1:] for shape in shapes if shape}) == 1:
        shape = shapes[0]
        assert shape is not None
        if len(set(shapes)) == 1:
            return shape, f"all {len(shapes)} sampled rows have the shape {shape}"
        return (None, *shape[1:]), f"sampled rows differ in their first length only: *x{shape[1:]}"
    raise SourceUnsupported(
        "lists in lists of unequal length", field=leaf.name, found=str(leaf.type),
        hint=f"--cast '{leaf.name}=json' stores them as JSON text, --exclude '{leaf.name}' not at all.",  # noqa: E501
    )  # fmt: skip


def _shape_of(value: Any, depth: int) -> tuple[int, ...] | None:
    """Shape of nested lists, None where they are not rectangular."""
    if depth == 0:
        return ()
    inner = {_shape_of(item, depth - 1) for item in value or []}
    if len(inner) > 1 or None in inner or value is None:
        return None
    return (len(value), *(inner.pop() if inner else (0,) * (depth - 1)))  # type: ignore[misc]


def list_sizes(kind: pa.DataType) -> tuple[tuple[int | None, ...], pa.DataType]:
    """Lengths of the nested lists of a type (None: any), and the type of their elements."""
    sizes: list[int | None] = []
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif _is_list(kind):
            sizes.append(kind.list_size if pa.types.is_fixed_size_list(kind) else None)
            kind = kind.value_type
        else:
            return tuple(sizes), kind


def _tensor(leaf: Leaf, kind: pa.DataType, options: Options, sample: Sample) -> Inferred:
    tensor = options.tensor[leaf.name]
    shape, why = tensor.shape, f"--tensor of {kind}"
    if shape is None:
        shape = _first_shape(leaf, tensor.shape_from, sample)
        why = f"--tensor of {kind}, shape {shape} from {tensor.shape_from}"
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    logical = Logical("bfloat16") if tensor.dtype == "bfloat16" else None
    dtype = "uint16" if logical else tensor.dtype
    ragged = shape[:1] == (-1,)
    members = _fixed(dtype, shape, logical)
    if ragged:
        members |= {"kind": "ragged", "shape": shape[1:]}
    if _is_bytes(kind) or _is_text(kind) or pa.types.is_fixed_size_binary(kind):
        return Inferred(why, "raw", members)
    sizes, element = list_sizes(kind)
    found, _ = scalar_type(leaf, element) if sizes else (str(kind), None)
    if not sizes or found != dtype or (ragged and len(sizes) != len(shape)):
        raise UsageError(
            "--tensor: the column does not hold that", field=leaf.name, found=str(kind),
            expected=f"bytes, hexadecimal text or lists of {dtype}",
            hint="--cast changes the dtype of a list's elements.",
        )  # fmt: skip
    if ragged:
        return Inferred(why, "list", members)
    return Inferred(why, "dense" if len(sizes) == len(shape) else "flat", members)


def _first_shape(leaf: Leaf, column: str | None, sample: Sample) -> tuple[int, ...]:
    for value in sample(Leaf(column or "", (), leaf.type, {}, {})):
        given = value.as_py()
        shape = tuple(given) if isinstance(given, list) else parse_shape(str(given))
        if shape is None:
            raise SourceInconsistent(
                "not a shape", field=column, found=given, expected="text like '(402, 500)'"
            )
        return shape
    raise SourceInconsistent("no row to take the shape from", field=column)


def _cast_type(leaf: Leaf, cast: str) -> pa.DataType:
    try:
        return cast_array(pa.array([], leaf.type), cast).type
    except (pa.ArrowException, NotImplementedError) as error:
        raise SourceUnsupported(
            f"--cast: {leaf.type} cannot become {cast}", field=leaf.name
        ) from error


def _fixed(dtype: str, shape: Any = (), logical: Logical | None = None) -> dict[str, Any]:
    return {"kind": "fixed", "dtype": dtype, "shape": tuple(shape), "logical": logical}


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    plain_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return plain_list or types.is_list_view(kind) or types.is_large_list_view(kind)


def _unsupported(leaf: Leaf, kind: pa.DataType) -> SourceUnsupported:
    column = leaf.name
    hint = f"--cast '{column}=json' stores it as JSON text, --exclude '{column}' leaves it out."
    if pa.types.is_decimal(kind):
        hint = (
            f"--cast '{column}=text' keeps every digit, --cast '{column}=f8' the nearest float64, "
            f"--exclude '{column}' leaves it out."
        )
    elif pa.types.is_null(kind):
        hint = f"The column holds nothing but nulls: --exclude '{column}' leaves it out."
    return SourceUnsupported("type cannot be stored as it is", field=column, found=str(leaf.type), hint=hint)  # fmt: skip  # noqa: E501
