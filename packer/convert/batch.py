"""Rows of a source on their way to be converted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from fieldslab.packer.convert.dense import get_child


def index_columns(columns: Sequence[int]) -> dict[int, int]:
    """Map columns of the source to their positions in batches read with these columns."""
    return {column: position for position, column in enumerate(columns)}


@dataclass(frozen=True)
class SourceBatch:
    """Some rows of a source.

    `positions` says where in `rows` each top-level column of the source stands, and `first_row`
    how many rows of the pack come before these.
    """

    rows: pa.RecordBatch
    positions: Mapping[int, int]
    first_row: int = 0

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def get_column(self, path: tuple[int, ...]) -> pa.Array:
        """Return the array at a path, with the nulls of the structs around it."""
        array = self.rows.column(self.positions[path[0]])
        for index in path[1:]:
            array = get_child(array, index)
        return array

    def slice(self, start: int, rows: int) -> "SourceBatch":
        """Return some rows from `start` on, without slicing if all are wanted: that takes time."""
        if rows == len(self):
            return self
        return SourceBatch(self.rows.slice(start, rows), self.positions, self.first_row + start)
