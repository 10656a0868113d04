"""Rows whose image cannot be decoded, and the runs of rows between them."""

from collections.abc import Collection, Iterator, Sequence

import msgspec

from fieldslab.packer.convert.batch import SourceBatch
from fieldslab.packer.convert.columns import convert_field
from fieldslab.packer.convert.fieldplan import FieldPlan
from fieldslab.packer.source import Source
from fieldslab.schemas.errors import SourceInconsistent, UndecodableImage


class LeftOutRow(msgspec.Struct, frozen=True):
    """A row that was left out: its number in the source, its file if it has one, and the reason."""

    row: int
    field: str
    reason: str
    file: str | None = None

    def __str__(self) -> str:
        where = f"row {self.row} of the source" if self.file is None else self.file
        return f"left out {where}: {self.field} {self.reason}"


def find_damaged_rows(
    plans: Sequence[FieldPlan], batch: SourceBatch
) -> dict[int, UndecodableImage]:
    """Find the rows of a batch whose image cannot be decoded, by index in it, with the errors."""
    damaged: dict[int, UndecodableImage] = {}
    for plan in plans:
        if not plan.skips_damaged_images or _try_convert(plan, batch) is None:
            continue
        for row in range(len(batch)):
            if (
                row not in damaged
                and (error := _try_convert(plan, batch.slice(row, 1))) is not None
            ):
                damaged[row] = error
    return dict(sorted(damaged.items()))


def find_runs_between(rows: Collection[int], count: int) -> Iterator[tuple[int, int]]:
    """Find the runs of `range(count)` between these sorted rows: start and length."""
    start = 0
    for row in (*rows, count):
        if row > start:
            yield start, row - start
        start = row + 1


def make_left_out_row(error: UndecodableImage, source: Source, row: int) -> LeftOutRow:
    """Make the record of a row that is left out."""
    value = error.context.get("found")
    reason = error.problem.removeprefix("an image ") + ("" if value is None else f": {value}")
    return LeftOutRow(row, str(error.context["field"]), reason, source.file_of(row))


def add_file_to_error(error: SourceInconsistent, source: Source, first_row: int) -> None:
    """Enter into an error the file that its row comes from, where the source has a file a row.

    The row of the source at which rows begin to be counted is `first_row`.
    """
    row = error.context.get("row")
    file = source.file_of(first_row + row) if isinstance(row, int) else None
    if file is not None:
        error.context = {"file": file, **error.context}


def _try_convert(plan: FieldPlan, batch: SourceBatch) -> UndecodableImage | None:
    try:
        convert_field(plan, batch)
    except UndecodableImage as error:
        return error
    return None
