"""What must be known before the first shard is written: categories and dictionaries.

A source that can be read again is read once more for this, those columns alone. The categories of
a stream are found as they come; its rows are compressed without a dictionary.
"""

from collections.abc import Iterator
from typing import NamedTuple

from fieldslab.packer.convert.categories import Categories, CategoryIndex
from fieldslab.packer.convert.columns import convert_field
from fieldslab.packer.convert.compress import (
    SAMPLE_BYTES,
    SAMPLE_ROWS,
    Compressors,
    count_row_bytes,
    train_compressor,
)
from fieldslab.packer.convert.fieldplan import ConvertedRows, FieldPlan
from fieldslab.packer.plan import Plan
from fieldslab.packer.write.batches import read_batches


class SharedData(NamedTuple):
    """What all shards of a slab share."""

    categories: Categories
    compressors: Compressors


def prepare_shared_data(plan: Plan) -> SharedData:
    """Read what shards share; raises the errors of the source."""
    return SharedData(_find_categories(plan), _find_compressors(plan))


def _find_categories(plan: Plan) -> Categories:
    """Find categories in order of first appearance, so that codes do not depend on jobs."""
    categorical = [field_plan for field_plan in plan.fields if field_plan.form == "categorical"]
    categories = {field_plan.field.name: CategoryIndex() for field_plan in categorical}
    if categorical and plan.source.rereadable:
        for _ in _convert_fields(plan, categorical, categories):
            pass
    return categories


def _find_compressors(plan: Plan) -> Compressors:
    """Make a compressor for each compressed field, with a dictionary trained on its first rows."""
    compressors: Compressors = {}
    for field_plan in plan.fields:
        field, level = field_plan.field, field_plan.options.compress
        if level is not None:
            sample = _read_first_rows(plan, field_plan) if plan.source.rereadable else []
            compressors[field.name] = train_compressor(field, level, sample)
    return compressors


def _read_first_rows(plan: Plan, field_plan: FieldPlan) -> list[ConvertedRows]:
    pieces: list[ConvertedRows] = []
    rows = size = 0
    for (converted,) in _convert_fields(plan, [field_plan], {}):
        pieces.append(converted)
        sizes = count_row_bytes(field_plan.field, converted)
        rows, size = rows + len(sizes), size + int(sizes.sum())
        if rows >= SAMPLE_ROWS or size >= SAMPLE_BYTES:
            break
    return pieces


def _convert_fields(
    plan: Plan, plans: list[FieldPlan], categories: Categories
) -> Iterator[list[ConvertedRows]]:
    """Convert only these fields, batch by batch."""
    for task in plan.tasks:
        for batch in read_batches(plan.source, task.spans, plans, task.first_row):
            yield [
                convert_field(field_plan, batch, categories.get(field_plan.field.name))
                for field_plan in plans
            ]
