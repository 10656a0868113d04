"""Index points of JPEG images: places in their data from which decoding can begin.

An image of R rows of W MCUs has R * ceil(W / every) points (R if `every` is 0), as FORMAT.md says:

    bit & 0xFFFF, bit >> 16, DC predictors of up to three components as int16
"""

from typing import Any, NamedTuple

import numpy as np

from fieldslab.schemas.codecs.baseline import read_header
from fieldslab.schemas.codecs.jpeg import OK, new_frame
from fieldslab.schemas.codecs.jpeg_windows import POINT_BYTES, Lane, new_lane
from fieldslab.schemas.codecs.mcus import (
    count_blocks_per_mcu,
    count_mcu_columns,
    count_mcu_rows,
    count_points_per_row,
)
from fieldslab.schemas.codecs.walking import (
    FINISHED,
    SCRATCH,
    Scratch,
    begin_image,
    end_block,
    make_scratch,
    skip_codes,
)
from fieldslab.schemas.jit import kernel, make_tuple_type, subkernel, types

LARGEST = 1 << 29
"""Images from this many bytes on have no points: a bit position has 32 bits."""


@kernel("int64(int64, int64[::1], int64, int64[::1])")
def _count_points(address: int, lengths: Any, every: int, counts: Any) -> int:
    """Count the points of each image from its header, as if it were whole; return the sum."""
    frame = new_frame()
    total = 0
    for i in range(len(lengths)):
        length = lengths[i]
        counts[i] = 0
        if length < LARGEST and read_header(address, length, frame) == OK:
            rows, columns = count_mcu_rows(frame), count_mcu_columns(frame)
            # A block has at least one bit for DC and one for AC: headers that lie cost nothing.
            if rows * columns * count_blocks_per_mcu(frame) * 2 <= 8 * length:
                counts[i] = rows * count_points_per_row(columns, every)
                total += counts[i]
        address += length
    return total


class Images(NamedTuple):
    """Images to index: how many points each has, and the index in `points` of its first."""

    addresses: np.ndarray
    lengths: np.ndarray
    counts: np.ndarray
    first_points: np.ndarray
    points: np.ndarray
    every: int


IMAGES = make_tuple_type(
    Images,
    types.int64[::1],
    types.int64[::1],
    types.int64[::1],
    types.int64[::1],
    types.uint16[:, ::1],
    types.int64,
)


@subkernel(types.boolean(Lane, Lane, SCRATCH, IMAGES, types.int64[::1]))
def _begin_next_image(lane: Any, other: Any, scratch: Any, images: Any, next_image: Any) -> bool:
    """Put the next image that can have points on a lane; False if none is left."""
    lane.image = -1
    points: Any = np.int64(images.points.ctypes.data)
    while next_image[0] < len(images.counts):
        i = next_image[0]
        next_image[0] += 1
        if images.counts[i] == 0:
            continue
        lane.point = points + POINT_BYTES * images.first_points[i]
        if begin_image(images.addresses[i], images.lengths[i], images.every, lane, other, scratch):
            lane.image = i
            return True
        images.counts[i] = 0
    return False


@kernel(types.void(IMAGES, SCRATCH))
def _find_points(images: Images, scratch: Scratch) -> None:
    """Fill in the points of images that have a count, and set it to 0 where an image is not whole.

    Two images are walked through in turns: a processor waits for each entry of a table before it
    knows where the next code begins.
    """
    a, b = new_lane(), new_lane()
    a.image = b.image = -1
    b.number = 1
    next_image = np.zeros(1, np.int64)
    more_a = _begin_next_image(a, b, scratch, images, next_image)
    more_b = _begin_next_image(b, a, scratch, images, next_image)
    bit_a, bit_b = a.bit, b.bit
    table_a, table_b = a.skip_tables[0], b.skip_tables[0]
    k_a, k_b = 1, 1
    while more_a and more_b:
        bit_a, k_a, entry_a = skip_codes(a.window, bit_a, k_a, table_a)
        bit_b, k_b, entry_b = skip_codes(b.window, bit_b, k_b, table_b)
        if k_a >= 64:
            bit_a = end_block(a, bit_a, k_a, entry_a)
            if bit_a < 0:
                images.counts[a.image] *= bit_a == FINISHED
                more_a = _begin_next_image(a, b, scratch, images, next_image)
                bit_a = a.bit
            k_a, table_a = 1, a.skip_tables[np.uint64(a.block)]
        if k_b >= 64:
            bit_b = end_block(b, bit_b, k_b, entry_b)
            if bit_b < 0:
                images.counts[b.image] *= bit_b == FINISHED
                more_b = _begin_next_image(b, a, scratch, images, next_image)
                bit_b = b.bit
            k_b, table_b = 1, b.skip_tables[np.uint64(b.block)]
    while more_a:
        bit_a, k_a, entry_a = skip_codes(a.window, bit_a, k_a, table_a)
        if k_a >= 64:
            bit_a = end_block(a, bit_a, k_a, entry_a)
            more_a = bit_a >= 0
            k_a, table_a = 1, a.skip_tables[np.uint64(a.block)]
    if a.image >= 0:
        images.counts[a.image] *= bit_a == FINISHED
    while more_b:
        bit_b, k_b, entry_b = skip_codes(b.window, bit_b, k_b, table_b)
        if k_b >= 64:
            bit_b = end_block(b, bit_b, k_b, entry_b)
            more_b = bit_b >= 0
            k_b, table_b = 1, b.skip_tables[np.uint64(b.block)]
    if b.image >= 0:
        images.counts[b.image] *= bit_b == FINISHED


def find_index_points(
    values: np.ndarray, lengths: np.ndarray, every: int
) -> tuple[np.ndarray, np.ndarray]:
    """Find the index points of many images.

    Parameters
    ----------
    values
        uint8[bytes], C-contiguous: the images one after the other.
    lengths
        int64[images], bytes of each.
    every
        MCUs from one point to the next along a row of MCUs; 0 for one point per row.

    Returns
    -------
    uint16[points, 5], with columns as at the top of this module, and int64[images], the number of
    points of each image: 0 if it is damaged, or not a baseline JPEG that can be decoded from the
    middle.
    """
    values, lengths = np.ascontiguousarray(values), np.array(lengths, np.int64)
    if lengths.size and (lengths.min() < 0 or lengths.sum() > values.size):
        raise ValueError("the lengths do not fit the bytes")
    if every < 0:
        raise ValueError("`every` is less than 0")
    address = values.ctypes.data
    counts = np.zeros(len(lengths), np.int64)
    expected = _count_points(address, lengths, every, counts)
    points = np.empty((expected, 5), np.uint16)
    possible = counts.copy()
    addresses, first_points = np.cumsum(lengths) - lengths + address, np.cumsum(counts) - counts
    images = Images(addresses, lengths, counts, first_points, points, every)
    _find_points(images, make_scratch())
    whole = counts == possible
    return points if whole.all() else points[np.repeat(whole, possible)], counts
