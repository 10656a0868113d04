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

from fieldslab.packer.convert.dense import decode_layout, estimate_decoded_bytes, is_bytes, is_text
from fieldslab.packer.sources.parquet.footers import ParquetPart, name_parquet_errors
from fieldslab.packer.sources.parquet.int96 import check_int96
from fieldslab.packer.sources.parquet.side_by_side import join_streams

MOST_ROWS = 65_536
GROWTH = 8
PIECE_BYTES = 2**20
PIECE_BYTES_OF_A_COLUMN = 2**16
"""A piece is near the larger of these two, the second times the columns."""
SPIKE_BYTES = 2**26
"""A piece may be so large where short values are followed by long ones of a dictionary."""
FRONT_CODED_ROWS = 64
"""Rows of a piece at most where values share their beginnings, of which the footer says nothing."""
MOST_PAGE_BYTES = 2**28
PAGE_BYTES_OF_A_COLUMN = 2**21
"""The decoder holds a page and a dictionary of every column that it reads: at most
`MOST_PAGE_BYTES` of them at a time, where a column counts for at most `PAGE_BYTES_OF_A_COLUMN`."""


def read_row_group(
    part: ParquetPart, group: int, positions: list[int], batch_bytes: int, name: str
) -> Iterator[pa.RecordBatch]:
    """Read the columns at these positions, in batches near `batch_bytes`.

    Raises SourceUnreadable or SourceChanged, which name the row group by `name`.
    """
    if not positions:
        yield from _make_batches_without_columns(part.metadata.row_group(group).num_rows)
        return
    parts = _group_columns_by_memory(part, group, positions)
    streams = [
        _read_columns(part, group, some, max(1, batch_bytes // len(parts)), name) for some in parts
    ]
    yield from streams[0] if len(streams) == 1 else join_streams(streams)


def _group_columns_by_memory(
    part: ParquetPart, group: int, positions: list[int]
) -> list[list[int]]:
    """Split columns into consecutive groups that the decoder can read at once.

    It holds one page and one dictionary of every column of a group in memory.
    """
    groups: list[list[int]] = [[]]
    filled_bytes = 0
    for position in positions:
        chunks = [part.get_chunk(group, leaf) for leaf in part.leaves[position]]
        page_bytes = sum(
            min(chunk.total_uncompressed_size, PAGE_BYTES_OF_A_COLUMN) for chunk in chunks
        )
        if groups[-1] and filled_bytes + page_bytes > MOST_PAGE_BYTES:
            groups.append([])
            filled_bytes = 0
        groups[-1].append(position)
        filled_bytes += page_bytes
    return groups


def _read_columns(
    part: ParquetPart, group: int, positions: list[int], batch_bytes: int, name: str
) -> Iterator[pa.RecordBatch]:
    leaves = [leaf for position in positions for leaf in part.leaves[position]]
    with (
        part.refuse_changed(),
        name_parquet_errors(name),
        part.fetch(group, leaves) as fetched,
        fetched.open(len(leaves)) as parquet,
    ):
        pieces = _read_pieces(parquet, fetched, group, leaves, batch_bytes)
        yield from _join_pieces(check_int96(pieces, fetched, group, positions), batch_bytes)


def _read_pieces(
    parquet: pq.ParquetFile, part: ParquetPart, group: int, leaves: list[int], batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    fixed = all(part.is_fixed_width(leaf) for leaf in leaves)
    piece_bytes = max(PIECE_BYTES, PIECE_BYTES_OF_A_COLUMN * len(leaves))
    target = batch_bytes if fixed else min(batch_bytes, piece_bytes)
    most = _compute_most_rows(part, group, leaves, target)
    rows = most if fixed else 1
    # The public `iter_batches` knows neither positions nor a size that changes on the way.
    reader = parquet.reader
    for piece in reader.iter_batches(rows, row_groups=[group], column_indices=leaves):
        part.file.check_unchanged()
        yield piece
        row_bytes = max(1, _estimate_bytes(piece) // max(piece.num_rows, 1))
        rows = max(1, min(most, GROWTH * rows, target // row_bytes))
        reader.set_batch_size(rows)


def _compute_most_rows(part: ParquetPart, group: int, leaves: list[int], target: int) -> int:
    """Compute the most rows of a piece, from the footer and the dictionaries."""
    size = sum(part.estimate_leaf_bytes(group, leaf) for leaf in leaves)
    total = part.metadata.row_group(group).num_rows
    most = min(MOST_ROWS, target * total // max(size, 1))
    encodings = {name for leaf in leaves for name in part.get_chunk(group, leaf).encodings}
    if "DELTA_BYTE_ARRAY" in encodings:
        most = min(most, FRONT_CODED_ROWS)
    if longest := _find_longest_in_dictionaries(part, group, leaves):
        most = min(most, SPIKE_BYTES // longest)
    return max(most, 1)


def _find_longest_in_dictionaries(part: ParquetPart, group: int, leaves: list[int]) -> int:
    """Find the longest byte string in the dictionaries of a row group, by reading one row."""
    schema = part.metadata.schema
    chosen = [
        leaf
        for leaf in leaves
        if part.get_chunk(group, leaf).has_dictionary_page
        and schema.column(leaf).physical_type == "BYTE_ARRAY"
        and schema.column(leaf).max_repetition_level == 0
    ]
    if not chosen:
        return 0
    paths = [schema.column(leaf).path for leaf in chosen]
    with part.open(len(chosen), read_dictionary=paths) as parquet:
        first = parquet.reader.iter_batches(1, row_groups=[group], column_indices=chosen)
        row = next(first, None)  # None where page_bytes lack the rows that the footer promises
    return 0 if row is None else max(map(_find_longest, row.columns))


def _find_longest(array: pa.Array) -> int:
    kind = array.type
    if pa.types.is_struct(kind):
        return max(
            (_find_longest(array.field(index)) for index in range(kind.num_fields)), default=0
        )
    if not pa.types.is_dictionary(kind):
        return 0
    values = decode_layout(array.dictionary)
    if not (is_text(values.type) or is_bytes(values.type)):
        return 0
    return int(pc.max(pc.binary_length(values)).as_py() or 0)


def _estimate_bytes(piece: pa.RecordBatch) -> int:
    return sum(estimate_decoded_bytes(array) for array in piece.columns)


def _join_pieces(pieces: Iterator[pa.RecordBatch], batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Join consecutive pieces to batches near `batch_bytes`, of at most MOST_ROWS."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for piece in pieces:
        if waiting and rows + piece.num_rows > MOST_ROWS:
            yield _concatenate(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(piece)
        rows += piece.num_rows
        size += _estimate_bytes(piece)
        if size >= batch_bytes:
            yield _concatenate(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _concatenate(waiting)


def _concatenate(pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)


def _make_batches_without_columns(total: int) -> Iterator[pa.RecordBatch]:
    """Yield rows without columns, for when only partition columns are packed."""
    for start in range(0, total, MOST_ROWS):
        rows = pa.nulls(min(MOST_ROWS, total - start))
        yield pa.RecordBatch.from_arrays([rows], names=["rows"])
