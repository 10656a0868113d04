"""LitData's leaves as Arrow arrays: one `LeafDecoder` for each leaf, chosen by its format.

Whatever is an encoded file stays its bytes, and nothing is ever unpickled: a format that has no
decoder here is refused by name, whatever the index calls it.
"""

import json
import math
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from fieldslab.packer.sources.litdata.array_leaves import ARRAYS, LeafArrays, make_array_decoder
from fieldslab.packer.sources.litdata.items import BadRow, LeafDecoder, RowBytes, get_values
from fieldslab.packer.sources.litdata.nested_values import NotNested, decode_nested
from fieldslab.packer.sources.litdata.stream_index import LeafFormat
from fieldslab.schemas.optiontext import mark_option

_FILES = (
    "bytes",
    "file",
    "image",
    "jpeg",
    "video",
    "audio",
    "nifti",
    "mesh",
    "pdf",
    "tiff",
    "tifffile",
)
_TEXT = ("str", "text")
_NUMBERS = {"int": (pa.int64(), "<i8"), "float": (pa.float64(), "<f8")}


def make_decoder(leaf: LeafFormat, samples: list[LeafArrays]) -> LeafDecoder:
    """Make the decoder of a leaf that is not refused.

    `samples` are some rows of it, needed where `needs_sample` says so. The errors are those of
    `make_array_decoder`.
    """
    kind = leaf.kind
    if kind in _FILES:
        return LeafDecoder(pa.large_binary(), RowBytes.gather)
    if kind in _TEXT:
        return LeafDecoder(pa.large_string(), _decode_text)
    if kind in _NUMBERS:
        arrow, dtype = _NUMBERS[kind]
        return LeafDecoder(arrow, partial(_decode_numbers, np.dtype(dtype)))
    if kind == "bool":
        return LeafDecoder(pa.bool_(), _decode_bools)
    if kind == "json":
        numbers = find_number_list(leaf.type)
        read = _decode_to_json_text if numbers is None else partial(_decode_number_lists, numbers)
        return LeafDecoder(numbers or JSON, read)
    if kind in ARRAYS:
        return make_array_decoder(leaf, samples)
    raise TypeError(f"{leaf.format} has no decoder: ask `is_refused` first")


def needs_sample(leaf: LeafFormat) -> bool:
    """Return True if the format of a leaf is not enough to choose a decoder."""
    return leaf.kind in ARRAYS


def is_refused(leaf: LeafFormat) -> bool:
    """Return True if `make_decoder` does not take the format of a leaf."""
    return leaf.kind not in (*_FILES, *_TEXT, *_NUMBERS, *ARRAYS, "bool", "json")


def describe_refusal(leaf: LeafFormat) -> tuple[str, str]:
    """Say why a leaf is refused, and what to do about it; `{}` stands for its name."""
    hint = f"{mark_option('exclude', ['{}'])} leaves it out."
    if leaf.kind in ("pickle", "graph"):
        problem = f"a leaf of format {leaf.format} is never read: unpickling runs code"
        return problem, f"{hint} To keep it, write it as arrays, numbers, text or bytes."
    if leaf.kind == "jpeg_array":
        return "a leaf of format jpeg_array has no field to be stored in: many JPEGs a row", hint
    return f"a leaf of a format that is not known: {leaf.format!r}", hint


def _decode_text(piece: RowBytes) -> pa.Array:
    data = piece.gather()
    return pa.Array.from_buffers(pa.large_string(), len(data), data.buffers())


def _decode_numbers(dtype: np.dtype[Any], piece: RowBytes) -> pa.Array:
    bad_rows = np.flatnonzero(piece.lengths != dtype.itemsize)
    if len(bad_rows):
        row = int(bad_rows[0])
        raise BadRow(row, "not one number", f"{dtype.itemsize} bytes", int(piece.lengths[row]))
    return pa.array(get_values(piece.gather()).view(dtype))


def _decode_bools(piece: RowBytes) -> pa.Array:
    flags = _decode_numbers(np.dtype("u1"), piece).to_numpy()
    bad_rows = np.flatnonzero(flags > 1)
    if len(bad_rows):
        raise BadRow(int(bad_rows[0]), "not a flag", "0 or 1", int(flags[bad_rows[0]]))
    return pa.array(flags.view(np.bool_))


# Lists and dicts.

JSON = pa.json_(pa.large_string())

_NUMBER_TYPES = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}


def find_number_list(type_: Any) -> pa.DataType | None:
    """Find the type of lists of numbers, where an entry of the index's `types` says so."""
    if not isinstance(type_, dict) or type_.get("type") != "list":
        return None
    value = type_.get("value")
    inner = find_number_list(value) if isinstance(value, dict) else _NUMBER_TYPES.get(str(value))
    return None if inner is None else pa.large_list(inner)


def _decode_number_lists(kind: pa.DataType, piece: RowBytes) -> pa.Array:
    values = _decode_nested_values(piece)
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        row = next(row for row, value in enumerate(values) if not _can_convert(value, kind))
        raise BadRow(row, f"not a list of numbers: {error}", str(kind)) from error


def _can_convert(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return False
    return True


def _decode_to_json_text(piece: RowBytes) -> pa.Array:
    texts = [
        json.dumps(_name_non_finite(value), ensure_ascii=False, allow_nan=False)
        for value in _decode_nested_values(piece)
    ]
    return pa.ExtensionArray.from_storage(JSON, pa.array(texts, pa.large_string()))


def _name_non_finite(value: Any) -> Any:
    """Replace NaN and infinities, for which JSON has no word, by their names."""
    if isinstance(value, list):
        return [_name_non_finite(item) for item in value]
    if isinstance(value, dict):
        return {key: _name_non_finite(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


def _decode_nested_values(piece: RowBytes) -> list[Any]:
    values = []
    for row, data in enumerate(piece.gather()):
        try:
            values.append(decode_nested(data.as_py()))
        except NotNested as error:
            raise BadRow(row, f"not a list or dict: {error}") from error
    return values
