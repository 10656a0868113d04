"""How many index points JPEG images have, and whether the points rise; kernels."""

from typing import Any

import numpy as np

from fieldslab.schemas.codecs.baseline import read_header
from fieldslab.schemas.codecs.jpeg import OK, TRUNCATED, new_frame
from fieldslab.schemas.codecs.mcus import count_mcu_columns, count_mcu_rows, count_points_per_row
from fieldslab.schemas.jit import kernel, make_foreign_call
from fieldslab.schemas.mapping import get_pread

_call = make_foreign_call("int64(int32, int64, int64, int64)")


@kernel("int64(int64, int64, int64[::1], int64[::1], int64, int64, int64, int64[::1])")
def _count_header_points(
    pread: int,
    fd: int,
    starts: Any,
    lengths: Any,
    every: int,
    buffer: int,
    position: int,
    counts: Any,
) -> int:
    """Count from image `position` on; return where a read failed, or len(starts)."""
    frame = new_frame()
    for i in range(position, len(starts)):
        done = 0
        while done < lengths[i]:
            count = _call(pread, (fd, buffer + done, lengths[i] - done, starts[i] + done))
            if count <= 0:
                return i
            done += count
        status = read_header(buffer, lengths[i], frame)
        counts[i] = 0
        if status == OK:
            counts[i] = count_mcu_rows(frame) * count_points_per_row(
                count_mcu_columns(frame), every
            )
        elif status == TRUNCATED:
            counts[i] = -1
    return len(starts)


def count_points(
    fd: int, starts: np.ndarray, lengths: np.ndarray, every: int, counts: np.ndarray
) -> int:
    """Count the points of images whose first bytes lie at `starts` of a file: int64[n] each.

    Of each image `lengths` bytes are read. `counts` becomes 0 for other kinds and -1 for headers
    that are cut off. Returns n, or the position of an image that cannot be read.
    """
    buffer = np.empty(lengths.max(initial=1), np.uint8)
    stopped: int = _count_header_points(
        get_pread(), fd, starts, lengths, every, buffer.ctypes.data, 0, counts
    )
    return stopped


@kernel("int64(uint16[:,::1], int64[::1], int64[::1])")
def find_misplaced_point(points: Any, counts: Any, lengths: Any) -> int:
    """Find the first point outside its image or not after the point before it; -1 if none.

    `counts` tells how many of the points, uint16[points, 5], each image has, `lengths` its bytes.
    """
    k = 0
    for i in range(len(counts)):
        before: Any = -1
        for _ in range(counts[i]):
            bit: Any = np.int64(points[k, 0]) | np.int64(points[k, 1]) << 16
            if bit >= 8 * lengths[i] or bit <= before:
                return k
            before = bit
            k += 1
    return -1
