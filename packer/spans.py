"""Rows A to B of a source: which units hold them, and what is read of those."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from fieldslab.packer.source import Source, Unit
from fieldslab.schemas.errors import SourceInconsistent, UsageError
from fieldslab.schemas.optiontext import mark_option

_TASK_MEMORY = 512 * 2**20


class Span(NamedTuple):
    """Some rows of a unit: from row `skip` on, `rows` of them (None: to the end)."""

    unit: Unit
    skip: int
    rows: int | None


class ShardTask(NamedTuple):
    """One shard to be packed. `rows` is None for a stream, which is cut as it is read."""

    number: int
    first_row: int
    rows: int | None
    spans: tuple[Span, ...]

    @property
    def memory(self) -> int:
        """Estimate of the peak memory for packing the shard, in bytes: a unit and a few batches."""
        return _TASK_MEMORY + max((span.unit.bytes or 0 for span in self.spans), default=0)

    @property
    def source(self) -> str:
        """The file, or other unit, that is read first."""
        return self.spans[0].unit.name if self.spans else ""


def read_span(
    source: Source, span: Span, columns: list[int], batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Read the batches of a span; batches without rows are left out.

    Where the span ends with its unit, the unit is read to its end, and its rows are counted.

    Raises SourceInconsistent where a unit has fewer or more rows than its metadata promises.
    """
    unit, first_row = span.unit, span.skip
    promised = unit.promised if unit.rows is None else unit.rows
    end = None if span.rows is None else first_row + span.rows
    rows_read = 0
    for batch in source.read(unit, columns, batch_bytes):
        batch_start, rows_read = rows_read, rows_read + batch.num_rows
        if promised is not None and rows_read > promised:
            break
        start = max(first_row - batch_start, 0)
        stop = batch.num_rows if end is None else min(end - batch_start, batch.num_rows)
        if stop > start:
            yield batch.slice(start, stop - start)
        if end is not None and rows_read >= end and end != promised:
            return  # the rest of the unit is not asked for
    if promised is not None and rows_read != promised:
        count = f"{rows_read:,} rows" if rows_read <= promised else f"more than {promised:,} rows"
        raise SourceInconsistent(
            "the number of rows read differs from the metadata",
            file=unit.name,
            expected=f"{promised:,} rows",
            found=count,
            hint="Write or download the source again; columns that are damaged can be left out "
            f"with {mark_option('exclude')}.",
        )


def cut_rows(units: Iterable[Unit], rows: tuple[int, int | None] | None) -> list[Span]:
    """Return the spans that hold rows A to B of the units, without empty units.

    Raises UsageError where the units are known to end before A.
    """
    start, stop = rows or (0, None)
    spans, first = [], 0
    for unit in units:
        if unit.rows is None:
            left = None if stop is None else stop - start
            if left != 0:
                spans.append(Span(unit, start, left))
            continue
        skip = max(start - first, 0)
        end = unit.rows if stop is None else min(unit.rows, stop - first)
        if end > skip:
            spans.append(Span(unit, skip, end - skip))
        first += unit.rows
    if start > 0 and not spans and stop != start and start >= first:
        raise UsageError(
            f"{mark_option('rows')}: starts after the last row",
            found=start,
            expected=f"below {first}",
        )
    return spans
