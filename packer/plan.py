"""Source schema and options -> fields and shard tasks. Reads no data but a few sampled values."""

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import msgspec

from fieldslab.packer.columns import nulls_error
from fieldslab.packer.dense import plain
from fieldslab.packer.fieldplan import FieldPlan
from fieldslab.packer.infer import infer, scalar_type
from fieldslab.packer.leaves import Leaf, choose, find_leaves, unknown_field
from fieldslab.packer.options import Options
from fieldslab.packer.source import Source, Span, cut_rows, matching
from fieldslab.schemas.errors import SourceInconsistent, UsageError
from fieldslab.schemas.fields import Field, stem
from fieldslab.schemas.manifest import VERSION

MAX_SHARDS = 1024
MAX_MAPS = 32_768
"""Shards times arrays stay below half of Linux's usual limit of maps in a process."""


class ShardTask(NamedTuple):
    """One shard to be packed. `rows` is None for a stream, which is cut as it is read."""

    number: int
    first_row: int
    rows: int | None
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before data is read."""

    source: Source
    options: Options
    fields: tuple[FieldPlan, ...]
    tasks: tuple[ShardTask, ...]
    notes: tuple[str, ...]

    @property
    def rows(self) -> int | None:
        """Rows to be packed; None for a stream."""
        counts = [task.rows for task in self.tasks]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def columns(self) -> list[int]:
        """Top-level columns of the source that are read, ascending."""
        paths = [path for plan in self.fields for path in plan.paths]
        paths += [plan.shape_path for plan in self.fields if plan.shape_path]
        return sorted({path[0] for path in paths})

    def fingerprint(self) -> str:
        """SHA-256 over source, options and fields: equal plans write equal shards."""
        content = [
            VERSION, self.source.fingerprint(), msgspec.to_builtins(self.options),
            [msgspec.to_builtins(plan.field) for plan in self.fields],
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def make_plan(source: Source, options: Options) -> Plan:
    """Decide what every field becomes and where shards are cut.

    Raises
    ------
    UnknownField, UsageError
        An option names what is not there or does not fit.
    SourceUnsupported, SourceInconsistent, NullsFound
        What the schema and the metadata tell already.
    """
    notes: list[str] = []
    all_leaves = find_leaves(source.schema, options)
    leaves = _without_empty_paths(choose(all_leaves, options), source, notes)
    shapes = {leaf.name: leaf for leaf in all_leaves}

    @cache
    def values(column: int) -> list[Any]:
        return source.sample(column)

    def sample(leaf: Leaf) -> list[Any]:
        path = shapes[leaf.name].path if leaf.name in shapes else ()
        if not path:
            raise unknown_field("--tensor shape_from", leaf.name, shapes)
        found = []
        for array in values(path[0]):
            for child in path[1:]:
                array = plain(array).flatten()[child]
            found += [value for value in plain(array) if value.is_valid]
        return found

    stacked = _stacks(leaves, options)
    plans: list[FieldPlan] = []
    for leaf in leaves:
        stack = next((name for name, members in stacked.items() if leaf in members), None)
        if stack is None:
            plans.append(_plan_leaf(leaf, source, options, sample, shapes))
        elif leaf == stacked[stack][0]:
            plans.append(_plan_stack(stack, stacked[stack], source, options))
    plans = [_numbered(index, plan, options) for index, plan in enumerate(plans)]
    names = [plan.field.name for plan in plans]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError("two fields would have this name", field=twice, hint="Use --rename.")
    plan = Plan(source, options, tuple(plans), (), tuple(notes))
    source.check(plan.columns)
    for one in plans:
        _check_nulls(one, source)
    return replace(plan, tasks=_cut(plan))


def _plan_leaf(
    leaf: Leaf, source: Source, options: Options, sample: Any, leaves: dict[str, Leaf]
) -> FieldPlan:
    inferred = infer(leaf, options, sample)
    attributes = leaf.attributes | inferred.members.pop("attributes", {})
    field = Field(name=leaf.name, stem="00-x", attributes=attributes, **inferred.members)
    nulls = options.nulls_of(leaf.name)
    if leaf.role == "path" and nulls == "error":
        nulls = "mask"
    tensor = options.tensor.get(leaf.name)
    shape_from = leaves.get(tensor.shape_from or "") if tensor else None
    return FieldPlan(
        field=field, form=inferred.form, paths=(leaf.path,), columns=(leaf.name,), nulls=nulls,
        cast=options.cast.get(leaf.name), tensor=tensor,
        shape_path=shape_from.path if shape_from else None,
        permutation=inferred.permutation, why=inferred.why,
        bytes=source.column_bytes(leaf.path[0]),
    )  # fmt: skip


def _stacks(leaves: list[Leaf], options: Options) -> dict[str, list[Leaf]]:
    """The columns of each `--stack`, in the order of the source."""
    found = {}
    for name, pattern in options.stack.items():
        hits = set(matching(pattern, [leaf.name for leaf in leaves]))
        if not hits:
            raise unknown_field("--stack", pattern, [leaf.name for leaf in leaves])
        found[name] = [leaf for leaf in leaves if leaf.name in hits]
    return found


def _plan_stack(name: str, leaves: list[Leaf], source: Source, options: Options) -> FieldPlan:
    casts = {options.cast.get(leaf.name) for leaf in leaves}
    if len(casts) > 1:
        raise UsageError("--stack: give all stacked columns the same --cast", field=name)
    cast = casts.pop()
    kinds = {cast or scalar_type(leaf, leaf.type)[0] for leaf in leaves}
    policies = {options.nulls_of(leaf.name) for leaf in leaves}
    if len(kinds) > 1:
        raise SourceInconsistent(
            "--stack: the columns differ in dtype", field=name, found=", ".join(sorted(kinds)),
            hint="Give them one, for example --cast with each column.",
        )  # fmt: skip
    if len(policies) > 1 or policies == {"mask"}:
        raise UsageError(
            "--stack: nulls in stacked columns can only be replaced, all by one value", field=name,
            hint="--nulls 'PATTERN=0' with the same pattern as --stack.",
        )  # fmt: skip
    sizes = [source.column_bytes(leaf.path[0]) for leaf in leaves]
    return FieldPlan(
        field=Field(name=name, stem="00-x", kind="fixed", dtype=kinds.pop(), shape=(len(leaves),)),  # type: ignore[arg-type]
        form="stack", paths=tuple(leaf.path for leaf in leaves),
        columns=tuple(leaf.name for leaf in leaves), nulls=policies.pop(), cast=cast,
        why=f"--stack of {len(leaves)} columns, {leaves[0].name} to {leaves[-1].name}",
        bytes=None if None in sizes else sum(size or 0 for size in sizes),
    )  # fmt: skip


def _numbered(index: int, plan: FieldPlan, options: Options) -> FieldPlan:
    name = options.rename.get(plan.field.name, plan.field.name)
    field = msgspec.structs.replace(plan.field, name=name, stem=stem(index, name))
    return replace(plan, field=field)


def _without_empty_paths(leaves: list[Leaf], source: Source, notes: list[str]) -> list[Leaf]:
    """HuggingFace's Image and Audio have a path that mostly is null throughout: leave it out."""
    kept = []
    for leaf in leaves:
        rows = [unit.rows for unit in source.units]
        total = None if None in rows else sum(count or 0 for count in rows)
        if leaf.role == "path" and total is not None and source.null_count(leaf.path) == total:
            notes.append(f"{leaf.name}: left out, all {total} values are null")
        else:
            kept.append(leaf)
    return kept


