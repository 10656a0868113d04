"""Slabs and their rows as the commands show them: as text and as JSON."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from rich.cells import cell_len

from fieldslab.packer.check.stored import StoredSlab
from fieldslab.packer.commands.fieldtext import field_to_json, format_field_bytes, format_type
from fieldslab.packer.commands.text_format import (
    escape_controls,
    format_count,
    format_size,
    format_table,
    truncate_text,
    wrap_lines,
)
from fieldslab.packer.commands.values import format_value, select_row, value_to_json
from fieldslab.packer.slabsize import count_bytes
from fieldslab.schemas.access import iterate_folders
from fieldslab.schemas.episodes import find_episode_lengths
from fieldslab.schemas.fields import Field
from fieldslab.schemas.folder import SlabFiles
from fieldslab.schemas.manifest import Manifest

MOST_ORIGINS = 5
"""Files that `info` shows with their rows."""


def format_info(slab: SlabFiles, width: int | None) -> Iterator[str]:
    """Format what `info` prints of a slab: size, origin, fields."""
    yield from wrap_lines(_format_summary(slab), width)
    yield ""
    manifest = slab.manifest
    provenance, sizes, nulls = manifest.made, _count_field_bytes(slab), _count_nulls(manifest)
    lines = [
        (
            field.name,
            field.kind,
            format_type(field),
            f"{nulls[field.name]:,}",
            format_field_bytes(field, sizes[field.name]),
            provenance.reasons.get(field.name, ""),
        )
        for field in manifest.fields
    ]
    head = ("field", "kind", "type", "nulls", "bytes", "why")
    yield from format_table(head, lines, width, right="nulls bytes")


def _format_summary(slab: SlabFiles) -> Iterator[str]:
    """Format the size, id and origin of a slab, line by line."""
    manifest, provenance = slab.manifest, slab.manifest.made
    total = format_size(count_bytes(slab))
    yield f"{escape_controls(str(slab.path))}: {format_count(manifest.rows, 'row')}, {total}"
    yield f"id      {manifest.id}"
    yield f"digest  {manifest.digest}"
    yield f"packed  {escape_controls(provenance.time)} by {escape_controls(provenance.tool)}"
    yield f"from    {escape_controls(_format_origin(manifest))}"
    yield from _format_origins(manifest)
    if lengths := find_episode_lengths(manifest.attributes, manifest.rows):
        yield f"episodes {len(lengths):,}, of {_format_span(lengths)} rows"
    options = {key: value for key, value in provenance.options.items() if key != "from"}
    if options:
        yield f"options {escape_controls(json.dumps(options, ensure_ascii=False))}"
    rows = [shard.rows for shard in manifest.shards]
    if rows:
        yield f"shards  {len(rows):,}, of {_format_span(rows)} rows"


def _format_span(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def info_to_json(slab: SlabFiles) -> dict[str, Any]:
    """Return what `info` tells of a slab, as JSON-ready values."""
    manifest = slab.manifest
    provenance, sizes, nulls = manifest.made, _count_field_bytes(slab), _count_nulls(manifest)
    return {
        "path": str(slab.path),
        "id": manifest.id,
        "version": manifest.version,
        "digest": manifest.digest,
        "rows": manifest.rows,
        "bytes": count_bytes(slab),
        "made": {
            "tool": provenance.tool,
            "time": provenance.time,
            "sources": list(provenance.sources),
            "options": provenance.options,
            "warnings": list(provenance.warnings),
        },
        "fields": [
            field_to_json(field)
            | {
                "nulls": nulls[field.name],
                "bytes": sizes[field.name],
                "why": provenance.reasons.get(field.name),
            }
            for field in manifest.fields
        ],
        "shards": [{"rows": shard.rows, "root": shard.root} for shard in manifest.shards],
        "attributes": manifest.attributes,
    }


def format_rows(
    slab: StoredSlab, rows: Sequence[int], width: int | None, fields: Sequence[Field] | None = None
) -> Iterator[str]:
    """Format rows, one value a line: the row's number, the field's name, the value."""
    fields = slab.manifest.fields if fields is None else fields
    categories = _load_categories(slab, fields)
    labels = [
        truncate_text(escape_controls(field.name), 30 if width is None else width // 3)
        for field in fields
    ]
    digits = max(len("row"), len(str(max(rows, default=0))))
    column = max([len("field"), *map(cell_len, labels)])
    room = None if width is None else max(width - digits - column - 4, 10)
    yield f"{'row':>{digits}}  {'field':<{column}}  value"
    for row, values in _read_values(slab, rows, fields):
        number = str(row)
        for field, label, value in zip(fields, labels, values, strict=True):
            text = format_value(field, value, room, categories.get(field.name, []))
            yield f"{number:>{digits}}  {label}{' ' * (column - cell_len(label))}  {text}"
            number = ""


def rows_to_json(
    slab: StoredSlab, rows: Sequence[int], fields: Sequence[Field] | None = None
) -> Iterator[dict[str, Any]]:
    """Return the rows as JSON-ready dicts: `{"row": 7, "values": {...}}`."""
    fields = slab.manifest.fields if fields is None else fields
    categories = _load_categories(slab, fields)
    for row, values in _read_values(slab, rows, fields):
        content = {
            field.name: value_to_json(field, value, categories.get(field.name, []))
            for field, value in zip(fields, values, strict=True)
        }
        yield {"row": row, "values": content}


def _read_values(
    slab: StoredSlab, rows: Sequence[int], fields: Sequence[Field]
) -> Iterator[tuple[int, list[Any]]]:
    for row in rows:
        yield row, [select_row(slab.read(field, row, row + 1), 0) for field in fields]


def _load_categories(slab: StoredSlab, fields: Sequence[Field]) -> dict[str, list[str]]:
    return {
        field.name: slab.read_categories(field) for field in fields if field.kind == "categorical"
    }


def _count_nulls(manifest: Manifest) -> dict[str, int]:
    """Count the null rows of each field."""
    counts = {field.name: 0 for field in manifest.fields}
    nullable = [field.name for field in manifest.fields if field.nullable]
    for shard in manifest.shards:
        for name, nulls in zip(nullable, shard.nulls, strict=True):
            counts[name] += nulls
    return counts


def _count_field_bytes(slab: SlabFiles) -> dict[str, int]:
    """Count the bytes of data of each field, in all its arrays."""
    sizes = {field.name: 0 for field in slab.manifest.fields}
    for folder in iterate_folders(slab):
        for file in folder.files:
            sizes[file.field.name] += file.data_bytes
    return sizes


def _format_origins(manifest: Manifest) -> Iterator[str]:
    """Format which rows came from which of several files, for the first few files."""
    sources = [source for source in manifest.made.sources if _is_range(source.get("rows"))]
    for index, source in enumerate(sources[:MOST_ORIGINS] if len(sources) > 1 else []):
        start, stop = source["rows"]
        rows = f"{start:,}..{stop - 1:,}" if stop > start else "none"
        label, path = "" if index else "rows", escape_controls(str(source["path"]))
        yield f"{label:<7} {rows} from {path}"
    if len(sources) > MOST_ORIGINS:
        yield f"{'':<7} and {len(sources) - MOST_ORIGINS:,} more: --json lists them"


def _is_range(rows: Any) -> bool:
    """Return True if this is a range of rows: nothing checks `made` in a manifest."""
    return isinstance(rows, list) and len(rows) == 2 and all(isinstance(row, int) for row in rows)


def _format_origin(manifest: Manifest) -> str:
    """Format in a line what a slab was packed from."""
    provenance = manifest.made
    kind = provenance.options.get("from", "unknown source")
    origins = [source for source in provenance.sources if "annotations" not in source]
    paths = [str(source["path"]) for source in origins if "path" in source]
    if not paths:
        return f"{kind}, in memory" if kind == "arrow" else str(kind)
    noun = "folders" if "files" in provenance.sources[0] else "files"
    files = paths[0] if len(paths) == 1 else f"{len(paths):,} {noun}, {paths[0]} and on"
    sizes = [source.get("bytes") for source in provenance.sources]
    known_sizes = [size for size in sizes if isinstance(size, int)]
    return (
        f"{kind}: {files}, {format_size(sum(known_sizes))}" if known_sizes else f"{kind}: {files}"
    )
