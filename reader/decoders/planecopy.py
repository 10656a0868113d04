"""What a device needs of pixels stored by pack: the part of each picture that its views show."""

from typing import Any

import numpy as np

from fieldslab.reader.decoders.decoder import Crops, EncodedImages, Status
from fieldslab.reader.decoders.framecheck import CROPS, ENCODED
from fieldslab.reader.decoders.planes import check_planes_of, describe_picture
from fieldslab.reader.pixels.finish import RGB, new_picture
from fieldslab.reader.pixels.records import (
    CHROMA_COLUMNS,
    CHROMA_LEFT,
    CHROMA_ROWS,
    CHROMA_STRIDE,
    CHROMA_TOP,
    COLUMNS,
    FIRST,
    FLIP,
    HEIGHT,
    KIND,
    LEFT,
    PIXELS,
    PLANES,
    ROWS,
    SECOND,
    STRIDE,
    THIRD,
    TOP,
    WIDTH,
)
from fieldslab.reader.pixels.taps import find_sample_range
from fieldslab.schemas.jit import kernel, memcpy, subkernel, types

_OK = int(Status.OK)
_ALIGN = 64


@subkernel("void(int64, int64, int64, int64, int64)")
def _copy_rows(source: int, stride: int, rows: int, length: int, target: int) -> None:
    """Copy `length` bytes of each of some rows, one row behind the other; 0 is no target."""
    if target:
        for row in range(rows):
            memcpy(target + row * length, source + row * stride, length)


@kernel(
    types.int64(
        ENCODED,
        types.int64[::1],
        CROPS,
        types.int64,
        types.int64,
        types.int32[::1],
        types.int64[:, :, ::1],
    )
)
def copy_regions(
    images: EncodedImages,
    which: Any,
    crops: Crops,
    max_pixels: int,
    target: int,
    statuses: Any,
    records: Any,
) -> int:
    """Copy the parts of the images `which` that their views show, and describe all views.

    `target` is the address of as many bytes as a call with 0 returned, which copies nothing.
    `statuses` (int32[k]) is filled in as by `check_planes`; of an image that is OK, so are the
    `records` of its views: int64[n, views, RECORD_LENGTH], as `reader.pixels.records` has them.
    """
    picture = new_picture()
    views = crops.boxes.shape[1]
    size: Any = np.int64(0)
    for position in range(len(which)):
        image = which[position]
        status = check_planes_of(images, image, crops.boxes, max_pixels)
        statuses[position] = status
        if status != _OK or views == 0:
            continue
        describe_picture(images, image, picture)
        top: Any = np.int64(crops.boxes[image, 0, 0])
        left: Any = np.int64(crops.boxes[image, 0, 1])
        bottom: Any = top
        right: Any = left
        for view in range(views):
            box_top, box_left, box_height, box_width = crops.boxes[image, view]
            top, left = min(top, np.int64(box_top)), min(left, np.int64(box_left))
            bottom = max(bottom, np.int64(box_top) + box_height)
            right = max(right, np.int64(box_left) + box_width)
        rows, columns = bottom - top, right - left
        interleaved = picture.kind == RGB
        samples = 3 if interleaved else 1
        source = picture.planes[0] + top * picture.stride + left * samples
        place = target + size if target else 0
        _copy_rows(source, picture.stride, rows, columns * samples, place)
        first_row, chroma_rows = find_sample_range(top, rows, 0, 1, 0, picture.height)
        first_column, chroma_columns = find_sample_range(left, columns, 0, 1, 0, picture.width)
        chroma_bytes = 0 if interleaved else chroma_rows * chroma_columns
        second = size + 1 if interleaved else size + rows * columns
        third = second + 1 if interleaved else second + chroma_bytes
        if not interleaved:
            for plane in range(1, 3):
                source = picture.planes[plane] + first_row * picture.chroma_stride + first_column
                place = target + second + (plane - 1) * chroma_bytes if target else 0
                _copy_rows(source, picture.chroma_stride, chroma_rows, chroma_columns, place)
        for view in range(views):
            box_top, box_left, box_height, box_width = crops.boxes[image, view]
            record = records[image, view]
            record[KIND] = PIXELS if interleaved else PLANES
            record[FIRST], record[SECOND], record[THIRD] = size, second, third
            record[STRIDE], record[CHROMA_STRIDE] = columns * samples, chroma_columns
            record[TOP], record[ROWS] = box_top - top, rows
            record[LEFT], record[COLUMNS] = box_left - left, columns
            record[CHROMA_TOP], record[CHROMA_ROWS] = box_top - 2 * first_row, chroma_rows
            record[CHROMA_LEFT] = box_left - 2 * first_column
            record[CHROMA_COLUMNS] = chroma_columns
            record[HEIGHT], record[WIDTH] = box_height, box_width
            record[FLIP] = crops.flips[image, view]
        length = rows * columns * samples + 2 * chroma_bytes
        size += (length + _ALIGN - 1) // _ALIGN * _ALIGN
    return size
