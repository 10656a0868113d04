"""From decoded samples of a region to a view in the batch: crop, resize, colours, numbers.

Decoders call `finish` from their kernels, once for each view, when the samples of the region that
the view needs lie in memory. Chroma is resized from its own size and colours are converted at the
output's: subsampled planes are never blown up first, but weighed as if they had been.
"""

import numpy as np

from fieldslab.reader.pixels.lanes import from_rgb, from_ycc, load_i32
from fieldslab.reader.pixels.resize import down, scratch_bytes, supply
from fieldslab.reader.pixels.store import FLOAT32, UINT8, item_bytes, store_row
from fieldslab.reader.pixels.taps import find_taps, most_taps, reach, table_bytes
from fieldslab.schemas.jit import kernel

GREY, YCC, RGB = range(3)
"""What samples may be: one plane; planes of full-range BT.601 Y, Cb, Cr; interleaved red, green
and blue."""

KIND, PLANE, STRIDE, CB, CR, CHROMA_STRIDE, ACROSS, DOWN, TOP, LEFT, SHRINK, HEIGHT, WIDTH = range(
    13
)
"""What stands where in a `picture`, int64[PICTURE]:

    KIND           GREY, YCC or RGB
    PLANE, STRIDE  address of the luma plane or of the pixels, and bytes from row to row
    CB, CR         addresses of the chroma planes
    CHROMA_STRIDE  bytes from row to row of both
    ACROSS, DOWN   log2 of how often chroma is subsampled along a row and along a column: 0 or 1
    TOP, LEFT      where in the picture the planes begin, in pixels of the picture: their first
                   sample is (TOP >> SHRINK, LEFT >> SHRINK), that of chroma (TOP >> SHRINK + DOWN,
                   LEFT >> SHRINK + ACROSS)
    SHRINK         log2 of how many pixels of the picture one sample of luma stands for; usually 0
    HEIGHT, WIDTH  how far the planes reach from there, in pixels of the picture; 0 if no further
                   than the box. Subsampled chroma beside the box has a part in its outermost
                   pixels: what lies within these is read.
"""
PICTURE = 13
"""Numbers in a picture."""

SOURCE, PITCH, ROW, ROWS, COLUMN, COLUMNS, X_TABLE, X_TAPS, Y_TABLE, Y_TAPS, READY = range(11)
"""What `finish` notes of each plane: address of the first sample that may be read, bytes from row
to row, which row and column that is and how many there are, the taps of both axes, and how many
rows are in the ring."""
PLAN = 11

_ALIGN = 64


@kernel("int64(int64, int64)")
def _ring_rows(height: int, out_height: int) -> int:
    """Return the rows of a ring: a power of two that holds a window and a block."""
    rows = 32
    while rows < most_taps(np.float64(height), out_height) + 16:
        rows *= 2
    return rows


@kernel("int64(int64, int64, int64, int64)")
def work_bytes(height: int, width: int, out_height: int, out_width: int) -> int:
    """Return the scratch memory that `finish` needs for a box and an output, of any kind."""
    count = (out_width + 15) // 16 * 16
    tables = table_bytes(out_width, most_taps(np.float64(width), out_width))
    tables += table_bytes(out_height, most_taps(np.float64(height), out_height))
    rings = 3 * _ring_rows(height, out_height) * 2 * count
    lines = (3 * 2 + 3 * 4 + 3 * 4) * count
    return 2 * tables + rings + lines + scratch_bytes(3 * width, 2 * count) + 4 * _ALIGN


@kernel("void(int64, int64, int64, int64, int64, int64)")
def _colours(kind: int, words: int, count: int, numbers: int, values: int, stride: int) -> None:
    """Turn a row of words of each plane into three of float32[count], `stride` bytes apart."""
    second = words + 2 * count
    third = words + 4 * count
    if kind == YCC:
        for x in range(0, count, 16):
            at = 2 * x
            from_ycc(values + 4 * x, stride, numbers, words + at, second + at, third + at)
        return
    if kind == GREY:
        second = words
        third = words
    for x in range(0, count, 16):
        at = 2 * x
        from_rgb(values + 4 * x, stride, numbers, words + at, second + at, third + at)


@kernel("void(int64[::1], int64, int64, int64, int64, int64, int64[::1])")
def _aim(
    picture: np.ndarray, plane: int, top: int, left: int, height: int, width: int, plan: np.ndarray
) -> None:
    """Find what of a plane may be read: fill in SOURCE to LENGTH of its plan."""
    shrink = picture[SHRINK]
    right = picture[ACROSS] if plane else 0
    below = picture[DOWN] if plane else 0
    samples = 3 if picture[KIND] == RGB else 1
    row, rows = reach(top, height, shrink, below, picture[TOP], picture[HEIGHT])
    column, columns = reach(left, width, shrink, right, picture[LEFT], picture[WIDTH])
    pitch = picture[CHROMA_STRIDE] if plane else picture[STRIDE]
    source = picture[CB + plane - 1] if plane else picture[PLANE]
    source += (row - (picture[TOP] >> shrink + below)) * pitch
    source += (column - (picture[LEFT] >> shrink + right)) * samples
    plan[SOURCE] = source
    plan[PITCH] = pitch
    plan[ROW] = row
    plan[ROWS] = rows
    plan[COLUMN] = column
    plan[COLUMNS] = columns


