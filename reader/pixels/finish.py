"""From decoded samples of a region to a view in the batch: crop, resize, colours, numbers.

Decoders call `write_view` from their kernels, once for each view, when the samples of the region
that the view needs lie in memory. Chroma is resized from its own size and colours are converted at
the output's: subsampled planes are never blown up first, but weighed as if they had been.
"""

from typing import Any, NamedTuple

import numpy as np

from fieldslab.reader.pixels.lanes import convert_rgb, convert_ycc, load_i32
from fieldslab.reader.pixels.resize import (
    PLANE,
    Plane,
    Ring,
    count_scratch_bytes,
    fill_ring,
    resize_down,
)
from fieldslab.reader.pixels.store import (
    FLOAT32,
    OUTPUT,
    UINT8,
    ViewOutput,
    count_view_bytes,
    get_item_bytes,
    store_row,
    store_words,
)
from fieldslab.reader.pixels.taps import (
    count_most_taps,
    count_table_bytes,
    find_sample_range,
    find_taps,
)
from fieldslab.schemas.jit import (
    make_record_maker,
    make_record_type,
    make_tuple_type,
    subkernel,
    types,
)

GREY, YCC, RGB = range(3)
"""What samples may be: one plane; planes of full-range BT.601 Y, Cb, Cr; interleaved red, green
and blue."""

PICTURE = np.dtype(
    [
        ("kind", np.int64),
        ("planes", np.int64, 3),
        ("stride", np.int64),
        ("chroma_stride", np.int64),
        ("across", np.int64),
        ("down", np.int64),
        ("top", np.int64),
        ("left", np.int64),
        ("shrink", np.int64),
        ("chroma_shrink", np.int64),
        ("height", np.int64),
        ("width", np.int64),
    ],
    align=True,
)
"""Decoded samples of a region, and where they lie:

    kind           GREY, YCC or RGB
    planes         address of the luma plane or of the pixels; addresses of Cb and Cr
    stride         bytes from row to row of the first plane
    chroma_stride  bytes from row to row of Cb and of Cr
    across, down   log2 of how often chroma is subsampled along a row and along a column: 0 or 1
    top, left      where in the picture the planes begin, in pixels of the picture: their first
                   sample is (top >> shrink, left >> shrink), that of chroma (top >> chroma_shrink
                   + down, left >> chroma_shrink + across)
    shrink, chroma_shrink
                   log2 of how many samples, of a row or column of the picture at its full size,
                   one stored sample stands for; usually 0
    height, width  how far the planes reach from there, in pixels of the picture; 0 if no further
                   than the box. Subsampled chroma beside the box has a part in its outermost
                   pixels: what lies within these is read.
"""
Picture = make_record_type(PICTURE)
new_picture = make_record_maker(PICTURE)


class Box(NamedTuple):
    """A part of a picture, in its pixels: each an int64."""

    top: Any
    left: Any
    height: Any
    width: Any


BOX = make_tuple_type(Box, types.int64, types.int64, types.int64, types.int64)

_ALIGN = 64


@subkernel("int64(int64, int64)")
def _count_ring_rows(height: int, out_height: int) -> int:
    """Return the rows of a ring: a power of two that holds a window and a block."""
    rows = 32
    while rows < count_most_taps(np.float64(height), out_height) + 16:
        rows *= 2
    return rows


@subkernel("int64(int64, int64, int64, int64)")
def count_work_bytes(height: int, width: int, out_height: int, out_width: int) -> int:
    """Return the scratch memory that `write_view` needs for a box and an output, of any kind."""
    count = (out_width + 15) // 16 * 16
    tables = count_table_bytes(out_width, count_most_taps(np.float64(width), out_width))
    tables += count_table_bytes(out_height, count_most_taps(np.float64(height), out_height))
    rings = 3 * _count_ring_rows(height, out_height) * 2 * count
    lines = (3 * 2 + 3 * 4 + 3 * 4) * count
    return 2 * tables + rings + lines + count_scratch_bytes(3 * width, 2 * count) + 4 * _ALIGN


@subkernel(types.int64(types.int32[:, ::1], OUTPUT))
def count_most_work_bytes(boxes: Any, output: ViewOutput) -> int:
    """Return the scratch memory that is enough for any of these boxes."""
    most: Any = np.int64(0)
    for view in range(len(boxes)):
        size = count_work_bytes(boxes[view, 2], boxes[view, 3], output.height, output.width)
        most = max(most, size)
    return most


@subkernel("void(int64, int64, int64, int64, int64, int64)")
def _convert_colours(
    kind: int, words: int, count: int, numbers: int, values: int, stride: int
) -> None:
    """Turn a row of words of each plane into three of float32[count], `stride` bytes apart."""
    second = words + 2 * count
    third = words + 4 * count
    if kind == YCC:
        for x in range(0, count, 16):
            offset = 2 * x
            convert_ycc(
                values + 4 * x, stride, numbers, words + offset, second + offset, third + offset
            )
        return
    if kind == GREY:
        second = words
        third = words
    for x in range(0, count, 16):
        offset = 2 * x
        convert_rgb(
            values + 4 * x, stride, numbers, words + offset, second + offset, third + offset
        )


