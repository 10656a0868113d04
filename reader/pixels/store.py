"""The last step: a row of float32 red, green and blue becomes numbers of the batch."""

import numpy as np

from fieldslab.reader.pixels import lanes
from fieldslab.reader.pixels.lanes import (
    pixels_bfloat16,
    pixels_float16,
    pixels_float32,
    pixels_uint8,
    plane_bfloat16,
    plane_float16,
    plane_float32,
    plane_uint8,
)
from fieldslab.schemas.jit import kernel, memcpy

UINT8, FLOAT32, FLOAT16, BFLOAT16 = range(4)
"""The forms that numbers may be stored in."""

_FORMS = {"uint8": UINT8, "float32": FLOAT32, "float16": FLOAT16, "uint16": BFLOAT16}


def form_of(out: np.ndarray) -> int:
    """The form of an output array, by its dtype: uint16 holds bfloat16."""
    return _FORMS[out.dtype.name]


@kernel("int64(int64)")
def item_bytes(form: int) -> int:
    """Return the bytes of one number."""
    if form == UINT8:
        return 1
    return 4 if form == FLOAT32 else 2


@kernel("void(int64, int64, int64, int64)")
def _convert(values: int, count: int, form: int, out: int) -> None:
    """Convert float32[count], a multiple of 16."""
    if form == UINT8:
        for x in range(0, count, lanes.LANES):
            plane_uint8(out + x, values + 4 * x)
    elif form == FLOAT32:
        for x in range(0, count, lanes.LANES):
            plane_float32(out + 4 * x, values + 4 * x)
    elif form == FLOAT16:
        for x in range(0, count, lanes.LANES):
            plane_float16(out + 2 * x, values + 4 * x)
    else:
        for x in range(0, count, lanes.LANES):
            plane_bfloat16(out + 2 * x, values + 4 * x)


@kernel("void(int64, int64, int64, int64)")
def _interleave(values: int, count: int, form: int, out: int) -> None:
    """Interleave and convert float32[3, count], a multiple of 16."""
    stride = 4 * count
    if form == UINT8:
        for x in range(0, count, lanes.LANES):
            pixels_uint8(out + 3 * x, values + 4 * x, stride)
    elif form == FLOAT32:
        for x in range(0, count, lanes.LANES):
            pixels_float32(out + 12 * x, values + 4 * x, stride)
    elif form == FLOAT16:
        for x in range(0, count, lanes.LANES):
            pixels_float16(out + 6 * x, values + 4 * x, stride)
    else:
        for x in range(0, count, lanes.LANES):
            pixels_bfloat16(out + 6 * x, values + 4 * x, stride)


@kernel("void(int64, int64, int64, int64, int64, int64, int64, int64)")
def store_row(
    values: int, count: int, width: int, form: int, first: int, out: int, plane: int, spare: int
) -> None:
    """Store the first `width` pixels of float32[3, count]; `count` is `width` rounded up to 16.

    `out` is where the row begins: as pixels, or, with `first`, as red, with green and blue
    `plane` and 2 * `plane` bytes behind. 12 * count bytes at `spare` are used.
    """
    item = item_bytes(form)
    if not first:
        _interleave(values, count, form, out if count == width else spare)
        if count != width:
            memcpy(out, spare, 3 * width * item)
        return
    for channel in range(3):
        line = out + channel * plane
        _convert(values + 4 * count * channel, count, form, line if count == width else spare)
        if count != width:
            memcpy(line, spare, width * item)
