"""What must be known before the first shard is written: categories and dictionaries.

A source that can be read again is read once more for this, those columns alone. The categories of
a stream are found as they come; its rows are compressed without a dictionary.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from fieldslab.packer.convert.categories import Categories, CategoryIndex
from fieldslab.packer.convert.columns import convert
from fieldslab.packer.convert.compress import (
    SAMPLE_BYTES,
    SAMPLE_ROWS,
    Compressors,
    row_sizes,
    train,
)
from fieldslab.packer.convert.fieldplan import Converted, FieldPlan
from fieldslab.packer.plan import Plan
from fieldslab.packer.spans import Span, read_span

BATCH_BYTES = 32 * 1024 * 1024
"""About so much Arrow data is in flight at a time."""

DECODED = 512 * 1024
"""Bytes of an image as pixels, at least, for what batches hold: samples may be small by chance."""


def span_batches(
    plan: Plan, span: Span, columns: list[int], fields: Iterable[FieldPlan]
) -> Iterator[pa.RecordBatch]:
    """The rows of a span, in batches of about `BATCH_BYTES`, before and after conversion.

    Padded tokens and decoded images alone may take far more room than what they are made of.
    """
    fields = list(fields)
    padded = [one.field.item_bytes for one in fields if one.tokenize and not one.field.variable]
    decoded = [max(one.decoded, DECODED) for one in fields if one.decoded is not None]
    most = max(1, BATCH_BYTES // max(padded + decoded, default=1))
    for batch in read_span(plan.source, span, columns, BATCH_BYTES):
        for start in range(0, max(batch.num_rows, 1), most):
            yield batch.slice(start, most)


class Prepared(NamedTuple):
    """What all shards of a slab share."""

    categories: Categories
    compressors: Compressors


def prepare(plan: Plan) -> Prepared:
    """Read what shards share; raises the errors of the source."""
    return Prepared(_find_categories(plan), _find_compressors(plan))


def _find_categories(plan: Plan) -> Categories:
    """Categories in order of first appearance, so that codes do not depend on who packs what."""
    categorical = [one for one in plan.fields if one.form == "categorical"]
    categories = {one.field.name: CategoryIndex() for one in categorical}
    if categorical and plan.source.rereadable:
        for _ in _converted(plan, categorical, categories):
            pass
    return categories


def _find_compressors(plan: Plan) -> Compressors:
    """A compressor for each compressed field, its dictionary trained on the first rows."""
    compressors: Compressors = {}
    for one in plan.fields:
        if one.compress is not None:
            sample = _first_rows(plan, one) if plan.source.rereadable else []
            compressors[one.field.name] = train(one.field, one.compress, sample)
    return compressors


def _first_rows(plan: Plan, one: FieldPlan) -> list[Converted]:
    found: list[Converted] = []
    rows = size = 0
    for (converted,) in _converted(plan, [one], {}):
        found.append(converted)
        sizes = row_sizes(one.field, converted)
        rows, size = rows + len(sizes), size + int(sizes.sum())
        if rows >= SAMPLE_ROWS or size >= SAMPLE_BYTES:
            break
    return found


def _converted(
    plan: Plan, fields: list[FieldPlan], categories: Categories
) -> Iterator[list[Converted]]:
    """These fields alone, batch by batch."""
    paths = [path for one in fields for path in (*one.paths, one.shape_path or ())]
    columns = sorted({path[0] for path in paths if path})
    positions = {column: at for at, column in enumerate(columns)}
    for task in plan.tasks:
        row = task.first_row
        for span in task.spans:
            for batch in span_batches(plan, span, columns, fields):
                yield [
                    convert(one, batch, positions, row, categories.get(one.field.name))
                    for one in fields
                ]
                row += batch.num_rows
