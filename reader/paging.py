"""Kernels over the system's calls about pages."""

from typing import Any

import numpy as np
from numba import types

from fieldslab.reader.array import address_of
from fieldslab.schemas.jit import kernel

RANDOM, WILLNEED = 1, 3
"""Advice: the same numbers on Linux and macOS."""

_ADVISE = types.int32(types.int64, types.uint64, types.int32)
_LOOK = types.int32(types.int64, types.uint64, types.int64)
_madvise: Any = types.ExternalFunction("madvise", _ADVISE)
_mincore: Any = types.ExternalFunction("mincore", _LOOK)

_Array = np.ndarray


@kernel("int64(int64[::1], int64[::1], int64, int32)")
def advise(starts: _Array, ends: _Array, page: int, advice: int) -> int:
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


@kernel("boolean(int64[::1], int64, uint8[::1], int64)")
def all_resident(addresses: _Array, page: int, answer: _Array, at: int) -> bool:
    """Whether the pages at some addresses are all in memory.

    `answer` (uint8[1]) lies at the address `at`, and is where the system writes.
    """
    for address in addresses:
        if _mincore(address // page * page, np.uint64(1), at) != 0 or answer[0] & 1 == 0:
            return False
    return True


def resident(addresses: np.ndarray, page: int) -> bool:
    """Whether the pages at some addresses (int64[n]) are all in memory."""
    answer = np.zeros(1, np.uint8)
    told: bool = all_resident(addresses, page, answer, address_of(answer))
    return told
