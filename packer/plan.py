"""Source schema and options -> fields and shard tasks. Reads no data but a few sampled values."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import msgspec
import pyarrow as pa

from fieldslab.packer.column_names import match_names
from fieldslab.packer.convert.columns import make_nulls_error
from fieldslab.packer.convert.fieldplan import FieldPlan
from fieldslab.packer.convert.fillers import parse_filler
from fieldslab.packer.convert.infer import InferredField, Sample, infer_field
from fieldslab.packer.convert.leaves import (
    Leaf,
    choose_leaves,
    find_leaves,
    look_up_option,
    make_unknown_field_error,
    refuse_unsupported_leaf,
)
from fieldslab.packer.convert.padding import Padding, make_padding
from fieldslab.packer.convert.pictureplan import (
    estimate_largest_image_bytes,
    plan_pictures,
    refuse_external_images,
)
from fieldslab.packer.convert.pixels import get_library_version
from fieldslab.packer.convert.samples import make_sampler
from fieldslab.packer.convert.stacks import find_stacks, plan_stack
from fieldslab.packer.convert.tensors import infer_tensor
from fieldslab.packer.convert.tokens import (
    add_tokenizer_digests,
    drop_tokenizer_paths,
    infer_tokens,
)
from fieldslab.packer.options import DEFAULT_SHARD_SIZE, Options, Sequences
from fieldslab.packer.shardsize import choose_shard_bytes, compute_most_shards
from fieldslab.packer.source import Source
from fieldslab.packer.sources.path_lookup import name_disk_errors
from fieldslab.packer.sources.sequence_source import SequenceSource
from fieldslab.packer.spans import ShardTask, Span, cut_rows
from fieldslab.schemas.arrow_arrays import make_inner
from fieldslab.schemas.errors import NullsFound, SourceUnsupported, UsageError, combine_errors
from fieldslab.schemas.fields import Compression, Field, make_file_stem
from fieldslab.schemas.manifest import VERSION
from fieldslab.schemas.optiontext import mark_option

MOST_SHOWN = 20
"""Columns that a message names."""


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
        return find_columns(self.fields)

    @property
    def recorded_options(self) -> dict[str, Any]:
        """The options as the manifest records them, without paths on this machine."""
        options: dict[str, Any] = msgspec.to_builtins(drop_tokenizer_paths(self.options))
        return options

    @property
    def first_row(self) -> int:
        """Row of the source that is packed first."""
        return self.options.rows[0] if self.options.rows else 0

    def compute_fingerprint(self) -> str:
        """Hash source, options and fields with SHA-256: equal plans write equal shards."""
        content = [
            VERSION,
            self.source.fingerprint(),
            self.recorded_options,
            [msgspec.to_builtins(plan.field) for plan in self.fields],
        ]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def find_columns(plans: Iterable[FieldPlan]) -> list[int]:
    """Find the source's top-level columns that these fields are made of, ascending."""
    return sorted({path[0] for plan in plans for path in plan.all_paths})


