"""Rows of a source by their numbers in a slab: only the units that hold them are read."""

from collections.abc import Iterator, Sequence
from contextlib import closing

from fieldslab.packer.convert.batch import SourceBatch
from fieldslab.packer.convert.damaged_rows import find_damaged_rows, find_runs_between
from fieldslab.packer.convert.fieldplan import FieldPlan
from fieldslab.packer.plan import Plan
from fieldslab.packer.spans import Span
from fieldslab.packer.write.ahead import read_ahead
from fieldslab.packer.write.batches import read_batches

RowRange = tuple[int, int]
"""A first row, and the row behind the last."""


def merge_ranges(ranges: Sequence[RowRange]) -> list[RowRange]:
    """Sort ranges of rows, and join those that touch."""
    merged: list[RowRange] = []
    for start, stop in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], stop)
        elif start < stop:
            merged.append((start, stop))
    return merged


def read_slab_rows(
    plan: Plan,
    field_plan: FieldPlan,
    ranges: Sequence[RowRange],
    shard: int,
    shard_row: int,
    shards: int,
) -> Iterator[tuple[int, SourceBatch]]:
    """Read the rows of a slab, given in ranges that rise, for one field.

    Yields the number of the first row of each batch, and the batch. The rows lie in shard number
    `shard` of `shards`, whose first row is `shard_row`.
    """
    # Images tell which rows were left out, whatever is converted.
    skipping = [other for other in plan.fields if other.skips_damaged_images]
    plans = [field_plan, *(other for other in skipping if other.field != field_plan.field)]
    for row, spans in _find_spans(plan, ranges, shard, shard_row, shards):
        with closing(read_ahead(read_batches(plan.source, spans, plans))) as batches:
            for batch in batches:
                damaged = find_damaged_rows(skipping, batch)
                for start, count in find_runs_between(damaged, len(batch)):
                    yield from _cut(batch, start, row, row + count, ranges)
                    row += count
                if row >= ranges[-1][1]:
                    break


def _find_spans(
    plan: Plan, ranges: Sequence[RowRange], shard: int, shard_row: int, shards: int
) -> Iterator[tuple[int, list[Span]]]:
    """Find the spans that hold some rows, each with the row of the slab that it begins with."""
    if plan.rows is None:  # nobody knows how many rows a unit has before it was read
        yield 0, [span for task in plan.tasks for span in task.spans]
    elif plan.options.leave_out:
        same_shards = len(plan.tasks) == shards
        tasks = [plan.tasks[shard]] if same_shards else plan.tasks
        yield shard_row if same_shards else 0, [span for task in tasks for span in task.spans]
    else:
        first = 0
        for span in (span for task in plan.tasks for span in task.spans):
            stop = first + (span.rows or 0)
            inside = [(max(a, first), min(b, stop)) for a, b in ranges if a < stop and b > first]
            if inside:
                start, end = inside[0][0], inside[-1][1]
                yield start, [Span(span.unit, span.skip + start - first, end - start)]
            first = stop


def _cut(
    batch: SourceBatch, offset: int, first: int, stop: int, ranges: Sequence[RowRange]
) -> Iterator[tuple[int, SourceBatch]]:
    """Yield what lies in the ranges of rows `first` to `stop`, which begin at `offset`."""
    for a, b in ranges:
        start, end = max(a, first), min(b, stop)
        if start < end:
            yield start, batch.slice(offset + start - first, end - start)
