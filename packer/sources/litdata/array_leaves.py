"""LitData's array leaves: in front of a row's values may stand its dtype and its shape."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fieldslab.packer.sources.litdata.items import BadRow, LeafDecoder, RowBytes, get_values
from fieldslab.packer.sources.litdata.library import Dtypes, load_numpy_dtypes, load_torch_dtypes
from fieldslab.packer.sources.litdata.stream_index import LeafFormat
from fieldslab.schemas.errors import SourceInconsistent, SourceUnsupported
from fieldslab.schemas.optiontext import mark_option

Sizes = tuple[int | None, ...]
"""Shape of an array leaf; None where rows may differ."""

_MODES: dict[str, tuple[str, tuple[int, ...]]] = {
    "L": ("|u1", ()),
    "LA": ("|u1", (2,)),
    "RGB": ("|u1", (3,)),
    "RGBA": ("|u1", (4,)),
    "CMYK": ("|u1", (4,)),
    "YCbCr": ("|u1", (3,)),
    "HSV": ("|u1", (3,)),
    "LAB": ("|u1", (3,)),
    "I;16": ("<u2", ()),
    "I": ("<i4", ()),
    "F": ("<f4", ()),
}
"""Pixel modes of Pillow: dtype of a sample, and samples a pixel."""

_LONGEST_MODE = 16
_MOST_AXES = 30
_MOST_EMPTY = 2**16


class LeafArrays(NamedTuple):
    """The arrays of some rows: shapes int64[rows, rank], and the bytes of their values."""

    dtype: np.dtype[Any]
    shapes: np.ndarray
    values: RowBytes


Parse = Callable[[RowBytes], LeafArrays]

_NOTHING = RowBytes(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))


def parse_array_rows(leaf: LeafFormat, piece: RowBytes) -> LeafArrays:
    """Parse rows of an array leaf.

    Raises
    ------
    BadRow
        A row is damaged.
    SourceUnsupported
        The dtype has no place in a slab.
    """
    return _make_parser(leaf)(piece)


def make_array_decoder(leaf: LeafFormat, samples: list[LeafArrays]) -> LeafDecoder:
    """Make the decoder of an array leaf from sampled rows.

    Where a row differs from these in a length, what is read has lists of open sizes; whatever
    plans the field then names the row.

    Raises
    ------
    SourceUnsupported
        There is no row to go by.
    SourceInconsistent
        The rows differ in dtype or rank.
    """
    if not samples:
        raise SourceUnsupported(
            "no sampled row shows the type of this array",
            field=leaf.name,
            found=leaf.format,
            hint=make_exclude_hint(leaf.name),
        )
    types = {f"{arrays.dtype} of {arrays.shapes.shape[1]} axes" for arrays in samples}
    if len(types) > 1:
        raise SourceInconsistent(
            "the arrays of this leaf have different types",
            field=leaf.name,
            found=", ".join(sorted(types)),
            hint=make_exclude_hint(leaf.name),
        )
    sizes = _find_common_lengths(np.concatenate([arrays.shapes for arrays in samples]))
    return _make_decoder(_make_parser(leaf), samples[0].dtype, sizes)


def make_tokens_decoder(leaf: LeafFormat, block: int | None) -> LeafDecoder:
    """Make the decoder of a stream for TokensLoader: documents of any length, or blocks of one.

    Raises SourceUnsupported where the leaf does not hold tokens.
    """
    if leaf.kind not in ("no_header_tensor", "no_header_numpy"):
        raise SourceUnsupported(
            "a stream for TokensLoader that does not hold tokens",
            field=leaf.name,
            found=leaf.format,
        )
    parse = _make_parser(leaf)
    dtype = parse(_NOTHING).dtype
    return _make_decoder(parse, dtype, (block,))


def _make_decoder(parse: Parse, dtype: np.dtype[Any], sizes: Sizes) -> LeafDecoder:
    complex_ = dtype.kind == "c"
    kind = pa.binary(dtype.itemsize) if complex_ else pa.from_numpy_dtype(dtype)
    for size in reversed(sizes):
        kind = pa.large_list(kind) if size is None else pa.list_(kind, size)
    read = partial(_read_arrays, parse, dtype, sizes)
    return LeafDecoder(kind, read, str(dtype) if complex_ else None)


def _read_arrays(parse: Parse, dtype: np.dtype[Any], sizes: Sizes, piece: RowBytes) -> pa.Array:
    arrays = parse(piece)
    shapes = arrays.shapes
    if arrays.dtype != dtype or shapes.shape[1] != len(sizes):
        expected = f"{dtype} of {len(sizes)} axes"
        actual = f"{arrays.dtype} of {shapes.shape[1]} axes"
        raise BadRow(0, "the array has another type than the sampled ones", expected, actual)
    array = _make_elements(get_values(arrays.values.gather()), dtype)
    pairs = list(zip(sizes, _find_common_lengths(shapes), strict=True))
    for axis, (planned, common) in reversed(list(enumerate(pairs))):
        if planned is not None and planned == common:
            array = pa.FixedSizeListArray.from_arrays(array, planned)
        else:
            lengths = np.repeat(shapes[:, axis], shapes[:, :axis].prod(axis=1))
            offsets = np.concatenate([[0], np.cumsum(lengths)])
            array = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), array)
    return array


def _make_elements(values: np.ndarray, dtype: np.dtype[Any]) -> pa.Array:
    if dtype.kind != "c":
        return pa.array(values.view(dtype))
    kind = pa.binary(dtype.itemsize)
    return pa.Array.from_buffers(kind, len(values) // dtype.itemsize, [None, pa.py_buffer(values)])


def _find_common_lengths(shapes: np.ndarray) -> Sizes:
    """Find the lengths that all rows share; None for an axis where they differ, or are zero."""
    first = shapes[:1]
    same = (shapes == first).all(axis=0) & (first > 0).any(axis=0)
    return tuple(int(shapes[0, axis]) if same[axis] else None for axis in range(len(same)))


def _skip_checked_header(
    piece: RowBytes, head: int, dtype: np.dtype[Any], shapes: np.ndarray
) -> LeafArrays:
    """Return the values after `head` bytes; the shapes must account for every byte."""
    values = piece.skip(head)
    sizes = shapes.astype(np.float64).prod(axis=1) * dtype.itemsize
    # An axis of length 0 makes any other length fit: those are bounded here.
    empty = np.maximum(shapes, 1).astype(np.float64).prod(axis=1) > _MOST_EMPTY
    bad_rows = np.flatnonzero((sizes != values.lengths) | ((sizes == 0) & empty))
    if len(bad_rows):
        row = int(bad_rows[0])
        expected = f"{dtype}{shapes[row].tolist()}"
        raise BadRow(
            row,
            "the shape does not match the number of bytes",
            expected,
            f"{values.lengths[row]} bytes",
        )
    return LeafArrays(dtype, shapes, values)


def _parse_with_header(
    dtypes: Callable[[], Dtypes], orders: Sequence[str], name: str, parameter: str, piece: RowBytes
) -> LeafArrays:
    """Parse arrays with a header, 32 bits each: number of the dtype, rank, lengths."""
    head_bytes = piece.gather_heads(8, "the array's header")
    # Versions of litdata differ in the order; in the wrong one a rank is at least 2**24.
    order = next((o for o in orders if (head_bytes.view(o)[:1, 1] <= _MOST_AXES).all()), orders[0])
    start = head_bytes.view(order)
    for column, property_name in enumerate(("dtype", "rank")):
        differing = np.flatnonzero(start[:, column] != start[0, column])
        if len(differing):
            a, b = int(start[0, column]), int(start[differing[0], column])
            raise BadRow(int(differing[0]), f"the array's {property_name} differs", a, b)
    code, rank = int(start[0, 0]), int(start[0, 1])
    if rank > _MOST_AXES:
        raise BadRow(0, "the array's rank is out of range", f"at most {_MOST_AXES}", rank)
    head = 8 + 4 * rank
    shapes = piece.gather_heads(head, "the array's header").view(order)[:, 2:].astype(np.int64)
    return _skip_checked_header(piece, head, _look_up_dtype(dtypes(), code, name), shapes)


def _parse_without_header(
    dtypes: Callable[[], Dtypes], name: str, parameter: str, piece: RowBytes
) -> LeafArrays:
    """Parse values of one axis; the format names the dtype."""
    dtype = _look_up_dtype(dtypes(), int(parameter) if parameter.isdecimal() else -1, name)
    return _skip_checked_header(piece, 0, dtype, (piece.lengths // dtype.itemsize)[:, None])


def _parse_pixels(name: str, parameter: str, piece: RowBytes) -> LeafArrays:
    """Width, height, length of the mode's name, the name, and the raw pixels."""
    start = piece.gather_heads(12, "the picture's header").view("<u4").astype(np.int64)
    size = int(start[0, 2])
    if size > _LONGEST_MODE or (start[:, 2] != size).any():
        row = int(np.argmax(start[:, 2] != size))
        raise BadRow(
            row, "the pictures do not all have a mode of one length", found=f"{size} bytes"
        )
    modes = piece.gather_heads(12 + size, "the picture's header")[:, 12:]
    differing = np.flatnonzero((modes != modes[0]).any(axis=1))
    mode = modes[0].tobytes().decode(errors="replace")
    if len(differing):
        other_mode = modes[differing[0]].tobytes().decode(errors="replace")
        raise BadRow(int(differing[0]), "the picture's mode differs", mode, other_mode)
    if mode not in _MODES:
        raise SourceUnsupported(
            "raw pixels of this mode are not packed",
            field=name,
            found=mode,
            expected=", ".join(_MODES),
            hint=make_exclude_hint(name),
        )
    dtype, channels = _MODES[mode]
    inner = np.tile(np.array(channels, np.int64), (len(start), 1))
    shapes = np.concatenate([start[:, 1::-1], inner], axis=1)
    return _skip_checked_header(piece, 12 + size, np.dtype(dtype), shapes)


