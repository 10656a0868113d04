"""The last step: a row of float32 red, green and blue becomes numbers of the batch."""

from typing import NamedTuple

import numpy as np

from fieldslab.reader.pixels import lanes
from fieldslab.reader.pixels.lanes import (
    store_pixels_bfloat16,
    store_pixels_float16,
    store_pixels_float32,
    store_pixels_uint8,
    store_pixels_words,
    store_plane_bfloat16,
    store_plane_float16,
    store_plane_float32,
    store_plane_uint8,
    store_plane_words,
)
from fieldslab.schemas.jit import make_tuple_type, memcpy, subkernel, types
from fieldslab.schemas.mapping import get_address

UINT8, FLOAT32, FLOAT16, BFLOAT16 = range(4)
"""The forms that numbers may be stored in."""

_FORMS = {"uint8": UINT8, "float32": FLOAT32, "float16": FLOAT16, "uint16": BFLOAT16}


class ViewOutput(NamedTuple):
    """Where views of a batch go, for kernels.

    Attributes
    ----------
    address
        Of the first view; the others follow.
    height, width
        Pixels of each view.
    form
        UINT8, FLOAT32, FLOAT16 or BFLOAT16.
    channels_first
        Whether a view is (3, height, width) rather than (height, width, 3).
    scale, bias
        float32[3]: `scale * value + bias` is stored, of values in 0..255. UINT8 ignores them and
        stores the nearest whole value.
    """

    address: int
    height: int
    width: int
    form: int
    channels_first: bool
    scale: np.ndarray
    bias: np.ndarray


OUTPUT = make_tuple_type(
    ViewOutput,
    types.int64,
    types.int64,
    types.int64,
    types.int64,
    types.boolean,
    types.float32[::1],
    types.float32[::1],
)


def describe_output(
    out: np.ndarray, channels_first: bool, scale: np.ndarray, bias: np.ndarray
) -> ViewOutput:
    """Describe an array of views to kernels, which keep no reference to it.

    `out` is C-contiguous (..., height, width, 3), or (..., 3, height, width) with
    `channels_first`; its dtype is the form, where uint16 holds bfloat16.
    """
    height, width = out.shape[-2:] if channels_first else out.shape[-3:-1]
    form = _FORMS[out.dtype.name]
    return ViewOutput(get_address(out), height, width, form, bool(channels_first), scale, bias)


@subkernel("int64(int64)")
def get_item_bytes(form: int) -> int:
    """Return the bytes of one number."""
    if form == UINT8:
        return 1
    return 4 if form == FLOAT32 else 2


@subkernel("void(int64, int64, int64, int64)")
def _convert_plane(values: int, count: int, form: int, out: int) -> None:
    """Convert float32[count], a multiple of 16."""
    if form == UINT8:
        for x in range(0, count, lanes.LANES):
            store_plane_uint8(out + x, values + 4 * x)
    elif form == FLOAT32:
        for x in range(0, count, lanes.LANES):
            store_plane_float32(out + 4 * x, values + 4 * x)
    elif form == FLOAT16:
        for x in range(0, count, lanes.LANES):
            store_plane_float16(out + 2 * x, values + 4 * x)
    else:
        for x in range(0, count, lanes.LANES):
            store_plane_bfloat16(out + 2 * x, values + 4 * x)


@subkernel("void(int64, int64, int64, int64)")
def _convert_pixels(values: int, count: int, form: int, out: int) -> None:
    """Interleave and convert float32[3, count], a multiple of 16."""
    stride = 4 * count
    if form == UINT8:
        for x in range(0, count, lanes.LANES):
            store_pixels_uint8(out + 3 * x, values + 4 * x, stride)
    elif form == FLOAT32:
        for x in range(0, count, lanes.LANES):
            store_pixels_float32(out + 12 * x, values + 4 * x, stride)
    elif form == FLOAT16:
        for x in range(0, count, lanes.LANES):
            store_pixels_float16(out + 6 * x, values + 4 * x, stride)
    else:
        for x in range(0, count, lanes.LANES):
            store_pixels_bfloat16(out + 6 * x, values + 4 * x, stride)


@subkernel(types.int64(OUTPUT))
def count_view_bytes(output: ViewOutput) -> int:
    """Return the bytes of one view."""
    return 3 * output.height * output.width * get_item_bytes(output.form)


@subkernel(types.void(types.int64, types.int64, OUTPUT, types.int64, types.int64))
def store_row(values: int, count: int, output: ViewOutput, row: int, spare: int) -> None:
    """Store the first `output.width` pixels of float32[3, count]: that width rounded up to 16.

    `row` is the address where the row begins: as pixels or, with channels first, as red. 12 *
    count bytes at `spare` are used.
    """
    width, form = output.width, output.form
    item = get_item_bytes(form)
    if not output.channels_first:
        _convert_pixels(values, count, form, row if count == width else spare)
        if count != width:
            memcpy(row, spare, 3 * width * item)
        return
    for channel in range(3):
        target = row + channel * output.height * width * item
        _convert_plane(
            values + 4 * count * channel, count, form, target if count == width else spare
        )
        if count != width:
            memcpy(target, spare, width * item)


@subkernel(types.void(types.int64, types.int64, types.int64, OUTPUT, types.int64, types.int64))
def store_words(
    words: int, stride: int, count: int, output: ViewOutput, row: int, spare: int
) -> None:
    """Store pixels as uint8 like `store_row`, from three rows of words, `stride` bytes apart."""
    width = output.width
    target = row if count == width else spare
    if not output.channels_first:
        for x in range(0, count, lanes.LANES):
            store_pixels_words(target + 3 * x, words + 2 * x, stride)
        if count != width:
            memcpy(row, spare, 3 * width)
        return
    for channel in range(3):
        line = row + channel * output.height * width
        target = line if count == width else spare
        for x in range(0, count, lanes.LANES):
            store_plane_words(target + x, words + channel * stride + 2 * x)
        if count != width:
            memcpy(line, spare, width)
