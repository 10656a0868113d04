"""The rows of a source as batches that fit into memory, before and after conversion."""

from collections.abc import Iterable, Iterator, Sequence

from fieldslab.packer.convert.batch import SourceBatch, index_columns
from fieldslab.packer.convert.fieldplan import FieldPlan
from fieldslab.packer.plan import find_columns
from fieldslab.packer.source import Source
from fieldslab.packer.spans import Span, read_span

BATCH_BYTES = 32 * 1024 * 1024
"""About so much Arrow data is in flight at a time."""

DECODED_BYTES = 512 * 1024
"""Least bytes of an image as pixels that batches are cut for: samples may be small by chance."""


def read_batches(
    source: Source, spans: Iterable[Span], plans: Sequence[FieldPlan], first_row: int = 0
) -> Iterator[SourceBatch]:
    """Read the columns that the planned fields need, for all rows of some spans.

    A batch holds about `BATCH_BYTES`, before and after conversion: padded tokens and decoded images
    may take far more room than their source.

    Parameters
    ----------
    first_row
        Number of packed rows before the first span.
    """
    padded_row_bytes = [
        plan.field.item_bytes for plan in plans if plan.options.tokenize and not plan.field.variable
    ]
    image_bytes = [
        max(plan.decoded_image_bytes, DECODED_BYTES)
        for plan in plans
        if plan.decoded_image_bytes is not None
    ]
    most_rows = max(1, BATCH_BYTES // max(padded_row_bytes + image_bytes, default=1))
    columns = find_columns(plans)
    positions = index_columns(columns)
    for span in spans:
        for rows in read_span(source, span, columns, BATCH_BYTES):
            for start in range(0, rows.num_rows, most_rows):
                batch = rows.slice(start, most_rows)
                yield SourceBatch(batch, positions, first_row)
                first_row += batch.num_rows