@name_disk_errors()
def make_plan(source: Source, options: Options) -> Plan:
    """Decide what every field becomes and where shards are cut.

    Raises
    ------
    UnknownField, UsageError
        An option names what is not there or does not fit.
    SourceUnsupported, SourceInconsistent, NullsFound
        What the schema and the metadata tell already.
    SourceUnreadable
        A tokenizer cannot be read.
    """
    options = msgspec.structs.replace(options, settings=dict(source.settings))
    options = add_tokenizer_digests(options)
    if options.leave_out:
        get_library_version()
    notes: list[str] = []
    source.apply_casts(options.cast)
    leaves = find_leaves(source, options)
    by_name = {leaf.name: leaf for leaf in leaves}
    chosen = _drop_empty_paths(choose_leaves(leaves, options), source, notes)
    options, chosen = _keep_nulls(options, chosen, source)
    stacks = find_stacks(chosen, options)
    stacked = {leaf.name: name for name, members in stacks.items() for leaf in members}
    sample = make_sampler(source, by_name, [leaf for leaf in chosen if leaf.name not in stacked])
    plans: list[FieldPlan] = []
    refused: list[SourceUnsupported] = []
    for leaf in chosen:
        stack = stacked.get(leaf.name)
        try:
            if stack is None:
                refuse_external_images(leaf, leaves, source)
                plans.append(_plan_leaf(leaf, source, sample, by_name, options))
            elif leaf is stacks[stack][0]:
                plans.append(plan_stack(stack, stacks[stack], source))
        except SourceUnsupported as error:
            refused.append(error)
    if refused:
        raise combine_errors(refused)
    plans = _plan_compression(plans, options)
    plans = [_set_index(index, plan, options) for index, plan in enumerate(plans)]
    names = [plan.field.name for plan in plans]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(
            "two fields would have this name", field=twice, hint=f"Use {mark_option('rename')}."
        )
    if options.leave_out and not any(plan.skips_damaged_images for plan in plans):
        raise UsageError(
            f"{mark_option('on_error')}: no field is an image",
            hint=f"{mark_option('image', ['COLUMN'])} says that a column is one.",
        )
    if options.sequences is not None:
        _check_only_column(plans, *options.tokenize)
    plan = Plan(source, options, tuple(plans), (), tuple(notes))
    if options.fields is None:
        source.check_default_columns(plan.columns)
    source.check(plan.columns)
    plan = replace(plan, notes=(*notes, *source.warnings))
    if options.rows is None:  # the metadata counts the nulls of all rows
        _check_nulls(plans, source)
    plan = replace(plan, tasks=_cut_shards(plan))
    return plan if options.sequences is None else _plan_sequences(plan, options.sequences)


def _plan_leaf(
    leaf: Leaf, source: Source, sample: Sample, leaves: dict[str, Leaf], options: Options
) -> FieldPlan:
    refuse_unsupported_leaf(leaf)
    inferred = _infer_leaf(leaf, sample)
    attributes = leaf.attributes | inferred.members.pop("attributes", {})
    field = Field(name=leaf.name, stem="00-x", attributes=attributes, **inferred.members)
    padding = _plan_padding(leaf, field, leaves)
    field = field if padding is None else padding.stored
    field, form = plan_pictures(field, leaf, sample, options.jpeg_index)
    why = inferred.why if form is None else form
    # What stands for a null text is tokenized like the others.
    read = field if inferred.form != "tokens" else Field(name=leaf.name, stem="00-x", kind="text")
    read = make_inner(field) if field.kind == "nested" else read
    tensor = leaf.options.tensor
    shapes = leaves.get(tensor.shape_from or "") if tensor else None
    return FieldPlan(
        field=field,
        form=inferred.form,
        paths=(leaf.path,),
        columns=(leaf.name,),
        options=leaf.options,
        filler=parse_filler(read, leaf.options.nulls, leaf.name),
        shape_path=shapes.path if shapes else None,
        permutation=inferred.permutation,
        padding=padding,
        decoded_image_bytes=estimate_largest_image_bytes(leaf, sample),
        skips_damaged_images=options.leave_out and field.kind == "image",
        why=why if padding is None else f"ragged {leaf.options.ragged} of {inferred.why}",
        bytes=source.column_bytes(leaf.path),
    )


def _infer_leaf(leaf: Leaf, sample: Sample) -> InferredField:
    if leaf.options.tokenize is not None:
        return infer_tokens(leaf, leaf.options.tokenize)
    return infer_tensor(leaf, sample) if leaf.options.tensor else infer_field(leaf, sample)


