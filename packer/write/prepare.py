"""What must be known before the first shard is written: categories and dictionaries.

A source that can be read again is read once more for this, those columns alone. Each task lists the
categories of its rows; the lists are joined in the order of tasks, so that codes depend neither on
which task came first nor on when. The categories of a stream are found as they come; its rows are
compressed without a dictionary.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

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
from fieldslab.packer.pack_options import Progress
from fieldslab.packer.plan import Plan
from fieldslab.packer.spans import ShardTask
from fieldslab.packer.write.batches import read_batches
from fieldslab.packer.write.engines.engine import Engine
from fieldslab.packer.write.engines.here import InProcessEngine

_LEAST_BYTES = 64 * 2**20
"""Fewer are read here: an engine takes longer to start."""


class SharedData(NamedTuple):
    """What all shards of a slab share."""

    categories: Categories
    compressors: Compressors


class TaskCategories(NamedTuple):
    """The categories of the rows of one task, by field name: large_string arrays."""

    number: int
    values: dict[str, pa.Array]


@dataclass(frozen=True)
class CategoryWork:
    """What it takes to list the categories of any task, in this process or another."""

    plan: Plan

    def write(self, task: ShardTask, progress: Progress | None = None) -> TaskCategories:
        """List the categories of a task's rows in order of first appearance.

        Raises SourceError and its subclasses.
        """
        plans = list_categorical_fields(self.plan)
        categories = {field_plan.field.name: CategoryIndex() for field_plan in plans}
        for _ in _convert_fields(self.plan, [task], plans, categories):
            pass
        return TaskCategories(
            task.number, {name: index.values for name, index in categories.items()}
        )


def prepare_shared_data(plan: Plan, engine: Engine | None = None) -> SharedData:
    """Read what shards share, by an engine where one is given; raises the errors of the source."""
    if not (list_categorical_fields(plan) and plan.source.rereadable):
        return join_shared_data(plan, ())
    size = sum(field_plan.bytes or 0 for field_plan in list_categorical_fields(plan))
    if engine is None or plan.rows is None or size < _LEAST_BYTES:
        engine = InProcessEngine(1)
    with closing(engine.run(CategoryWork(plan), plan.tasks, _ignore_progress)) as results:
        return join_shared_data(plan, results)


def join_shared_data(plan: Plan, results: Iterable[TaskCategories]) -> SharedData:
    """Join the categories of tasks, which come in any order, and train the dictionaries."""
    fields = list_categorical_fields(plan)
    categories = {field_plan.field.name: CategoryIndex() for field_plan in fields}
    for _, values in sorted(results, key=lambda result: result.number):
        for name, index in categories.items():
            index.add(values[name])
    return SharedData(categories, _find_compressors(plan))


def list_categorical_fields(plan: Plan) -> list[FieldPlan]:
    """List the fields whose categories have to be found."""
    return [field_plan for field_plan in plan.fields if field_plan.form == "categorical"]


def _ignore_progress(rows: int, bytes: int) -> None:
    """Shards are what progress counts."""


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
    for (converted,) in _convert_fields(plan, plan.tasks, [field_plan], {}):
        pieces.append(converted)
        sizes = count_row_bytes(field_plan.field, converted)
        rows, size = rows + len(sizes), size + int(sizes.sum())
        if rows >= SAMPLE_ROWS or size >= SAMPLE_BYTES:
            break
    return pieces


def _convert_fields(
    plan: Plan, tasks: Iterable[ShardTask], plans: list[FieldPlan], categories: Categories
) -> Iterator[list[ConvertedRows]]:
    """Convert only these fields of the rows of tasks, batch by batch."""
    for task in tasks:
        for batch in read_batches(plan.source, task.spans, plans, task.first_row):
            yield [
                convert_field(field_plan, batch, categories.get(field_plan.field.name))
                for field_plan in plans
            ]
