"""Values of WebDataset: the type of each extension, and members as columns of it."""

import io
import re
from typing import Any

import numpy as np
import pyarrow as pa

from fieldslab.packer.sources.tar_members import Member, Tar
from fieldslab.packer.sources.text.json_values import make_decoder, make_json_array

KEY = "__key__"
BYTES, TEXT, INTEGER = pa.large_binary(), pa.large_string(), pa.int64()
JSON = pa.json_(pa.large_string())
PICKLED = ("pkl", "pickle", "pyd", "pth", "pt", "dill")
_INTEGERS = ("cls", "cls2", "class", "count", "index", "inx", "id")
_TEXTS = ("txt", "text", "transcript")
_DIGITS = re.compile(rb"[+-]?[0-9]{1,19}")


def find_type(tar: Tar, member: Member) -> pa.DataType:
    """Find the type of an extension, by its last part; null for arrays of Python objects."""
    kind = get_kind(member.extension)
    if kind in _INTEGERS:
        return INTEGER
    if kind in _TEXTS:
        return TEXT
    if kind in ("json", "jsn"):
        return JSON
    if kind != "npy":
        return BYTES
    header = _read_header(bytes(tar.read(member, 1 << 16)))
    if header is None:
        return BYTES
    shape, dtype = header
    if dtype.hasobject:
        return pa.null()
    if dtype.kind not in "iuf" or dtype.itemsize > 8 or 0 in shape:
        return BYTES
    arrow = pa.from_numpy_dtype(dtype.newbyteorder("="))
    return pa.fixed_shape_tensor(arrow, shape) if shape else arrow


def _read_header(data: bytes) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """Read shape and dtype of an `.npy`; None where it has no header of numpy."""
    stream, formats = io.BytesIO(data), np.lib.format
    try:
        version = formats.read_magic(stream)
        read = formats.read_array_header_1_0 if version == (1, 0) else formats.read_array_header_2_0
        shape, _, dtype = read(stream)
    except ValueError:
        return None
    return shape, dtype


def _read_array(data: bytes, kind: pa.DataType) -> np.ndarray:
    """Read an `.npy`, as one row of a column. Raises ValueError where it does not fit."""
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except (EOFError, SyntaxError) as error:
        raise ValueError(str(error)) from error
    tensor = isinstance(kind, pa.FixedShapeTensorType)
    shape, value_type = (tuple(kind.shape), kind.value_type) if tensor else ((), kind)
    native = array.dtype.newbyteorder("=")
    if array.shape != shape or native != value_type.to_pandas_dtype():
        raise ValueError(f"{array.dtype}{array.shape}")
    return np.ascontiguousarray(array, native).reshape(-1)


def make_array(values: list[memoryview | None], kind: pa.DataType) -> pa.Array:
    """Make a column of the members of some samples. Raises ValueError where one does not fit."""
    if kind in (BYTES, TEXT, JSON):
        data = pa.array(values, BYTES)
        if kind == BYTES:
            return data
        text = data.cast(TEXT)
        return text if kind == TEXT else pa.ExtensionArray.from_storage(JSON, text)
    if pa.types.is_struct(kind):
        decoder = make_decoder({field.name: field.type for field in kind}, strict=True)
        rows = [None if value is None else decoder.decode(value) for value in values]
        return make_json_array(rows, kind)
    if kind == INTEGER:
        return pa.array([None if v is None else _parse_integer(v) for v in values], kind)
    if kind == pa.float64():
        return pa.array([None if v is None else float(bytes(v)) for v in values], kind)
    arrays = [None if value is None else _read_array(bytes(value), kind) for value in values]
    if isinstance(kind, pa.FixedShapeTensorType):
        return pa.ExtensionArray.from_storage(kind, pa.array(arrays, kind.storage_type))
    return pa.array([None if value is None else value[0] for value in arrays], kind)


def _parse_integer(data: memoryview) -> int:
    text = bytes(data).strip()
    if not _DIGITS.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
        raise ValueError("not an integer of 64 bits")
    return int(text)


def choose_type(kind: pa.DataType, target: str) -> pa.DataType:
    """Choose how members are read that are cast to a target."""
    if target == "json":
        return JSON
    if target in ("text", "categorical"):
        return TEXT
    if target == "binary":
        return BYTES
    if kind in (BYTES, TEXT, INTEGER):
        if target.startswith(("float", "bfloat")):
            return pa.float64()
        return INTEGER if target.startswith(("int", "uint")) else kind
    return kind


def get_kind(extension: str) -> str:
    """Return the last part of an extension."""
    return extension.rpartition(".")[2]
