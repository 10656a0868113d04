"""The rows of a row group in batches of bounded size, whatever its columns hide.

A footer does not tell how large byte strings and lists are once decoded: a dictionary or a run
can stand for any size. Such columns are read in small pieces, the first of one row; each piece has
at most `GROWTH` times the rows of the one before it, and as many as what was seen and what the
footer says allow. Pieces are joined to batches.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fieldslab.packer.convert.dense import decoded_bytes, is_bytes, is_text
from fieldslab.packer.sources.parquet_files import ParquetPart, reading

MOST_ROWS = 65_536
GROWTH = 8
PIECE_BYTES = 2**20
PIECE_BYTES_OF_A_COLUMN = 2**16
"""A piece is near the larger of these two, the second times the columns."""
SPIKE_BYTES = 2**26
"""A piece may be so large where short values are followed by long ones of a dictionary."""
FRONT_CODED_ROWS = 64
"""Rows of a piece at most where values share their beginnings, of which the footer says nothing."""


def batches(
    part: ParquetPart, group: int, positions: list[int], batch_bytes: int, name: str
) -> Iterator[pa.RecordBatch]:
    """The columns at these positions, in batches near `batch_bytes`.

    Raises SourceUnreadable or SourceChanged, which name the row group by `name`.
    """
    leaves = [leaf for position in positions for leaf in part.leaves[position]]
    if not leaves:
        yield from _without_columns(part.metadata.row_group(group).num_rows)
        return
    with part.or_changed(), reading(name), part.open(len(leaves)) as parquet:
        yield from _joined(_pieces(parquet, part, group, leaves, batch_bytes), batch_bytes)


def _pieces(
    parquet: pq.ParquetFile, part: ParquetPart, group: int, leaves: list[int], batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    most = _most_rows(part, group, leaves, batch_bytes)
    fixed = all(part.fixed_width(leaf) for leaf in leaves)
    target = batch_bytes if fixed else min(batch_bytes, _piece_bytes(leaves))
    rows = most if fixed else 1
    # The public `iter_batches` knows neither positions nor a size that changes on the way.
    reader = parquet.reader
    for piece in reader.iter_batches(rows, row_groups=[group], column_indices=leaves):
        part.check_unchanged()
        yield piece
        seen = max(1, _bytes(piece) // max(piece.num_rows, 1))
        rows = max(1, min(most, GROWTH * rows, target // seen))
        reader.set_batch_size(rows)


def _most_rows(part: ParquetPart, group: int, leaves: list[int], batch_bytes: int) -> int:
    """Rows of a piece at most, by what the footer and the dictionaries say."""
    if all(part.fixed_width(leaf) for leaf in leaves):
        target = batch_bytes
    else:
        target = min(batch_bytes, _piece_bytes(leaves))
    size = sum(part.leaf_bytes(group, leaf) for leaf in leaves)
    total = part.metadata.row_group(group).num_rows
    most = min(MOST_ROWS, target * total // max(size, 1))
    encodings = {name for leaf in leaves for name in part.chunk(group, leaf).encodings}
    if "DELTA_BYTE_ARRAY" in encodings:
        most = min(most, FRONT_CODED_ROWS)
    if longest := _longest_in_dictionaries(part, group, leaves):
        most = min(most, SPIKE_BYTES // longest)
    return max(most, 1)


def _longest_in_dictionaries(part: ParquetPart, group: int, leaves: list[int]) -> int:
    """The longest byte string in the dictionaries of a row group; one row tells them all."""
    schema = part.metadata.schema
    chosen = [
        leaf for leaf in leaves
        if part.chunk(group, leaf).has_dictionary_page
        and schema.column(leaf).physical_type == "BYTE_ARRAY"
        and schema.column(leaf).max_repetition_level == 0
    ]  # fmt: skip
    if not chosen:
        return 0
    paths = [schema.column(leaf).path for leaf in chosen]
    with part.open(len(chosen), read_dictionary=paths) as parquet:
        row = next(parquet.reader.iter_batches(1, row_groups=[group], column_indices=chosen))
    return max(map(_longest, row.columns))


def _longest(array: pa.Array) -> int:
    kind = array.type
    if pa.types.is_struct(kind):
        return max((_longest(array.field(at)) for at in range(kind.num_fields)), default=0)
    if not pa.types.is_dictionary(kind):
        return 0
    values = decoded(array.dictionary)
    if not (is_text(values.type) or is_bytes(values.type)):
        return 0
    return int(pc.max(pc.binary_length(values)).as_py() or 0)


def _piece_bytes(leaves: list[int]) -> int:
    return max(PIECE_BYTES, PIECE_BYTES_OF_A_COLUMN * len(leaves))


def _bytes(piece: pa.RecordBatch) -> int:
    return sum(decoded_bytes(array) for array in piece.columns)


def _joined(pieces: Iterator[pa.RecordBatch], batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Batches of consecutive pieces: near `batch_bytes`, at most MOST_ROWS."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for piece in pieces:
        if waiting and rows + piece.num_rows > MOST_ROWS:
            yield _join(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(piece)
        rows += piece.num_rows
        size += _bytes(piece)
        if size >= batch_bytes:
            yield _join(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _join(waiting)


def _join(pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)


def _without_columns(total: int) -> Iterator[pa.RecordBatch]:
    """Rows alone, as where only partition columns are packed."""
    for start in range(0, total, MOST_ROWS):
        rows = pa.nulls(min(MOST_ROWS, total - start))
        yield pa.RecordBatch.from_arrays([rows], names=["rows"])