@kernel(
    "void(int64[::1], int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, "
    "float32[::1], float32[::1], int64)"
)
def finish(
    picture: np.ndarray,
    top: int,
    left: int,
    height: int,
    width: int,
    flip: int,
    out: int,
    out_height: int,
    out_width: int,
    form: int,
    channels_first: int,
    scale: np.ndarray,
    bias: np.ndarray,
    work: int,
) -> None:
    """Write one view.

    The filter is Pillow's antialiased bilinear: for RGB the result differs by at most one grey
    level from `crop(box).resize(size, BILINEAR)`. Values for a float form are not rounded to
    whole grey levels first. Nothing but the samples under the box is read, rows `top >> SHRINK` up
    to (top + height) >> SHRINK, rounded up, and so on; of subsampled chroma also one sample around
    it, if HEIGHT and WIDTH say that it is there. Nothing but the view is written.

    Parameters
    ----------
    picture
        What the samples are and where they lie: int64[PICTURE], see above.
    top, left, height, width
        The box, in pixels of the picture; inside what the planes hold, and not empty.
    flip
        1 to swap left and right.
    out
        Address of the view: (out_height, out_width, 3) or, with `channels_first`, (3, out_height,
        out_width) numbers.
    form
        UINT8, FLOAT32, FLOAT16 or BFLOAT16 of `reader.pixels.store`.
    scale, bias
        float32[3]: `scale * value + bias` is stored, of values in 0..255. UINT8 takes no heed of
        them and stores the nearest whole value.
    work
        Address of `work_bytes(height, width, out_height, out_width)` bytes of scratch memory,
        which one thread uses at a time.
    """
    kind = picture[KIND]
    planes = 3 if kind == YCC else 1
    samples = 3 if kind == RGB else 1
    count = (out_width + 15) // 16 * 16
    row_bytes = 2 * count
    ring_rows = _ring_rows(height, out_height)
    wide = table_bytes(out_width, most_taps(np.float64(width), out_width))
    tall = table_bytes(out_height, most_taps(np.float64(height), out_height))
    tables = (work + _ALIGN - 1) // _ALIGN * _ALIGN
    rings = tables + 2 * (wide + tall)
    words = rings + 3 * ring_rows * row_bytes
    values = words + 3 * row_bytes
    spare = values + 12 * count
    scratch = spare + 12 * count

    unit = 1.0 / (1 << picture[SHRINK])
    plans = np.empty((3, PLAN), np.int64)
    for p in range(planes):
        plan = plans[p]
        _aim(picture, p, top, left, height, width, plan)
        chroma = min(p, 1)
        plan[X_TABLE] = tables + chroma * wide
        plan[Y_TABLE] = tables + 2 * wide + chroma * tall
        plan[READY] = 0
        if p == 2:
            plan[X_TAPS] = plans[1, X_TAPS]
            plan[Y_TAPS] = plans[1, Y_TAPS]
            continue
        plan[X_TAPS] = find_taps(
            left * unit,
            (left + width) * unit,
            out_width,
            flip,
            chroma * picture[ACROSS],
            plan[COLUMN],
            plan[COLUMNS],
            plan[X_TABLE],
        )
        plan[Y_TAPS] = find_taps(
            top * unit,
            (top + height) * unit,
            out_height,
            0,
            chroma * picture[DOWN],
            plan[ROW],
            plan[ROWS],
            plan[Y_TABLE],
        )

    numbers = np.empty(6, np.float32)
    for i in range(3):
        numbers[i] = 1.0 if form == UINT8 else scale[i]
        numbers[3 + i] = 0.5 if form == UINT8 else bias[i]
    item = item_bytes(form)
    plane_bytes = out_height * out_width * item
    in_place = form == FLOAT32 and channels_first and count == out_width
    for line in range(out_height):
        for p in range(planes):
            plan = plans[p]
            ring = rings + p * ring_rows * row_bytes
            taps = plan[Y_TAPS]
            row = load_i32(plan[Y_TABLE] + 4 * line)
            needed = min(row + taps, plan[ROWS])
            if plan[READY] < needed:
                plan[READY] = supply(
                    plan[SOURCE],
                    plan[PITCH],
                    plan[ROWS],
                    samples * plan[COLUMNS],
                    samples,
                    plan[READY],
                    needed,
                    plan[X_TABLE],
                    plan[X_TAPS],
                    out_width,
                    ring,
                    ring_rows - 1,
                    row_bytes,
                    scratch,
                )
            weights = plan[Y_TABLE] + 4 * out_height + 2 * taps * line
            for channel in range(samples):
                at = ring + channel * ring_rows * row_bytes
                to = words + (p + channel) * row_bytes
                down(at, ring_rows - 1, row_bytes, row, weights, taps, to, spare)
        at = out + line * out_width * item * (1 if channels_first else 3)
        if in_place:
            _colours(kind, words, count, numbers.ctypes.data, at, plane_bytes)
        else:
            _colours(kind, words, count, numbers.ctypes.data, values, 4 * count)
            store_row(values, count, out_width, form, channels_first, at, plane_bytes, spare)
