"""Kernels over the system's calls about pages."""

from typing import Any

import numpy as np

from fieldslab.schemas.jit import kernel, types
from fieldslab.schemas.mapping import get_address

WILLNEED = 3
"""Advice: the same number on Linux and macOS."""

MOST_PAGES = 256
"""So many pages of a range are looked at: of a row, and of the blocks around it."""

_ADVISE = types.int32(types.int64, types.uint64, types.int32)
_LOOK = types.int32(types.int64, types.uint64, types.int64)
_madvise: Any = types.ExternalFunction("madvise", _ADVISE)
_mincore: Any = types.ExternalFunction("mincore", _LOOK)

_Array = np.ndarray


@kernel("int64(int64[::1], int64[::1], int64, int32)")
def advise_ranges(starts: _Array, ends: _Array, page: int, advice: int) -> int:
    """Give advice on ranges of addresses, rising; return how many calls that took.

    Ranges that touch after they were widened to whole pages go into one call. What the system
    refuses is not advised: nothing depends on it.
    """
    calls = 0
    i = 0
    while i < len(starts):
        begin = starts[i] // page * page
        end = ends[i]
        i += 1
        while i < len(starts) and starts[i] // page * page <= end:
            end = max(end, ends[i])
            i += 1
        _madvise(begin, np.uint64(end - begin), advice)
        calls += 1
    return calls


@kernel("boolean(int64[::1], int64[::1], int64, uint8[::1], int64)")
def are_first_pages_resident(
    starts: _Array, ends: _Array, page: int, answer: _Array, answer_address: int
) -> bool:
    """Tell whether the first pages of ranges of addresses are in memory, as many as fit `answer`.

    `answer` (uint8[pages]) lies at `answer_address`, and is where the system writes.
    """
    for i in range(len(starts)):
        begin = starts[i] // page * page
        pages = min(-(-(ends[i] - begin) // page), len(answer))
        if _mincore(begin, np.uint64(pages * page), answer_address) != 0:
            return False
        for k in range(pages):
            if answer[k] & 1 == 0:
                return False
    return True


def are_resident(starts: np.ndarray, ends: np.ndarray, page: int) -> bool:
    """Tell whether ranges of addresses (int64[n] each) are in memory, up to `MOST_PAGES`."""
    answer = np.zeros(MOST_PAGES, np.uint8)
    told: bool = are_first_pages_resident(starts, ends, page, answer, get_address(answer))
    return told
