"""The shape of a row of nested lists: from the type, from HuggingFace, or from sampled rows."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from fieldslab.packer.convert.dense import compute_lengths, decode_layout, get_elements, is_list
from fieldslab.packer.options import is_possible_shape

Sizes = tuple[int | None, ...]
"""Lengths of nested lists from the outside in; None where any length is possible."""


def find_list_sizes(kind: pa.DataType) -> tuple[Sizes, pa.DataType]:
    """Find the lengths of the nested lists of a type, and the type of their elements."""
    sizes: list[int | None] = []
    kind = strip_type(kind)
    while is_list(kind):
        sizes.append(kind.list_size if pa.types.is_fixed_size_list(kind) else None)
        kind = strip_type(kind.value_type)
    return tuple(sizes), kind


def strip_type(kind: pa.DataType) -> pa.DataType:
    """Return a type without run ends, dictionaries, and extensions that keep its meaning."""
    while True:
        if pa.types.is_run_end_encoded(kind) or pa.types.is_dictionary(kind):
            kind = kind.value_type
        elif get_extension_name(kind) and get_extension_name(kind) not in _MEANINGFUL:
            kind = kind.storage_type
        else:
            return kind


_MEANINGFUL = ("arrow.bool8", "arrow.uuid", "arrow.fixed_shape_tensor")


def get_extension_name(kind: pa.DataType) -> str | None:
    """Return the name of an extension type; None for any other."""
    return kind.extension_name if isinstance(kind, pa.BaseExtensionType) else None


def find_described_sizes(feature: dict[str, Any], sizes: Sizes) -> Sizes | None:
    """Find the shape that a HuggingFace ArrayXD states, where it goes with the type."""
    shape = feature.get("shape")
    if not isinstance(shape, list | tuple) or len(shape) != len(sizes):
        return None
    if not all(length is None or type(length) is int for length in shape):
        return None
    if not is_possible_shape(tuple(length or 0 for length in shape)):
        return None
    return tuple(known if size is None else size for size, known in zip(sizes, shape, strict=True))


def infer_sizes(sizes: Sizes, samples: Iterable[pa.Array]) -> tuple[Sizes | None, str]:
    """Fill in the open lengths of a type from sampled rows, and say how; None if they differ.

    The first length may differ between rows: it stays None then.
    """
    lengths: list[set[int]] = [set() for _ in sizes]
    rows = 0
    for array in samples:
        rows += len(array)
        for axis_lengths in lengths:
            array = decode_layout(array).drop_null()
            axis_lengths.update(np.unique(compute_lengths(array)).tolist())
            array = get_elements(array)
    if any(len(axis_lengths) > 1 for axis_lengths in lengths[1:]):
        return None, ""
    filled = [
        next(iter(axis_lengths), None) if size is None and len(axis_lengths) < 2 else size
        for size, axis_lengths in zip(sizes, lengths, strict=True)
    ]
    inner = tuple(length or 0 for length in filled[1:])
    if None in filled[1:]:
        return (sizes[0], *inner), "no rows to tell the shape from"
    if filled[0] is None:
        text = ", ".join(map(str, ("*", *inner)))
        return (None, *inner), f"{rows} sampled rows have the shape [{text}]"
    return (filled[0], *inner), f"{rows} sampled rows have the shape {[filled[0], *inner]}"
