"""Blocks that somebody made so that they keep their XXH3."""

import numpy as np

from fieldslab.schemas.xxh3 import _SECRET

_FIRST, _SECOND, _LANE = 2, 9, 3
"""Two stripes of 64 bytes of one round, and a lane of 8 bytes in each."""


def make_twins(block: bytes) -> tuple[bytes, bytes]:
    """Make two blocks of `block`, 1 KiB or more, that differ and have the same XXH3-64.

    A lane adds the product of its halves, each mixed with a part of the secret, to its sum, and
    itself to its neighbour's. With the lower half of the secret there, products are zero; then what
    is added to one upper half and taken from another leaves both sums as they were.
    """
    lanes = np.frombuffer(block[:1024], "<u4").reshape(16, 8, 2).copy()
    for stripe in (_FIRST, _SECOND):
        start = 8 * (stripe + _LANE)
        lanes[stripe, _LANE] = int.from_bytes(_SECRET[start : start + 4], "little"), 1000
    other = lanes.copy()
    other[_FIRST, _LANE, 1] += 7
    other[_SECOND, _LANE, 1] -= 7
    return lanes.tobytes() + block[1024:], other.tobytes() + block[1024:]
