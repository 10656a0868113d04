"""INT96 timestamps, which Spark and Hive still write: a day and nanoseconds of the day.

Arrow has no type for them. In nanoseconds of 64 bits the years 1678 to 2262 fit, and what lies
outside is wrapped silently; in microseconds the last three digits are cut off silently. So such
columns are read in both units, and compared.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from fieldslab.packer.convert.dense import find_valid_rows, view_numbers
from fieldslab.packer.sources.parquet.footers import ParquetPart
from fieldslab.schemas.errors import SourceUnsupported
from fieldslab.schemas.optiontext import mark_option

_NS_IN_US = 1000
_FIRST_US, _LAST_US = -(2**63) // _NS_IN_US + 1, 2**63 // _NS_IN_US - 1


def check_int96(
    pieces: Iterator[pa.RecordBatch], part: ParquetPart, group: int, positions: list[int]
) -> Iterator[pa.RecordBatch]:
    """Yield pieces of these columns while no INT96 timestamp in them has lost anything.

    Raises SourceUnsupported for one that has.
    """
    int96_leaves = [
        (index, part.find_int96_leaf(position)) for index, position in enumerate(positions)
    ]
    columns = {index: leaf for index, leaf in int96_leaves if leaf is not None}
    if not columns:
        yield from pieces
        return
    other = "us" if part.int96_unit == "ns" else "ns"
    with part.open(len(columns), int96_unit=other) as parquet:
        reader = parquet.reader
        batches = reader.iter_batches(1, row_groups=[group], column_indices=[*columns.values()])
        row = 0
        for piece in pieces:
            reader.set_batch_size(piece.num_rows)
            other_batch = next(batches)
            for index, array in zip(columns, other_batch.columns, strict=True):
                _check_timestamps(part, piece.column(index), array, piece.schema.names[index], row)
            yield piece
            row += piece.num_rows


def _check_timestamps(
    part: ParquetPart, array: pa.Array, other_array: pa.Array, name: str, row: int
) -> None:
    int64 = np.dtype("<i8")
    valid = find_valid_rows(array)
    is_valid = np.ones(len(array), bool) if valid is None else valid
    main, other = (
        view_numbers(each.fill_null(pa.scalar(0, each.type)), int64)
        for each in (array, other_array)
    )
    if part.int96_unit == "ns":
        is_exact = main // _NS_IN_US == other
        problem = "an INT96 timestamp lies outside the years 1678 to 2262"
    else:
        is_exact = (main < _FIRST_US) | (main > _LAST_US) | (main * _NS_IN_US == other)
        problem = "an INT96 timestamp has digits below a microsecond"
    bad_rows = np.flatnonzero(~is_exact & is_valid)
    if len(bad_rows):
        raise SourceUnsupported(
            problem,
            file=part.path,
            field=name,
            row=f"{row + int(bad_rows[0])} of its row group",
            hint=f"{mark_option('exclude', [name])} leaves the column out; newer writers use "
            "better types.",
        )
