"""Nested fields: where the lists inside the lists of some rows begin, from their lengths."""

from typing import NamedTuple

import numpy as np


class InnerLists(NamedTuple):
    """The lists inside the lists of some rows, of which one follows the other.

    List `k` is elements `offsets[k]` up to `offsets[k + 1]`: int64[lists + 1], from 0 on. `valid`
    is bool[lists], False for null, or None where no list is null. `wrong_row` is the first row
    whose lists are not as long as the row together; None where all are.
    """

    offsets: np.ndarray
    valid: np.ndarray | None
    wrong_row: int | None


def find_inner_lists(
    lengths: np.ndarray,
    list_offsets: np.ndarray,
    element_offsets: np.ndarray,
    offsets: np.ndarray | None = None,
) -> InnerLists:
    """Find the lists of rows from what is stored, which may be wrong.

    Parameters
    ----------
    lengths
        Elements of each list, -1 for null: int32[lists].
    list_offsets, element_offsets
        Lists and elements of the rows, from 0 on, never decreasing: int64[rows + 1].
    offsets
        Where the offsets of the lists go: int64[lists + 1]. Default: new memory.
    """
    if offsets is None:
        offsets = np.empty(len(lengths) + 1, np.int64)
    lowest = int(lengths.min(initial=0))
    offsets[0] = 0
    counts = np.maximum(lengths, 0) if lowest < 0 else lengths
    np.cumsum(counts, out=offsets[1:], dtype=np.int64)
    valid = lengths >= 0 if lowest < 0 else None
    wrong = offsets[list_offsets] != element_offsets
    if wrong.any():
        return InnerLists(offsets, valid, max(int(np.argmax(wrong)) - 1, 0))
    if lowest < -1:
        index = int(np.argmin(lengths))
        row = int(np.searchsorted(list_offsets, index, side="right")) - 1
        return InnerLists(offsets, valid, row)
    return InnerLists(offsets, valid, None)
