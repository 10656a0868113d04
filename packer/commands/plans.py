"""Plans and packs as the commands show them: as text and as JSON."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from fieldslab.packer.commands.fieldtext import field_to_json, format_type
from fieldslab.packer.commands.text_format import (
    escape_controls,
    format_count,
    format_duration,
    format_rate,
    format_size,
    format_table,
    wrap_lines,
)

if TYPE_CHECKING:  # planning and packing need pyarrow, which takes its time to load
    from fieldslab.packer.plan import Plan
    from fieldslab.packer.write.result import PackResult

MOST_FIELDS = 60
"""Fields that the summary of a pack shows; `info` shows all of them."""


def format_plan(plan: "Plan", width: int | None) -> Iterator[str]:
    """Format a plan: every field, what it becomes and why, and its size."""
    head = ("field", "kind", "type", "if null", "bytes", "why")
    rows = [
        (
            field_plan.field.name,
            field_plan.field.kind,
            format_type(field_plan.field),
            field_plan.options.nulls,
            "?" if field_plan.bytes is None else format_size(field_plan.bytes),
            field_plan.why,
        )
        for field_plan in plan.fields
    ]
    yield from format_table(head, rows, width, right="bytes")
    yield ""
    if plan.rows is None:
        fields = format_count(len(plan.fields), "field")
        yield f"{fields}; the number of rows is known only after reading the stream"
        return
    about = f"about {format_size(_sum_planned_bytes(plan) or 0)} by the source's metadata"
    from fieldslab.packer.write.origins import count_episode_rows

    episodes = count_episode_rows(plan, ())
    listed = "" if episodes is None else f" in {format_count(len(episodes), 'episode')}"
    text = (
        f"{format_count(plan.rows, 'row')}{listed}, "
        f"{format_count(len(plan.fields), 'field')}, {about}, "
        f"in {format_count(len(plan.tasks), 'shard')}"
    )
    yield from wrap_lines([text], width)


def plan_to_json(plan: "Plan") -> dict[str, Any]:
    """Return a plan as JSON-ready values; `bytes` are estimates, `episodes` the rows of each."""
    from fieldslab.packer.write.origins import count_episode_rows

    return {
        "rows": plan.rows,
        "bytes": _sum_planned_bytes(plan),
        "shards": None if plan.rows is None else len(plan.tasks),
        "source": plan.source.name,
        "fields": [
            field_to_json(field_plan.field)
            | {
                "columns": list(field_plan.columns),
                "nulls": field_plan.options.nulls,
                "bytes": field_plan.bytes,
                "why": field_plan.why,
            }
            for field_plan in plan.fields
        ],
        "warnings": list(plan.notes),
        "episodes": count_episode_rows(plan, ()),
    }


def format_pack_result(packed: "PackResult", width: int | None) -> Iterator[str]:
    """Format the result of a pack."""
    manifest = packed.manifest
    reasons = manifest.made.reasons
    rows = [
        (field.name, field.kind, format_type(field), reasons.get(field.name, ""))
        for field in manifest.fields[:MOST_FIELDS]
    ]
    yield from format_table(("field", "kind", "type", "why"), rows, width)
    left = len(manifest.fields) - MOST_FIELDS
    if left > 0:
        yield f"... and {format_count(left, 'more field')}: fieldslab info {packed.path}"
    yield ""
    yield from format_pack_summary(packed, width)


def format_pack_summary(packed: "PackResult", width: int | None) -> Iterator[str]:
    """Format where the slab is, how large, and how long it took."""
    manifest = packed.manifest
    shards = format_count(len(manifest.shards), "shard")
    if packed.reused_shards:
        shards += f" ({packed.reused_shards} packed before)"
    packed_rows = format_count(manifest.rows, "row")
    if packed.left_out:
        packed_rows += f" ({len(packed.left_out):,} left out)"
    text = (
        f"{escape_controls(str(packed.path))}: {packed_rows}, {format_size(packed.bytes)} in "
        f"{shards}, {format_duration(packed.seconds)}"
    )
    if not packed.reused_shards:  # which were written before, and took none of this time
        text += f", {format_rate(packed.bytes, packed.seconds)}"
    yield from wrap_lines([text], width)


def pack_result_to_json(packed: "PackResult") -> dict[str, Any]:
    """Return the result of a pack as JSON-ready values."""
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
            field_to_json(field) | {"why": manifest.made.reasons.get(field.name)}
            for field in manifest.fields
        ],
        "left_out": [to_builtins(left_out) for left_out in packed.left_out],
        "warnings": list(packed.warnings),
    }


def _sum_planned_bytes(plan: "Plan") -> int | None:
    sizes = [field_plan.bytes for field_plan in plan.fields]
    return None if None in sizes else sum(size or 0 for size in sizes)