def make_exclude_hint(name: str) -> str:
    """Make the hint that a leaf can be left out."""
    return f"{mark_option('exclude', [name])} leaves it out."


def _look_up_dtype(dtypes: Dtypes, code: int, name: str) -> np.dtype[Any]:
    dtype = dtypes.get(code)
    if dtype is None or dtype.kind not in "biufc":
        raise SourceUnsupported(
            "arrays of this dtype are not packed",
            field=name,
            found=f"number {code}" if dtype is None else str(dtype),
            hint=make_exclude_hint(name),
        )
    return dtype


ARRAYS: dict[str, Callable[..., LeafArrays]] = {
    "tensor": partial(
        _parse_with_header, load_torch_dtypes, (">u4", "<u4")
    ),  # "<u4": older litdata, 0.2.40 too
    "numpy": partial(_parse_with_header, load_numpy_dtypes, ("<u4",)),
    "no_header_tensor": partial(_parse_without_header, load_torch_dtypes),
    "no_header_numpy": partial(_parse_without_header, load_numpy_dtypes),
    "pil": _parse_pixels,
}
"""What reads each format: a function of name, parameter and piece."""


def _make_parser(leaf: LeafFormat) -> Parse:
    return partial(ARRAYS[leaf.kind], leaf.name, leaf.format.partition(":")[2])
