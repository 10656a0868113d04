"""What is read at one go: a window of a file's rows, or some episodes behind each other."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from fieldslab.packer.source import Unit
from fieldslab.packer.sources.hdf5.parts import Key, Part
from fieldslab.packer.sources.hdf5.read import OpenFiles, read_columns
from fieldslab.packer.sources.hdf5.windows import (
    WINDOW_BYTES,
    Piece,
    compute_batch_rows,
    compute_memory,
)


class PieceRows(NamedTuple):
    """Rows of a part that were read: one array for each dataset's column."""

    piece: Piece
    arrays: list[pa.Array]

    @property
    def bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays)


def make_units(pieces: Iterable[tuple[Piece, float]], parts: Sequence[Part]) -> Iterator[Unit]:
    """Make units of pieces, each with its bytes; small episodes of a file are read together."""
    group: list[Piece] = []
    size = 0.0
    for piece, piece_bytes in pieces:
        previous = parts[group[-1].part] if group else None
        together = (
            previous is not None and previous.group and previous.scan is parts[piece.part].scan
        )
        if group and not (together and size + piece_bytes <= WINDOW_BYTES):
            yield _make_unit(group, size, parts)
            group, size = [], 0.0
        group.append(piece)
        size += piece_bytes
    if group:
        yield _make_unit(group, size, parts)


def _make_unit(group: Sequence[Piece], size: float, parts: Sequence[Part]) -> Unit:
    first, last = parts[group[0].part], parts[group[-1].part]
    name = f"{first.name} rows {group[0].start}..{group[-1].stop - 1}"
    if first is not last:
        name = f"{first.path} {first.group} to {last.group}"
    rows = sum(piece.stop - piece.start for piece in group)
    return Unit(name, rows, int(size), tuple(group), file=first.path)


def read_piece(
    opened: OpenFiles,
    part: Part,
    piece: Piece,
    keys: Sequence[Key],
    row_bytes: float,
    batch_bytes: int,
    limit: int,
) -> Iterator[PieceRows]:
    """Read the columns of a piece in batches near `batch_bytes`, within a limit of memory.

    `row_bytes` are about those of a row; batches become smaller where rows are larger.
    """
    if not keys:
        yield PieceRows(piece, [])
        return
    groups = part.group_columns(keys)
    datasets = [each.dataset for each in groups]
    batch_bytes = compute_memory(datasets).limit_batch_bytes(limit, batch_bytes)
    names = [(part.columns[key][0].name, part.columns[key][1].member) for key in keys]
    start = piece.start
    opened.window = piece.start, piece.stop
    while start < piece.stop:
        stop = min(start + compute_batch_rows(datasets, row_bytes, batch_bytes), piece.stop)
        arrays = {
            (each.dataset.name, column.member): array
            for each in groups
            for column, array in zip(
                each.columns, read_columns(opened, each, start, stop), strict=True
            )
        }
        rows = PieceRows(piece._replace(start=start, stop=stop), [arrays[name] for name in names])
        row_bytes = max(row_bytes, rows.bytes / (stop - start))
        yield rows
        start = stop


def join_rows(rows: Iterable[PieceRows], batch_bytes: int) -> Iterator[list[PieceRows]]:
    """Group what was read, so that the rows of small episodes make batches near `batch_bytes`."""
    group: list[PieceRows] = []
    size = 0
    for each in rows:
        if group and size + each.bytes > batch_bytes:
            yield group
            group, size = [], 0
        group.append(each)
        size += each.bytes
    if group:
        yield group
