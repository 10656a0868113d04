"""What the commands print: fields, plans, slabs and rows, as text and as JSON."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.cells import cell_len

from fieldslab.packer.check.folders import all_folders
from fieldslab.packer.check.stored import StoredSlab
from fieldslab.packer.commands.values import json_value, row_of, short_text
from fieldslab.packer.commands.words import counted, cut, duration, printable, rate, size, table
from fieldslab.schemas import layout
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.fields import Field
from fieldslab.schemas.manifest import MANIFEST, Manifest

if TYPE_CHECKING:  # planning and packing need pyarrow, which takes its time to load
    from fieldslab.packer.plan import Plan
    from fieldslab.packer.write.pack import Packed

MOST_FIELDS = 60
"""Fields that the summary of a pack shows; `info` shows all of them."""


def type_text(field: Field) -> str:
    """What a row of a field is: `float32[16]`, `int32[*]`, `jpeg`, `timestamp[us, UTC]`."""
    compressed = [] if field.compression is None else [field.compression.codec]
    return ", ".join([text for text in (_plain_type(field), *compressed) if text])


def _plain_type(field: Field) -> str:
    logical = field.logical
    if field.kind == "image":
        return field.codec or ""
    if field.kind == "categorical":
        known = field.categories is not None
        count = len(field.categories or ()) if known else field.table.count if field.table else 0
        return "codes" if not count else f"{count:,} categories"
    if field.kind in ("text", "binary"):
        return logical.type if logical is not None else ""
    name: str = field.dtype
    if logical is not None and logical.type in ("timestamp", "time", "duration"):
        zone = f", {logical.timezone}" if logical.timezone else ""
        name = f"{logical.type}[{logical.unit}{zone}]"
    elif logical is not None and logical.type in ("date", "bfloat16"):
        name = logical.type
    elif logical is not None and logical.names is not None:
        name = f"{field.dtype}, {counted(len(logical.names), 'name')}"
    elif logical is not None and logical.type == "uuid":
        return "uuid" if field.kind == "fixed" else "uuid[*]"
    dims = [*(["*"] if field.kind == "ragged" else []), *map(str, field.shape)]
    return f"{name}[{','.join(dims)}]" if dims else name


def _bytes_text(field: Field, stored: int) -> str:
    """Bytes of a field; of a compressed one, how many times more it held before."""
    if field.compression is None or not stored:
        return size(stored)
    return f"{size(stored)} ({field.compression.decoded / stored:.1f}x)"


def plan_lines(plan: "Plan", width: int | None) -> Iterator[str]:
    """A plan: every field, what it becomes and why, and how much there is."""
    head = ("field", "kind", "type", "if null", "bytes", "why")
    rows = [
        (
            one.field.name, one.field.kind, type_text(one.field), one.nulls,
            "?" if one.bytes is None else size(one.bytes), one.why,
        )
        for one in plan.fields
    ]  # fmt: skip
    yield from table(head, rows, width, right="bytes")
    yield ""
    if plan.rows is None:
        yield f"{counted(len(plan.fields), 'field')}; how many rows, only reading the stream tells"
        return
    about = f"about {size(_planned_bytes(plan) or 0)} by the source's metadata"
    yield (
        f"{counted(plan.rows, 'row')}, {counted(len(plan.fields), 'field')}, {about}, "
        f"in {counted(len(plan.tasks), 'shard')}"
    )


def plan_json(plan: "Plan") -> dict[str, Any]:
    """A plan as JSON-ready values; `bytes` are estimates."""
    return {
        "rows": plan.rows,
        "bytes": _planned_bytes(plan),
        "shards": None if plan.rows is None else len(plan.tasks),
        "source": plan.source.name,
        "fields": [
            _field_json(one.field)
            | {"columns": list(one.columns), "nulls": one.nulls, "bytes": one.bytes, "why": one.why}
            for one in plan.fields
        ],
        "warnings": list(plan.notes),
    }


def packed_lines(packed: "Packed", width: int | None) -> Iterator[str]:
    """What a pack did."""
    manifest = packed.manifest
    reasons = manifest.made.reasons
    rows = [
        (field.name, field.kind, type_text(field), reasons.get(field.name, ""))
        for field in manifest.fields[:MOST_FIELDS]
    ]
    yield from table(("field", "kind", "type", "why"), rows, width)
    left = len(manifest.fields) - MOST_FIELDS
    if left > 0:
        yield f"... and {counted(left, 'more field')}: fieldslab info {packed.path}"
    yield ""
    shards = counted(len(manifest.shards), "shard")
    if packed.reused_shards:
        shards += f" ({packed.reused_shards} taken over from an earlier run)"
    yield (
        f"{printable(str(packed.path))}: {counted(manifest.rows, 'row')}, {size(packed.bytes)} in "
        f"{shards}, {duration(packed.seconds)}, {rate(packed.bytes, packed.seconds)}"
    )


def packed_json(packed: "Packed") -> dict[str, Any]:
    """What a pack did, as JSON-ready values."""
    manifest = packed.manifest
    return {
        "path": str(packed.path),
        "id": manifest.id,
        "rows": manifest.rows,
        "bytes": packed.bytes,
        "seconds": round(packed.seconds, 3),
        "shards": len(manifest.shards),
        "reused_shards": packed.reused_shards,
        "fields": [
            _field_json(field) | {"why": manifest.made.reasons.get(field.name)}
            for field in manifest.fields
        ],
        "warnings": list(packed.warnings),
    }


def info_lines(path: Path, manifest: Manifest, width: int | None) -> Iterator[str]:
    """What a slab is: size, origin, fields."""
    made, sizes = manifest.made, _field_bytes(path, manifest)
    yield f"{printable(str(path))}: {counted(manifest.rows, 'row')}, {size(_total(manifest, path))}"
    yield f"id      {manifest.id}"
    yield f"packed  {printable(made.time)} by {printable(made.tool)}"
    yield f"from    {printable(_origin(manifest))}"
    options = {key: value for key, value in made.options.items() if key != "from"}
    if options:
        yield f"options {printable(json.dumps(options, ensure_ascii=False))}"
    rows = [shard.rows for shard in manifest.shards]
    if rows:
        span = f"{min(rows):,}" if min(rows) == max(rows) else f"{min(rows):,} to {max(rows):,}"
        yield f"shards  {len(rows):,}, of {span} rows"
    yield ""
    nulls = _nulls(manifest)
    lines = [
        (
            field.name, field.kind, type_text(field), f"{nulls[field.name]:,}",
            _bytes_text(field, sizes[field.name]), made.reasons.get(field.name, ""),
        )
        for field in manifest.fields
    ]  # fmt: skip
    head = ("field", "kind", "type", "nulls", "bytes", "why")
    yield from table(head, lines, width, right="nulls bytes")


def info_json(path: Path, manifest: Manifest) -> dict[str, Any]:
    """What a slab is, as JSON-ready values."""
    made, sizes, nulls = manifest.made, _field_bytes(path, manifest), _nulls(manifest)
    return {
        "path": str(path),
        "id": manifest.id,
        "version": manifest.version,
        "rows": manifest.rows,
        "bytes": _total(manifest, path),
        "made": {
            "tool": made.tool, "time": made.time, "sources": list(made.sources),
            "options": made.options, "warnings": list(made.warnings),
        },
        "fields": [
            _field_json(field)
            | {
                "nulls": nulls[field.name], "bytes": sizes[field.name],
                "why": made.reasons.get(field.name),
            }
            for field in manifest.fields
        ],
        "shards": [{"rows": shard.rows, "root": shard.root} for shard in manifest.shards],
        "attributes": manifest.attributes,
    }  # fmt: skip


def head_lines(slab: StoredSlab, rows: list[int], width: int | None) -> Iterator[str]:
    """Rows, one value a line: the row's number, the field's name, the value."""
    fields, categories = slab.manifest.fields, _categories(slab)
    labels = [cut(printable(field.name), 30 if width is None else width // 3) for field in fields]
    digits = max([len("row"), *(len(str(row)) for row in rows)])
    column = max([len("field"), *map(cell_len, labels)])
    room = None if width is None else max(width - digits - column - 4, 10)
    yield f"{'row':>{digits}}  {'field':<{column}}  value"
    for row, values in _values(slab, rows):
        number = str(row)
        for field, label, value in zip(fields, labels, values, strict=True):
            text = short_text(field, value, room, categories.get(field.name, []))
            yield f"{number:>{digits}}  {label}{' ' * (column - cell_len(label))}  {text}"
            number = ""


def head_json(slab: StoredSlab, rows: list[int]) -> Iterator[dict[str, Any]]:
    """Rows as JSON-ready dicts: `{"row": 7, "values": {...}}`."""
    fields, categories = slab.manifest.fields, _categories(slab)
    for row, values in _values(slab, rows):
        content = {
            field.name: json_value(field, value, categories.get(field.name, []))
            for field, value in zip(fields, values, strict=True)
        }
        yield {"row": row, "values": content}


def _values(slab: StoredSlab, rows: list[int]) -> Iterator[tuple[int, list[Any]]]:
    for row in rows:
        yield row, [row_of(slab.read(field, row, row + 1), 0) for field in slab.manifest.fields]


def _categories(slab: StoredSlab) -> dict[str, list[str]]:
    fields = [field for field in slab.manifest.fields if field.kind == "categorical"]
    return {field.name: slab.categories(field) for field in fields}


def _field_json(field: Field) -> dict[str, Any]:
    """The members of a field that say what it is; a category table only by its size."""
    members = msgspec.to_builtins(field)
    names = (
        "name",
        "kind",
        "dtype",
        "shape",
        "codec",
        "logical",
        "categories",
        "table",
        "compression",
    )
    found = {"dtype": field.dtype, "shape": list(field.shape)} | members
    return {name: found[name] for name in names if found.get(name) is not None}


def _planned_bytes(plan: "Plan") -> int | None:
    sizes = [one.bytes for one in plan.fields]
    return None if None in sizes else sum(one or 0 for one in sizes)


def _nulls(manifest: Manifest) -> dict[str, int]:
    """Null rows of each field."""
    counts = {field.name: 0 for field in manifest.fields}
    nullable = [field.name for field in manifest.fields if field.nullable]
    for shard in manifest.shards:
        for name, nulls in zip(nullable, shard.nulls, strict=True):
            counts[name] += nulls
    return counts


def _field_bytes(path: Path, manifest: Manifest) -> dict[str, int]:
    """Bytes of data of each field, in all its arrays."""
    sizes = {field.name: 0 for field in manifest.fields}
    for folder in all_folders(path, manifest):
        for file in folder.files:
            sizes[file.field.name] += file.data_bytes
    return sizes


def _total(manifest: Manifest, path: Path) -> int:
    """Bytes of all files of a slab, by its manifest."""
    total = (path / MANIFEST).stat().st_size
    for folder in all_folders(path, manifest):
        total += sum(HEADER + file.data_bytes for file in folder.files)
        total += HEADER + 8 * layout.total_blocks(folder.files)
    return total


def _origin(manifest: Manifest) -> str:
    """What a slab was packed from, in a line."""
    made = manifest.made
    kind = made.options.get("from", "unknown source")
    paths = [str(source["path"]) for source in made.sources if "path" in source]
    if not paths:
        return f"{kind}, in memory" if kind == "arrow" else str(kind)
    sizes = [source.get("bytes") for source in made.sources]
    total = sum(one for one in sizes if isinstance(one, int))
    files = paths[0] if len(paths) == 1 else f"{len(paths):,} files, {paths[0]} and on"
    return f"{kind}: {files}, {size(total)}"