def _plan_padding(leaf: Leaf, field: Field, leaves: dict[str, Leaf]) -> Padding | None:
    ragged = leaf.options.ragged
    if ragged is None:
        return None
    lengths = None
    if ragged.lengths_from is not None:
        if ragged.lengths_from not in leaves:
            raise make_unknown_field_error("ragged", ragged.lengths_from, leaves)
        lengths = leaves[ragged.lengths_from]
        if not pa.types.is_integer(lengths.type):
            raise UsageError(
                f"{mark_option('ragged')} len: not a column of integers",
                field=lengths.name,
                found=lengths.type_text,
            )
    return make_padding(field, ragged, leaf.name, None if lengths is None else lengths.path)


def _plan_compression(plans: list[FieldPlan], options: Options) -> list[FieldPlan]:
    """Enter `--compress` in the plans; its keys are columns, stacks, or patterns of both."""
    names = [plan.field.name for plan in plans]
    levels: dict[str, int] = {}
    for pattern, level in options.compress.items():
        hits = match_names(pattern, names)
        if not hits:
            raise make_unknown_field_error("compress", pattern, names)
        levels |= dict.fromkeys(hits, level)
    return [_set_compression(plan, levels.get(plan.field.name)) for plan in plans]


def _set_compression(plan: FieldPlan, level: int | None) -> FieldPlan:
    if level is None:
        return plan
    if plan.field.kind in ("image", "categorical"):
        raise UsageError(
            f"{mark_option('compress')} cannot be used for fields of kind "
            f"{plan.field.kind}: their rows are read in place",
            field=plan.field.name,
        )
    compression = Compression(codec="zstd", decoded=0)
    field = msgspec.structs.replace(plan.field, compression=compression)
    return replace(plan, field=field, options=replace(plan.options, compress=level))


def _set_index(index: int, plan: FieldPlan, options: Options) -> FieldPlan:
    name = options.rename.get(plan.field.name, plan.field.name)
    field = msgspec.structs.replace(plan.field, name=name, stem=make_file_stem(index, name))
    return replace(plan, field=field)


def _drop_empty_paths(leaves: list[Leaf], source: Source, notes: list[str]) -> list[Leaf]:
    """Leave out the path of HuggingFace's Image and Audio where it is null in all rows."""
    kept_leaves = []
    for leaf in leaves:
        rows = [unit.rows for unit in source.units]
        total = None if None in rows else sum(count or 0 for count in rows)
        if leaf.role == "path" and total is not None and source.null_count(leaf.path) == total:
            notes.append(f"{leaf.name}: left out, all {total} values are null")
        else:
            kept_leaves.append(leaf)
    return kept_leaves


def _keep_nulls(options: Options, chosen: list[Leaf], source: Source) -> tuple[Options, list[Leaf]]:
    """Mask the nulls of a slab where no option handles them, and say so in the options."""
    if source.name != "slab":
        return options, chosen
    nullable = {column.name for column in source.schema if column.nullable}
    masked = {
        leaf.name
        for leaf in chosen
        if leaf.name in nullable and look_up_option(options.nulls, leaf.name) is None
    }
    chosen = [
        replace(leaf, options=replace(leaf.options, nulls="mask")) if leaf.name in masked else leaf
        for leaf in chosen
    ]
    nulls = dict(options.nulls) | dict.fromkeys(sorted(masked), "mask")
    return msgspec.structs.replace(options, nulls=nulls), chosen


def _check_nulls(plans: list[FieldPlan], source: Source) -> None:
    """Raise NullsFound where the metadata counts nulls and no option handles them."""
    columns = [
        (column, count, plan.form == "stack")
        for plan in plans
        if plan.options.nulls == "error"
        for column, path in zip(plan.columns, plan.paths, strict=True)
        if (count := source.null_count(path))
    ]
    if len(columns) == 1:
        column, count, stacked = columns[0]
        raise make_nulls_error(column, count, stacked=stacked)
    if columns:
        shown = [f"{column}: {count}" for column, count, _ in columns[:MOST_SHOWN]]
        shown += ["..."] if len(columns) > MOST_SHOWN else []
        raise NullsFound(
            f"nulls in {len(columns)} columns",
            found=", ".join(shown),
            hint="Say for each what to do with them: "
            f"{mark_option('nulls', 'mask', column='COLUMN')} keeps them with a validity array "
            f"({mark_option('nulls', 'mask', column='*')} for all). "
            f"{mark_option('nulls', 'VALUE', column='COLUMN')} replaces them. "
            f"{mark_option('exclude', ['COLUMN'])} leaves the column out.",
        )


