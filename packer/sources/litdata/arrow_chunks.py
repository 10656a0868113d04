"""LitData's Arrow layout: chunks whose rows stand in an Arrow file, each with types of its own.

litdata lets Arrow infer the types of every chunk anew, so that a column may be null throughout in
one and text in the next, and lists may be of nulls. Types are widened to one schema, values never.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from fieldslab.packer.sources.litdata.chunks import ChunkFile
from fieldslab.schemas.errors import SourceInconsistent
from fieldslab.schemas.optiontext import mark_option

_ONLY_HERE = f"Choose common columns with {mark_option('fields')} or {mark_option('exclude')}."


def merge_schemas(schemas: Iterable[tuple[str, pa.Schema]], types: Mapping[str, Any]) -> pa.Schema:
    """Merge the schemas of chunks, each with the name of its file.

    `types`, of the index, tells of columns that these chunks lack, or that are null throughout.

    Raises SourceInconsistent where a column is of two types.
    """
    common: dict[str, pa.DataType] = {}
    for file, schema in schemas:
        if len(set(schema.names)) < len(schema.names):
            raise SourceInconsistent("two columns of a chunk share a name", file=file)
        for field in schema:
            kind, known_type = widen_type(field.type), common.get(field.name, pa.null())
            merged = _merge_types(known_type, kind)
            if merged is None:
                raise _make_type_error(file, field.name, known_type, kind)
            common[field.name] = merged
    for name, description in types.items():
        known_type = common.get(name, pa.null())
        common[name] = _merge_types(known_type, parse_type(description)) or known_type
    return pa.schema(common)


def parse_type(description: Any) -> pa.DataType:
    """Parse the Arrow type of an entry in the index's `types`; null where it does not tell."""
    kind = description.get("type") if isinstance(description, dict) else description
    if kind == "list":
        return pa.large_list(parse_type(description.get("value")))
    if kind == "struct" and isinstance(description.get("fields"), dict):
        return pa.struct(
            [(name, parse_type(inner)) for name, inner in description["fields"].items()]
        )
    return _DECLARED.get(kind, pa.null()) if isinstance(kind, str) else pa.null()


_DECLARED = {
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "str": pa.large_string(),
    "bytes": pa.large_binary(),
}


def widen_type(kind: pa.DataType) -> pa.DataType:
    """Convert a type to 64-bit offsets throughout."""
    if pa.types.is_string(kind):
        return pa.large_string()
    if pa.types.is_binary(kind):
        return pa.large_binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.large_list(widen_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, widen_type(field.type)) for field in kind])
    return kind


def read_widened(
    file: ChunkFile, schema: pa.Schema, columns: list[int], batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a chunk: these columns of the schema, batches near `batch_bytes`.

    Raises SourceInconsistent where the chunk's columns do not fit the schema.
    """
    chosen = pa.schema([schema.field(column) for column in columns])
    chunk_schema, batches = file.read_arrow_batches(chosen.names)
    if len(set(chunk_schema.names)) < len(chunk_schema.names):
        raise SourceInconsistent("two columns of a chunk share a name", file=file.label)
    new_columns = [name for name in chunk_schema.names if name not in schema.names]
    if new_columns and len(columns) == len(schema):
        raise SourceInconsistent(
            "a chunk has columns that the sampled ones do not have",
            file=file.label,
            found=", ".join(new_columns),
            hint=_ONLY_HERE,
        )
    for field in chunk_schema:
        if field.name in chosen.names:
            planned = chosen.field(field.name).type
            if _merge_types(planned, widen_type(field.type)) != planned:
                raise _make_type_error(file.label, field.name, planned, widen_type(field.type))
    for table in _combine_batches(batches, batch_bytes):
        columns_of = [_cast_column(table, field) for field in chosen]
        widened = pa.table(columns_of, schema=chosen).combine_chunks()
        rows = max(1, batch_bytes * widened.num_rows // max(widened.nbytes, 1))
        yield from widened.to_batches(max_chunksize=rows)


def _combine_batches(batches: Iterator[pa.RecordBatch], batch_bytes: int) -> Iterator[pa.Table]:
    """Combine batches to about `batch_bytes`: litdata's are of 256 rows."""
    group: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if group and size + batch.nbytes > batch_bytes:
            yield pa.Table.from_batches(group)
            group, size = [], 0
        group.append(batch)
        size += batch.nbytes
    if group:
        yield pa.Table.from_batches(group)


def _cast_column(table: pa.Table, field: pa.Field) -> Any:
    if field.name not in table.schema.names:
        return pa.nulls(table.num_rows, field.type)
    return table.column(field.name).cast(field.type)


def _merge_types(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Return the type that holds both, if they differ only where one is null throughout."""
    if a == b or pa.types.is_null(b):
        return a
    if pa.types.is_null(a):
        return b
    if pa.types.is_large_list(a) and pa.types.is_large_list(b):
        inner = _merge_types(a.value_type, b.value_type)
        return None if inner is None else pa.large_list(inner)
    if pa.types.is_struct(a) and pa.types.is_struct(b) and len(a) == len(b):
        members = [(f.name, _merge_types(f.type, g.type)) for f, g in zip(a, b, strict=True)]
        same = [f.name for f in a] == [g.name for g in b]
        return pa.struct(members) if same and None not in dict(members).values() else None
    return None


def _make_type_error(
    file: str, name: str, known_type: pa.DataType, kind: pa.DataType
) -> SourceInconsistent:
    return SourceInconsistent(
        "a chunk's column is of another type than before",
        file=file,
        field=name,
        expected=str(known_type),
        found=str(kind),
        hint=f"{mark_option('exclude', [name])} leaves it out.",
    )
