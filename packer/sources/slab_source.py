"""A slab as a source: packed again from what is stored, for other fields, rows or options."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from fieldslab.packer.check.arrow_rows import read_column
from fieldslab.packer.check.stored import StoredSlab
from fieldslab.packer.source import ColumnHint, Source, Unit
from fieldslab.schemas.arrow_arrays import NESTED_KEY, ArrowMaker, find_type
from fieldslab.schemas.errors import SourceChanged, UsageError
from fieldslab.schemas.fields import DtypeName, Field, Logical
from fieldslab.schemas.folder import open_slab_files
from fieldslab.schemas.manifest import decode_manifest, encode_manifest
from fieldslab.schemas.optiontext import mark_option

_REPACK = (
    f"`fieldslab repack` writes any rows of a slab, by {mark_option('rows_file')}, or many slabs "
    "as one."
)


class SlabSource(Source):
    """The rows of a slab or of a part of it. A path to a slab is packed only if `from_` says so."""

    name = "slab"
    rereadable = True
    libraries = ("zstandard",)

    def __init__(self, data: Any) -> None:
        """Take an open slab or a list with the path of one.

        Raises UsageError for several paths, and for rows of a slab that are not consecutive.
        """
        slabs = data if isinstance(data, list) else data.storage.slabs.names
        if len(slabs) != 1:
            raise UsageError(
                "one slab is packed at a time", found=", ".join(map(str, slabs)), hint=_REPACK
            )
        self._path = str(data[0] if isinstance(data, list) else data.path)
        self._slab: StoredSlab | None = None
        manifest = self._manifest = self._open_slab().manifest
        rows: Any = range(manifest.rows)
        if not isinstance(data, list):
            rows = data.view
            if data.manifest.id != manifest.id:
                raise SourceChanged(
                    "the slab was packed again since it was opened", file=self._path
                )
        if not isinstance(rows, range) or rows.step != 1:
            raise UsageError("the rows are not consecutive", found=repr(rows), hint=_REPACK)
        self._rows = rows
        fields = manifest.fields
        self.schema = pa.schema(
            [
                pa.field(field.name, find_type(_make_plain(field)), field.nullable, _mark(field))
                for field in fields
            ]
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
        makers = [self._make_maker(field) for field in fields]
        chosen = pa.schema([self.schema.field(column) for column in columns])
        step = max(1, batch_bytes * (stop - start) // max(unit.bytes or 0, 1))
        for first in range(start, stop, step):
            last = min(first + step, stop)
            arrays = [
                read_column(slab, field, maker, range(first, last))
                for field, maker in zip(fields, makers, strict=True)
            ]
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

    def _make_maker(self, field: Field) -> ArrowMaker:
        slab, is_categorical = self._open_slab(), field.kind == "categorical"
        return ArrowMaker(
            _make_plain(field), slab.read_categories(field) if is_categorical else None
        )


def _make_plain(field: Field) -> Field:
    """Make a field whose column has the stored values: the hint says what they stand for."""
    if field.kind in ("text", "categorical") or field.inner in ("text", "binary"):
        return field
    if field.kind in ("binary", "image"):
        return Field(name=field.name, stem=field.stem, kind="binary")
    if field.storage.kind == "c":
        shape, logical = (*field.shape, field.storage.itemsize), Logical("bytes")
        return replace(field, dtype="uint8", shape=shape, logical=logical)
    dtype: DtypeName = "uint8" if field.dtype == "bool" else field.dtype
    return replace(field, dtype=dtype, logical=None)


def _mark(field: Field) -> dict[str, str] | None:
    """Return the metadata of a column that becomes a nested field again."""
    return {NESTED_KEY: ""} if field.kind == "nested" else None


def _make_hint(field: Field) -> ColumnHint:
    why = f"{field.kind} of a slab"
    if (field.inner or field.kind) in ("fixed", "ragged"):
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