@subkernel(types.void(Picture, types.int64, BOX, Plane))
def _locate_samples(picture: Any, number: int, box: Box, plane: Any) -> None:
    """Find which samples of a plane have a part in a box."""
    shrink = picture.chroma_shrink if number else picture.shrink
    across = picture.across if number else 0
    below = picture.down if number else 0
    row, rows = find_sample_range(box.top, box.height, shrink, below, picture.top, picture.height)
    column, columns = find_sample_range(
        box.left, box.width, shrink, across, picture.left, picture.width
    )
    plane.samples = 3 if picture.kind == RGB else 1
    plane.stride = picture.chroma_stride if number else picture.stride
    plane.address = picture.planes[number]
    plane.address += (row - (picture.top >> shrink + below)) * plane.stride
    plane.address += (column - (picture.left >> shrink + across)) * plane.samples
    plane.first_row, plane.rows = row, rows
    plane.first_column, plane.columns = column, columns
    plane.ready = 0


@subkernel(types.void(Picture, BOX, types.int64, OUTPUT, types.int64, types.int64))
def write_view(picture: Any, box: Box, flip: int, output: ViewOutput, view: int, work: int) -> None:
    """Write one view.

    The filter is Pillow's antialiased bilinear: for RGB the result differs by at most one grey
    level from `crop(box).resize(size, BILINEAR)`. Values for a float form are not rounded to
    whole grey levels first. Nothing but the samples under the box is read, rows `top >> shrink` up
    to (top + height) >> shrink, rounded up, and so on; of subsampled chroma also one sample around
    it, if the picture reaches there. Nothing but the view is written.

    Parameters
    ----------
    picture
        What the samples are and where they lie: a record of PICTURE.
    box
        Inside what the planes hold, and not empty.
    flip
        1 to swap left and right.
    output, view
        Where views go, and which of them this is.
    work
        Address of `count_work_bytes(box.height, box.width, output.height, output.width)` bytes of
        scratch memory, which one thread uses at a time.
    """
    planes_count = 3 if picture.kind == YCC else 1
    out_height, out_width = output.height, output.width
    count = (out_width + 15) // 16 * 16
    row_bytes = 2 * count
    ring_rows = _count_ring_rows(box.height, out_height)
    x_bytes = count_table_bytes(out_width, count_most_taps(np.float64(box.width), out_width))
    y_bytes = count_table_bytes(out_height, count_most_taps(np.float64(box.height), out_height))
    tables = (work + _ALIGN - 1) // _ALIGN * _ALIGN
    rings = tables + 2 * (x_bytes + y_bytes)
    words = rings + 3 * ring_rows * row_bytes
    values = words + 3 * row_bytes
    spare = values + 12 * count
    scratch = spare + 12 * count

    planes = np.empty(3, PLANE)
    for number in range(planes_count):
        plane = planes[number]
        _locate_samples(picture, number, box, plane)
        chroma = min(number, 1)
        shrink = picture.chroma_shrink if chroma else picture.shrink
        plane.x_table = tables + chroma * x_bytes
        plane.y_table = tables + 2 * x_bytes + chroma * y_bytes
        if number == 2:
            plane.x_taps = planes[1].x_taps
            plane.y_taps = planes[1].y_taps
            continue
        plane.x_taps = find_taps(
            np.float64(box.left),
            np.float64(box.left + box.width),
            out_width,
            flip,
            chroma * picture.across,
            shrink,
            plane.first_column,
            plane.columns,
            plane.x_table,
        )
        plane.y_taps = find_taps(
            np.float64(box.top),
            np.float64(box.top + box.height),
            out_height,
            0,
            chroma * picture.down,
            shrink,
            plane.first_row,
            plane.rows,
            plane.y_table,
        )

    factors = np.empty(6, np.float32)
    for channel in range(3):
        factors[channel] = 1.0 if output.form == UINT8 else output.scale[channel]
        factors[3 + channel] = 0.5 if output.form == UINT8 else output.bias[channel]
    address = output.address + view * count_view_bytes(output)
    pixel_bytes = get_item_bytes(output.form)
    plane_bytes = out_height * out_width * pixel_bytes
    line_bytes = out_width * pixel_bytes * (1 if output.channels_first else 3)
    in_place = output.form == FLOAT32 and output.channels_first and count == out_width
    for line in range(out_height):
        for number in range(planes_count):
            plane = planes[number]
            ring = rings + number * ring_rows * row_bytes
            taps = plane.y_taps
            row = load_i32(plane.y_table + 4 * line)
            needed = min(row + taps, plane.rows)
            if plane.ready < needed:
                fill_ring(plane, Ring(ring, ring_rows, row_bytes, out_width), needed, scratch)
            weights = plane.y_table + 4 * out_height + 2 * taps * line
            for sample in range(plane.samples):
                sample_ring = ring + sample * ring_rows * row_bytes
                target = words + (number + sample) * row_bytes
                resize_down(
                    Ring(sample_ring, ring_rows, row_bytes, out_width),
                    row,
                    weights,
                    taps,
                    target,
                    spare,
                )
        target = address + line * line_bytes
        if output.form == UINT8 and picture.kind != YCC:
            next_plane = 0 if picture.kind == GREY else row_bytes
            store_words(words, next_plane, count, output, target, spare)
        elif in_place:
            _convert_colours(picture.kind, words, count, factors.ctypes.data, target, plane_bytes)
        else:
            _convert_colours(picture.kind, words, count, factors.ctypes.data, values, 4 * count)
            store_row(values, count, output, target, spare)
