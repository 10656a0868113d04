"""How many index points JPEG images have, by their headers; a kernel."""

from typing import Any

import numpy as np

from fieldslab.schemas.codecs.baseline import read_header
from fieldslab.schemas.codecs.jpeg import OK, TRUNCATED, new_frame
from fieldslab.schemas.codecs.mcus import mcu_columns, mcu_rows, points_per_row
from fieldslab.schemas.jit import kernel


@kernel("void(int64, int64[::1], int64, int64[::1])")
def _count(address: int, lengths: Any, every: int, counts: Any) -> None:
    frame = new_frame()
    for i in range(len(lengths)):
        status = read_header(address, lengths[i], frame)
        counts[i] = 0
        if status == OK:
            counts[i] = mcu_rows(frame) * points_per_row(mcu_columns(frame), every)
        elif status == TRUNCATED:
            counts[i] = -1
        address += lengths[i]


def count_points(heads: list[bytes], every: int) -> np.ndarray:
    """Points of the images that begin so: int64[n], 0 for other kinds, -1 for headers cut off."""
    lengths = np.array([len(head) for head in heads], np.int64)
    counts = np.zeros(len(heads), np.int64)
    data = np.frombuffer(b"".join(heads) or b"\0", np.uint8)
    _count(data.ctypes.data, lengths, every, counts)
    return counts
