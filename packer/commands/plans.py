"""Plans and packs as the commands show them: as text and as JSON."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from fieldslab.packer.commands.fieldtext import field_json, type_text
from fieldslab.packer.commands.words import counted, duration, fitted, printable, rate, size, table

if TYPE_CHECKING:  # planning and packing need pyarrow, which takes its time to load
    from fieldslab.packer.plan import Plan
    from fieldslab.packer.write.pack import PackResult

MOST_FIELDS = 60
"""Fields that the summary of a pack shows; `info` shows all of them."""


def plan_lines(plan: "Plan", width: int | None) -> Iterator[str]:
    """A plan: every field, what it becomes and why, and how much there is."""
    head = ("field", "kind", "type", "if null", "bytes", "why")
    rows = [
        (
            one.field.name,
            one.field.kind,
            type_text(one.field),
            one.options.nulls,
            "?" if one.bytes is None else size(one.bytes),
            one.why,
        )
        for one in plan.fields
    ]
    yield from table(head, rows, width, right="bytes")
    yield ""
    if plan.rows is None:
        yield f"{counted(len(plan.fields), 'field')}; how many rows, only reading the stream tells"
        return
    about = f"about {size(_planned_bytes(plan) or 0)} by the source's metadata"
    text = (
        f"{counted(plan.rows, 'row')}, {counted(len(plan.fields), 'field')}, {about}, "
        f"in {counted(len(plan.tasks), 'shard')}"
    )
    yield from fitted([text], width)


def plan_json(plan: "Plan") -> dict[str, Any]:
    """A plan as JSON-ready values; `bytes` are estimates."""
    return {
        "rows": plan.rows,
        "bytes": _planned_bytes(plan),
        "shards": None if plan.rows is None else len(plan.tasks),
        "source": plan.source.name,
        "fields": [
            field_json(one.field)
            | {
                "columns": list(one.columns),
                "nulls": one.options.nulls,
                "bytes": one.bytes,
                "why": one.why,
            }
            for one in plan.fields
        ],
        "warnings": list(plan.notes),
    }


def packed_lines(packed: "PackResult", width: int | None) -> Iterator[str]:
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
    packed_rows = counted(manifest.rows, "row")
    if packed.left_out:
        packed_rows += f" ({len(packed.left_out):,} left out)"
    text = (
        f"{printable(str(packed.path))}: {packed_rows}, {size(packed.bytes)} in "
        f"{shards}, {duration(packed.seconds)}, {rate(packed.bytes, packed.seconds)}"
    )
    yield from fitted([text], width)


def packed_json(packed: "PackResult") -> dict[str, Any]:
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
            field_json(field) | {"why": manifest.made.reasons.get(field.name)}
            for field in manifest.fields
        ],
        "left_out": [to_builtins(one) for one in packed.left_out],
        "warnings": list(packed.warnings),
    }


def _planned_bytes(plan: "Plan") -> int | None:
    sizes = [one.bytes for one in plan.fields]
    return None if None in sizes else sum(one or 0 for one in sizes)
