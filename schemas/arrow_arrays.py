"""Fields as columns of Arrow, in the types that other programs know."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from fieldslab.schemas.errors import DamagedArray, UsageError
from fieldslab.schemas.fields import Field
from fieldslab.schemas.manifest import Manifest
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.stored_tables import check_codes

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 32 * 2**20
"""About as much is read at a time."""
_MOST_ROWS = 1 << 16
_MOST_ITEMS = 2**31 - 1
"""Of a list of fixed size."""
_ENCODED = ("jpeg", "png", "webp", "mixed")
NESTED_KEY = "fieldslab:nested"
"""Metadata of an Arrow field whose lists are packed as a nested field, whatever their lengths."""
_FEATURES = {"image": {"_type": "Image"}, "audio": {"_type": "Audio"}}


class ArrowMaker:
    """Makes Arrow arrays of the values of a field, of one `type`."""

    def __init__(self, field: Field, categories: Sequence[str] | None) -> None:
        """Take a field, and the names of its categories if it is categorical.

        Raises UsageError for images that are stored as pixels, and rows too long for Arrow.
        """
        import pyarrow as pa

        if field.kind == "image" and (field.coded or field.codec not in _ENCODED):
            raise UsageError(
                "images that are stored as pixels have no type in Arrow",
                field=field.name,
                found=field.codec,
                hint=f"Name the other fields: {mark_option('fields')}.",
            )
        self._field = field
        self._categories = None
        if categories is not None:
            self._categories = pa.array(list(categories), pa.large_string())
        self._inner = None if field.kind != "nested" else ArrowMaker(make_inner(field), None)
        self.type = find_type(field)

    def convert(
        self,
        values: np.ndarray,
        offsets: np.ndarray | None,
        valid: np.ndarray | None,
        lists: "Lists | None" = None,
    ) -> "pa.Array":
        """Make the array of n rows, null where `valid` (bool[n]) is False. It may share memory.

        Row `i` of a field of variable length is `values[offsets[i]:offsets[i + 1]]`; offsets are
        int64[n + 1]. Of a nested field it is the `lists` of these numbers, of which each has
        offsets, int64[lists + 1], and validity, bool[lists] or None, of its own. Raises
        DamagedArray for text that is not UTF-8, and for codes without a category.
        """
        if lists is not None:
            assert offsets is not None
            assert self._inner is not None
            items = self._inner.convert(values, *lists)
            return _make_lists(self.type, items, offsets, valid)
        import pyarrow as pa

        field = self._field
        if self._categories is not None:
            check_codes(values, len(self._categories), field.name)
            is_null = values < 0 if valid is None else ~valid | (values < 0)
            codes = pa.array(values.astype(np.int32, copy=False), mask=is_null)
            return pa.DictionaryArray.from_arrays(
                codes, self._categories, ordered=self.type.ordered
            )
        bits = None if valid is None else pa.array(valid).buffers()[1]
        if offsets is None:
            return _make_rows(field, values, bits)
        starts = pa.py_buffer(np.ascontiguousarray(offsets, np.int64))
        count = len(offsets) - 1
        if field.kind == "ragged":
            return _make_lists(self.type, _make_rows(field, values, None), offsets, valid)
        storage = pa.large_string() if field.kind == "text" else pa.large_binary()
        content = pa.py_buffer(np.ascontiguousarray(values))
        array = pa.Array.from_buffers(storage, count, [bits, starts, content])
        if field.kind == "text":
            try:
                array.validate(full=True)
            except pa.ArrowInvalid as error:
                raise DamagedArray(f"text is not UTF-8: {error}", field=field.name) from error
        if self.type == storage:
            return array
        return pa.ExtensionArray.from_storage(self.type, array)


Lists = tuple[np.ndarray, np.ndarray | None]
"""Offsets and validity of the lists inside the lists of a nested field."""


def make_inner(field: Field) -> Field:
    """Make the field whose rows are the lists inside the lists of a nested field."""
    assert field.inner is not None
    return msgspec.structs.replace(field, kind=field.inner, inner=None, attributes={})


def make_schema(
    fields: Iterable[Field], makers: Iterable[ArrowMaker], attributes: Mapping[str, Any]
) -> "pa.Schema":
    """Make the schema of a slab's fields, with what `pack` reads back from its metadata.

    Attributes are kept if they are text. Names of classes are described as Hugging Face does.
    """
    import pyarrow as pa

    columns: list[pa.Field] = []
    features: dict[str, Any] = {}
    for field, maker in zip(fields, makers, strict=True):
        metadata = _choose_texts(field.attributes)
        if field.inner == "ragged":  # lists of text and of bytes are nested anyway
            metadata[NESTED_KEY] = field.inner
        columns.append(pa.field(field.name, maker.type, metadata=metadata or None))
        logical = None if field.logical is None else field.logical.type
        if field.logical is not None and logical == "class_label" and not field.shape:
            features[field.name] = {"_type": "ClassLabel", "names": field.logical.names}
        elif described := _FEATURES.get("audio" if logical == "audio" else field.kind):
            features[field.name] = described
    metadata = _choose_texts(attributes)
    if features:
        metadata["huggingface"] = json.dumps({"info": {"features": features}})
    return pa.schema(columns, metadata or None)


def split_rows(
    manifest: Manifest, fields: Iterable[Field], total: int, size: int = BATCH_BYTES
) -> Iterator[range]:
    """Split rows into ranges of about `size` bytes, by the mean length of the slab's rows."""
    chosen = {field.name for field in fields}
    stored = [field for field in manifest.fields if field.stored.variable]
    elements = manifest.counts.elements.sum(axis=0).tolist()
    row_bytes = sum(field.item_bytes for field in manifest.fields if field.name in chosen)
    for field, count in zip(stored, elements, strict=False):  # none without shards
        if field.name in chosen:
            total_bytes = count * field.item_bytes
            if field.compression is not None:
                total_bytes = field.compression.decoded
            row_bytes += total_bytes // max(manifest.rows, 1)
    step = min(max(size // max(row_bytes, 1), 1), _MOST_ROWS)
    for start in range(0, total, step):
        yield range(start, min(start + step, total))


def find_scalar_type(field: Field) -> "pa.DataType":
    """Find the Arrow type of a number, a moment, or a duration."""
    import pyarrow as pa

    logical = field.logical
    if is_bfloat16(field):
        return pa.float32()
    if logical is not None and logical.unit is not None:
        if logical.type == "date" and field.dtype == ("int32" if logical.unit == "D" else "int64"):
            return pa.date32() if logical.unit == "D" else pa.date64()
        short = logical.unit in ("s", "ms")
        if logical.type == "time" and field.dtype == ("int32" if short else "int64"):
            return (pa.time32 if short else pa.time64)(logical.unit)
        if logical.type == "timestamp" and logical.unit != "D":
            return pa.timestamp(logical.unit, logical.timezone)
        if logical.type == "duration" and logical.unit != "D":
            return pa.duration(logical.unit)
    return pa.from_numpy_dtype(field.storage)


def is_bfloat16(field: Field) -> bool:
    """Whether the numbers of a field are bfloat16, as uint16."""
    return field.logical is not None and field.logical.type == "bfloat16"


def widen_bfloat16(values: np.ndarray) -> np.ndarray:
    """Convert bfloat16, as uint16, to float32 of the same values and shape."""
    return (values.astype(np.uint32) << 16).view(np.float32)


def find_type(field: Field) -> "pa.DataType":
    """Find the Arrow type of the rows of a field."""
    import pyarrow as pa

    if field.kind == "categorical":
        ordered = field.attributes.get("ordered") is True
        return pa.dictionary(pa.int32(), pa.large_string(), ordered)
    if field.kind == "text":
        is_json = field.logical is not None and field.logical.type == "json"
        return pa.json_(pa.large_string()) if is_json else pa.large_string()
    if field.kind in ("binary", "image"):
        return pa.large_binary()
    if field.kind == "nested":
        return pa.large_list(find_type(make_inner(field)))
    kind, shape = _find_element(field)
    for size in reversed(shape):
        kind = pa.list_(kind, size)
    return pa.large_list(kind) if field.kind == "ragged" else kind


def _find_element(field: Field) -> "tuple[pa.DataType, tuple[int, ...]]":
    """Find the type of one value, and the shape of a row of them."""
    import pyarrow as pa

    if max(field.shape, default=0) > _MOST_ITEMS:
        raise UsageError(
            "Arrow has no lists as long as its rows",
            field=field.name,
            expected=f"at most {_MOST_ITEMS} items",
            found=field.shape,
            hint=f"Name the other fields: {mark_option('fields')}.",
        )
    if field.storage.kind == "c":
        return pa.from_numpy_dtype(np.empty(0, field.storage).real.dtype), (*field.shape, 2)
    kind = None if field.logical is None else field.logical.type
    if kind == "uuid" and field.shape[-1:] == (16,):
        return pa.uuid(), field.shape[:-1]
    if kind == "bytes" and field.shape:
        return pa.binary(field.shape[-1]), field.shape[:-1]
    return find_scalar_type(field), field.shape


def _make_lists(
    kind: "pa.DataType", items: "pa.Array", offsets: np.ndarray, valid: np.ndarray | None
) -> "pa.Array":
    """Make large lists of `items`, null where `valid` is False."""
    import pyarrow as pa

    bits = None if valid is None else pa.array(valid).buffers()[1]
    starts = pa.py_buffer(np.ascontiguousarray(offsets, np.int64))
    return pa.Array.from_buffers(kind, len(offsets) - 1, [bits, starts], children=[items])


def _make_rows(field: Field, values: np.ndarray, bits: "pa.Buffer | None") -> "pa.Array":
    """Make an array with a row for each item of `values` (n, *shape), from its validity bits."""
    import pyarrow as pa

    element, shape = _find_element(field)
    counts = [len(values) * math.prod(shape[:axis]) for axis in range(len(shape) + 1)]
    flat = np.ascontiguousarray(values).reshape(-1).view(field.storage)
    if is_bfloat16(field):
        flat = widen_bfloat16(flat)
    content = pa.array(flat).buffers()[1] if flat.dtype == np.bool_ else pa.py_buffer(flat)
    storage = element.storage_type if isinstance(element, pa.BaseExtensionType) else element
    buffers = [None if shape else bits, content]
    array = pa.Array.from_buffers(storage, counts[-1], buffers)
    if storage != element:
        array = pa.ExtensionArray.from_storage(element, array)
    for axis in reversed(range(len(shape))):
        kind = pa.list_(array.type, shape[axis])
        buffers = [None if axis else bits]
        array = pa.Array.from_buffers(kind, counts[axis], buffers, children=[array])
    return array


def _choose_texts(attributes: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name, value in attributes.items() if isinstance(value, str)}
