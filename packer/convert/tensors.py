"""What `--tensor` makes of a column: raw bytes, hexadecimal digits or lists as an nd array."""

import pyarrow as pa

from fieldslab.packer.convert.dense import decode_layout, is_bytes, is_text
from fieldslab.packer.convert.infer import InferredField, Sample, describe_element
from fieldslab.packer.convert.leaves import Leaf
from fieldslab.packer.convert.shapes import find_list_sizes, strip_type
from fieldslab.packer.options import is_possible_shape, parse_shape
from fieldslab.schemas.errors import SourceInconsistent, UsageError
from fieldslab.schemas.fields import Logical
from fieldslab.schemas.optiontext import mark_option


def infer_tensor(leaf: Leaf, sample: Sample) -> InferredField:
    """Decide what a leaf with `--tensor` becomes.

    Raises
    ------
    UsageError
        The column does not hold that, or another option contradicts it.
    SourceInconsistent
        The column of shapes holds none.
    """
    tensor, kind = leaf.options.tensor, strip_type(leaf.type)
    assert tensor is not None
    shape, why = tensor.shape, f"tensor of {leaf.type}"
    if shape is None:
        shape = _find_first_shape(tensor.shape_from or "", sample)
        why = f"tensor of {leaf.type}, shape {list(shape)} from {tensor.shape_from}"
    bfloat16 = tensor.dtype == "bfloat16"
    dtype = "uint16" if bfloat16 else tensor.dtype
    members = {
        "kind": "ragged" if shape[:1] == (-1,) else "fixed",
        "dtype": dtype,
        "logical": Logical("bfloat16") if bfloat16 else None,
        "shape": shape[1:] if shape[:1] == (-1,) else shape,
    }
    raw = is_bytes(kind) or is_text(kind) or pa.types.is_fixed_size_binary(kind)
    if leaf.options.image or (raw and leaf.options.cast is not None):
        option = "image" if leaf.options.image else "cast"
        raise UsageError(
            f"{mark_option('tensor')} and {mark_option(option)} contradict each other",
            field=leaf.name,
        )
    if raw:
        return InferredField(why, "raw", members)
    sizes, element = find_list_sizes(kind)
    scalar = describe_element(leaf, element) if sizes else {"dtype": str(leaf.type), "shape": ()}
    fits = scalar["dtype"] == dtype and not scalar["shape"] and len(sizes) in (1, len(shape))
    if not sizes or not fits or tensor.big_endian:
        raise UsageError(
            f"{mark_option('tensor')}: the column does not hold that",
            field=leaf.name,
            found=str(leaf.type),
            expected=f"bytes, hexadecimal text or lists of {dtype}",
            hint=f"{mark_option('cast')} changes the dtype of a list's elements.",
        )
    if len(sizes) == 1 < len(shape):
        return InferredField(why, "flat", members)
    return InferredField(why, "list" if shape[:1] == (-1,) else "dense", members)


def _find_first_shape(column: str, sample: Sample) -> tuple[int, ...]:
    for array in sample(column):
        for value in decode_layout(array).to_pylist():
            shape = tuple(value) if isinstance(value, list) else parse_shape(str(value))
            if shape is None or None in shape or not is_possible_shape(shape):
                raise SourceInconsistent(
                    "not a shape", field=column, found=value, expected="text like '(402, 500)'"
                )
            return shape
    raise SourceInconsistent("no row to take the shape from", field=column)
