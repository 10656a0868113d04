"""Rows of a source on their way to be converted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fieldslab.packer.convert.dense import (
    compute_lengths,
    decode_layout,
    find_valid_rows,
    get_child,
    is_list,
)


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
        """Return the array at a path, with the nulls of the structs around it.

        A path through lists leads to lists of what is in their structs.
        """
        return _descend(self.rows.column(self.positions[path[0]]), path[1:])

    def slice(self, start: int, rows: int) -> "SourceBatch":
        """Return some rows from `start` on, without slicing if all are wanted: that takes time."""
        if rows == len(self):
            return self
        return SourceBatch(self.rows.slice(start, rows), self.positions, self.first_row + start)


def _descend(array: pa.Array, path: tuple[int, ...]) -> pa.Array:
    if not path:
        return array
    lists = decode_layout(array)
    if pa.types.is_map(lists.type):
        lists = lists.cast(pa.list_(lists.type.field(0)))
    if not is_list(lists.type):
        return _descend(get_child(array, path[0]), path[1:])
    valid = find_valid_rows(lists)
    valid_lists = lists if valid is None else lists.filter(pa.array(valid))
    lengths = np.zeros(len(lists), np.int64)
    lengths[slice(None) if valid is None else valid] = compute_lengths(valid_lists)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]))
    items = _descend(valid_lists.flatten(), path[1:])
    mask = None if valid is None else pa.array(~valid)
    return pa.LargeListArray.from_arrays(offsets, items, mask=mask)
