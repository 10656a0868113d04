"""A slab as a source: packed again from what is stored, for other fields, rows or options."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from fieldslab.packer.check.stored import StoredRows, StoredSlab
from fieldslab.packer.source import ColumnHint, Source, Unit
from fieldslab.schemas.errors import SourceChanged, UsageError
from fieldslab.schemas.fields import Field
from fieldslab.schemas.folder import open_slab_files
from fieldslab.schemas.manifest import decode_manifest, encode_manifest
from fieldslab.schemas.optiontext import mark_option

_JSON = pa.json_(pa.large_string())
_BYTES = {"text": pa.large_string(), "binary": pa.large_binary(), "image": pa.large_binary()}


class SlabSource(Source):
    """The rows of a slab or of a part of it. A path to a slab is packed only if `from_` says so."""

    name = "slab"
    rereadable = True
    libraries = ("zstandard",)

    def __init__(self, data: Any) -> None:
        """Take an open slab or a list with the path of one.

        Raises UsageError for several paths, and for rows of a slab that are not consecutive.
        """
        if isinstance(data, list) and len(data) != 1:
            raise UsageError("a slab is one directory", found=", ".join(map(str, data)))
        self._path = str(data[0] if isinstance(data, list) else data.path)
        self._slab: StoredSlab | None = None
        manifest = self._manifest = self._open_slab().manifest
        self._rows = range(manifest.rows)
        if not isinstance(data, list):
            self._rows = data.view
            if data.manifest.id != manifest.id:
                raise SourceChanged(
                    "the slab was packed again since it was opened", file=self._path
                )
        if self._rows.step != 1:
            raise UsageError(
                "the rows are not consecutive",
                found=repr(self._rows),
                hint="Slice the slab without a step.",
            )
        fields = manifest.fields
        self.schema = pa.schema(
            [(field.name, self._make_type(field), field.nullable) for field in fields]
        )
        self.hints = {index: _make_hint(field) for index, field in enumerate(manifest.fields)}
        self.attributes = manifest.attributes
        self.units = list(self._cut_units())

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without open files: another process opens the slab again."""
        return self.__dict__ | {"_slab": None, "_manifest": encode_manifest(self._manifest)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the state; a manifest travels as its bytes, as it is checked against its id."""
        self.__dict__ |= state | {"_manifest": decode_manifest(state["_manifest"])}

    def read(self, unit: Unit, columns: list[int], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Read the rows of a shard; every block is digested. Raises DamagedArray, SourceChanged."""
        slab, (start, stop) = self._open_slab(), unit.key
        if slab.manifest.id != self._manifest.id:
            raise SourceChanged("the slab was packed again while it was read", file=self._path)
        fields = [slab.manifest.fields[column] for column in columns]
        chosen = pa.schema([self.schema.field(column) for column in columns])
        step = max(1, batch_bytes * (stop - start) // max(unit.bytes or 0, 1))
        for first in range(start, stop, step):
            last = min(first + step, stop)
            arrays = [self._make_array(field, slab.read(field, first, last)) for field in fields]
            yield pa.RecordBatch.from_arrays(arrays, schema=chosen)

    def fingerprint(self) -> list[dict[str, Any]]:
        """Return the slab's id, which stands for its content, and the range of rows."""
        rows = [self._rows.start, self._rows.stop]
        return [{"path": self._path, "id": self._manifest.id, "of": rows}]

    def _open_slab(self) -> StoredSlab:
        if self._slab is None:
            self._slab = StoredSlab(open_slab_files(self._path))
        return self._slab

    def _cut_units(self) -> Iterator[Unit]:
        first = 0
        fixed = sum(field.item_bytes for field in self._manifest.fields if not field.variable)
        for number, shard in enumerate(self._manifest.shards):
            start, stop = max(first, self._rows.start), min(first + shard.rows, self._rows.stop)
            if start < stop:
                elements = sum(shard.elements) * (stop - start) // shard.rows
                name = f"{self._path} shard {number}"
                total = fixed * (stop - start) + elements
                yield Unit(name, stop - start, total, (start, stop), file=self._path)
            first += shard.rows

    def _make_type(self, field: Field) -> pa.DataType:
        if field.kind == "categorical":
            return pa.dictionary(
                pa.int32(), pa.large_string(), bool(field.attributes.get("ordered"))
            )
        if field.logical is not None and field.logical.type == "json":
            return _JSON
        if field.kind in _BYTES:
            return _BYTES[field.kind]
        kind = _find_element_type(field)
        for size in reversed(field.shape):
            kind = pa.list_(kind, size)
        return pa.large_list(kind) if field.kind == "ragged" else kind

    def _make_array(self, field: Field, rows: StoredRows) -> pa.Array:
        """Stored rows as an Arrow array of the field's type."""
        hidden = None if rows.valid is None else ~rows.valid
        if field.kind == "categorical":
            codes = pa.array(rows.values.astype(np.int32), mask=hidden)
            texts = pa.array(self._open_slab().read_categories(field), pa.large_string())
            return pa.DictionaryArray.from_arrays(
                codes, texts, ordered=self._make_type(field).ordered
            )
        if field.variable:
            assert rows.lengths is not None
            offsets = pa.array(np.concatenate([[0], np.cumsum(rows.lengths)]), pa.int64())
            if field.kind == "ragged":
                values = _make_elements(field, rows.values)
                mask = None if hidden is None else pa.array(hidden)
                return pa.LargeListArray.from_arrays(offsets, values, mask=mask)
            mask = None if hidden is None else pa.array(rows.valid).buffers()[1]
            content = pa.py_buffer(np.ascontiguousarray(rows.values))
            kind = _BYTES[field.kind]
            buffers = [mask, offsets.buffers()[1], content]
            array = pa.Array.from_buffers(kind, len(rows.lengths), buffers)
            if self._make_type(field) == _JSON:
                return pa.ExtensionArray.from_storage(_JSON, array)
            return array
        array = _make_elements(field, rows.values)
        if hidden is None:
            return array
        mask = pa.array(rows.valid).buffers()[1]
        children = [array.flatten()] if field.shape else None
        buffers = [mask] if field.shape else [mask, array.buffers()[1]]
        return pa.Array.from_buffers(array.type, len(array), buffers, children=children)


def _find_element_type(field: Field) -> pa.DataType:
    storage = field.storage
    if storage.kind == "c":
        return pa.binary(storage.itemsize)
    return pa.uint8() if storage.kind == "b" else pa.from_numpy_dtype(storage)


def _make_elements(field: Field, values: np.ndarray) -> pa.Array:
    """Make an Arrow array whose rows are nested lists of fixed size."""
    flat = np.ascontiguousarray(values).reshape(-1)
    kind = _find_element_type(field)
    array = pa.Array.from_buffers(kind, len(flat), [None, pa.py_buffer(flat)])
    for size in reversed(field.shape):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array


def _make_hint(field: Field) -> ColumnHint:
    why = f"{field.kind} of a slab"
    if field.kind in ("fixed", "ragged"):
        return ColumnHint(field.dtype, field.logical, field.attributes, why)
    pixels = field.kind == "image" and (field.coded or field.codec not in _CODECS)
    refusal = (
        f"images stored as {field.codec or 'pixels'} are not packed again",
        f"Pack what the slab was packed from; {mark_option('exclude', ['{}'])} leaves them out.",
    )
    return ColumnHint(
        attributes=field.attributes,
        why=why,
        image=field.kind == "image",
        refusal=refusal if pixels else None,
    )


_CODECS = ("jpeg", "png", "webp", "mixed")