def _cut_shards(plan: Plan) -> tuple[ShardTask, ...]:
    """Cut the rows into shards near the target size, between units of the source.

    The cut depends on source and options only. A file that `export` wrote is cut as the slab was.
    """
    spans = cut_rows(plan.source.units, plan.options.rows)
    if any(span.unit.rows is None for span in spans):
        return (ShardTask(0, 0, None, tuple(spans)),)
    sizes = [_estimate_span_bytes(span) for span in spans]
    fields = [field_plan.field for field_plan in plan.fields]
    target = choose_shard_bytes(sum(sizes), plan.options.shard_size, fields)
    row_ends = list(accumulate(span.rows or 0 for span in spans))
    shard_ends = _find_given_ends(plan, row_ends, compute_most_shards(fields))
    tasks: list[ShardTask] = []
    start = first_row = filled = 0
    for index, size in enumerate(sizes):
        filled += size
        is_full = filled >= target if shard_ends is None else row_ends[index] in shard_ends
        if is_full or index == len(spans) - 1:
            group = tuple(spans[start : index + 1])
            rows = row_ends[index] - first_row
            tasks.append(ShardTask(len(tasks), first_row, rows, group))
            first_row += rows
            start, filled = index + 1, 0
    return tuple(tasks)


def _find_given_ends(plan: Plan, row_ends: list[int], most: int) -> set[int] | None:
    """Find where shards ended in the slab that the source was exported from; None to cut anew."""
    shards, size = plan.source.shards, plan.options.shard_size
    if shards is None or plan.options.rows is not None or not row_ends:
        return None
    fits_size = shards.fits(size, DEFAULT_SHARD_SIZE, row_ends[-1], most)
    ends = set(shards.ends)
    return ends if fits_size and ends <= set(row_ends) else None


def _check_only_column(plans: list[FieldPlan], column: str) -> None:
    """Raise UsageError where the column whose texts are joined is not the only one."""
    other_names = [plan.field.name for plan in plans if plan.options.tokenize is None]
    if len(other_names) == len(plans):
        raise UsageError(
            f"{mark_option('pack_sequences')}: the column of texts is left out",
            field=column,
            hint=f"Keep it: {mark_option('fields', [column])}.",
        )
    if other_names:
        raise UsageError(
            f"{mark_option('pack_sequences')}: the joined rows do not match the rows of other "
            "columns",
            found=", ".join(other_names[:10]) + (", ..." if len(other_names) > 10 else ""),
            hint=f"Leave them out: {mark_option('fields', [column])}.",
        )


def _plan_sequences(plan: Plan, sequences: Sequences) -> Plan:
    """Plan a pack that joins the texts of one column, and cuts them into rows of one length."""
    (text,) = plan.fields
    if text.options.nulls == "mask":
        raise UsageError(
            f"{mark_option('pack_sequences')}: a null text would be lost",
            field=text.field.name,
            hint=f"{mark_option('nulls', '', column=text.columns[0])} makes it an empty one.",
        )
    source = SequenceSource(plan.source, plan.tasks, text, sequences)
    task = ShardTask(0, 0, None, tuple(Span(unit, 0, None) for unit in source.units))
    return replace(plan, source=source, fields=source.fields, tasks=(task,))


def _estimate_span_bytes(span: Span) -> int:
    unit_rows, unit_bytes = span.unit.rows or 0, span.unit.bytes or 0
    return unit_bytes * (span.rows or 0) // max(unit_rows, 1)