def _check_nulls(plan: FieldPlan, source: Source) -> None:
    """Raise NullsFound for nulls that the metadata counts and no option speaks of."""
    if plan.nulls != "error" or plan.cast == "json":
        return
    for column, path in zip(plan.columns, plan.paths, strict=True):
        count = source.null_count(path)
        if count:
            raise nulls_error(column, count)


def _cut(plan: Plan) -> tuple[ShardTask, ...]:
    """Cut the rows into shards near the target size, between units of the source.

    The cut depends on source and options only. The target grows with the data, so that there
    are at most about a thousand shards, and fewer where a shard has many arrays.
    """
    spans = cut_rows(plan.source.units, plan.options.rows)
    if any(span.rows is None for span in spans):
        return (ShardTask(0, 0, None, tuple(spans)),)
    sizes = [_span_bytes(span) for span in spans]
    arrays = sum(len(one.field.arrays()) + 1 for one in plan.fields)
    most = max(1, min(MAX_SHARDS, MAX_MAPS // arrays))
    target = max(plan.options.shard_size, -(-sum(sizes) // most))
    tasks: list[ShardTask] = []
    start = first_row = filled = 0
    for index, size in enumerate(sizes):
        filled += size
        if filled >= target or index == len(spans) - 1:
            group = tuple(spans[start : index + 1])
            rows = sum(span.rows or 0 for span in group)
            tasks.append(ShardTask(len(tasks), first_row, rows, group))
            first_row += rows
            start, filled = index + 1, 0
    return tuple(tasks)


def _span_bytes(span: Span) -> int:
    unit_rows, unit_bytes = span.unit.rows or 0, span.unit.bytes or 0
    return unit_bytes * (span.rows or 0) // max(unit_rows, 1)
