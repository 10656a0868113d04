"""Kernels that call libjpeg-turbo: from the bytes of a JPEG to the samples that its crops need.

Two ways lead there. `decode_planes` takes the functions of every version since 2.0: it lets the
library end early, by a copy of the file whose header states no more rows than are needed, and
takes Y, Cb and Cr as they are. `decode_region` takes those of 3.x, which leave out what lies
left, right, above and below of a region.

Both let the library halve the picture where the crops are made much smaller anyway. The library's
own word on size and sampling, asked for first, decides what memory it gets. Each image has a handle
of its own, which costs a microsecond: a handle remembers the tables of the image before, and an
error in a header.
"""

from typing import Any

import numpy as np

from fieldslab.reader.decoders.decoder import Status
from fieldslab.reader.decoders.frames import ACROSS, DOWN, HEIGHT, HEIGHT_AT, PLAIN, WIDTH
from fieldslab.reader.pixels import finish as picture_of
from fieldslab.reader.pixels.finish import GREY, KIND, LEFT, PLANE, RGB, SHRINK, STRIDE, TOP, YCC
from fieldslab.reader.pixels.lanes import load_i32, store_i32, store_i64, store_u16
from fieldslab.schemas.jit import foreign, kernel, load_u8, memcpy

PLANES_CALLS = (
    "tjInitDecompress",
    "tjDestroy",
    "tjGetErrorCode",
    "tjGetErrorStr2",
    "tjDecompressHeader3",
    "tjDecompressToYUVPlanes",
)
REGION_CALLS = (
    "tj3Init",
    "tj3Destroy",
    "tj3GetErrorCode",
    "tj3GetErrorStr",
    "tj3DecompressHeader",
    "tj3Set",
    "tj3Get",
    "tj3SetScalingFactor",
    "tj3SetCroppingRegion",
    "tj3Decompress8",
)
"""What each way calls."""
INIT, DESTROY, CODE, TEXT, HEADER, PLANES = range(6)
SET, GET, SCALE, CROP, DECOMPRESS = range(5, 10)
"""Where it stands among the addresses."""

NO_MEMORY = -1
"""Returned where the library had no memory for a handle."""

TOP_ROW, BOTTOM_ROW, LEFT_COLUMN, RIGHT_COLUMN = range(4)
"""What stands in a region: the pixels that crops need, from inclusive to exclusive."""

_OK, _UNSUPPORTED = int(Status.OK), int(Status.UNSUPPORTED)
_TRUNCATED, _DAMAGED = int(Status.TRUNCATED), int(Status.DAMAGED)

_init = foreign("int64(int32)")  # tjInitDecompress takes nothing, and does not see the argument
_destroy = foreign("void(int64)")
_header3 = foreign("int32(int64, int64, uint64, int64, int64, int64, int64)")
_planes = foreign("int32(int64, int64, uint64, int64, int32, int64, int32, int32)")
_code = foreign("int32(int64)")
_text = foreign("int64(int64)")
_header = foreign("int32(int64, int64, uint64)")
_set = foreign("int32(int64, int32, int32)")
_get = foreign("int32(int64, int32)")
_scale = foreign("int32(int64, int64)")
_crop = foreign("int32(int64, int64, int64)")
_decompress = foreign("int32(int64, int64, uint64, int64, int32, int32)")

_DECOMPRESS = 1  # TJINIT_*
_FLAGS = 8192 | 32768  # TJFLAG_STOPONWARNING, TJFLAG_LIMITSCANS
_STOP_ON_WARNING, _SCAN_LIMIT = 0, 13  # TJPARAM_*
_SUBSAMPLING, _WIDE, _HIGH, _COLOURS = 4, 5, 6, 8
_YCBCR, _GREY = 1, 2  # TJCS_*
_PIXELS_RGB, _PIXELS_GREY = 0, 6  # TJPF_*
_SAMPLINGS = np.array([[0, 0], [1, 0], [1, 1], [0, 0], [0, 1]])
"""log2 of how often chroma is subsampled, along a row and a column, by TJSAMP_*."""

_EXTRANEOUS = np.frombuffer(b"extraneous", np.uint8)
_PREMATURE = np.frombuffer(b"Premature end", np.uint8)
_MOST_SCANS = 500
"""What TJFLAG_LIMITSCANS means: more of them are an attack."""
_ALIGN = 64
_SPARE = 256
"""Bytes for what the library is told and tells: four int32, three int64, three int32."""


@kernel("boolean(int64, Array(uint8, 1, 'C', readonly=True))")
def _says(text: int, words: Any) -> bool:
    """Whether a C string holds these bytes."""
    at = text
    while load_u8(at) != 0:
        for i in range(words.size):
            if load_u8(at + i) != words[i]:
                break
            if i == words.size - 1:
                return True
        at += 1
    return False


@kernel("int64(int64[::1], int64, int64)")
def _failure(functions: Any, handle: int, plain: int) -> int:
    """Return what the last failure means, by the library's first warning or error.

    Bytes behind the picture are no fault of it: where the scan is `plain`, nothing but that can
    be behind this warning, and every row was decoded. Otherwise the next decoder is asked.
    """
    text = _text(functions[TEXT], (handle,))
    if _code(functions[CODE], (handle,)) == 0 and _says(text, _EXTRANEOUS):
        return _OK if plain else _UNSUPPORTED
    return _TRUNCATED if _says(text, _PREMATURE) else _DAMAGED


@kernel("int64(int64[::1], int64)")
def _header_failure(functions: Any, handle: int) -> int:
    """Return what a failure to read the header means: a warning is for others to judge."""
    return _UNSUPPORTED if _code(functions[CODE], (handle,)) == 0 else _DAMAGED


@kernel("int64(int64, int64)")
def _up(value: int, bits: int) -> int:
    """Return value / 2**bits, rounded up."""
    return (value + (1 << bits) - 1) >> bits


@kernel("int64(int64)")
def _aligned(value: int) -> int:
    return (value + _ALIGN - 1) // _ALIGN * _ALIGN


@kernel("int64(int64[::1], int64[::1])")
def _rows_needed(frame: Any, region: Any) -> int:
    """Return the height to state: whole rows of MCUs where the library can end early.

    The row below the region is among them, for the sake of its chroma.
    """
    if not frame[PLAIN]:
        return frame[HEIGHT]
    rows = (region[BOTTOM_ROW] + 1 + frame[DOWN] - 1) // frame[DOWN] * frame[DOWN]
    return min(rows, frame[HEIGHT])


@kernel("int64(int64, int64[::1], int64[::1], int64)")
def planes_bytes(length: int, frame: Any, region: Any, shrink: int) -> int:
    """Return the scratch memory that `decode_planes` needs: a copy, and planes of any sampling."""
    rows = _up(_rows_needed(frame, region), shrink) + 1
    return _SPARE + length + 3 * rows * _aligned(_up(frame[WIDTH], shrink) + 3) + 5 * _ALIGN


@kernel("int64(int64[::1], int64, int64, int64, int64[::1], int64[::1], int64, int64[::1], int64)")
def _to_planes(
    functions: Any,
    handle: int,
    data: int,
    length: int,
    frame: Any,
    region: Any,
    shrink: int,
    picture: Any,
    scratch: int,
) -> int:
    """`decode_planes` with a handle."""
    told = scratch
    pointers = scratch + 64
    strides = scratch + 128
    free = scratch + _SPARE
    rows = _rows_needed(frame, region)
    if rows != frame[HEIGHT]:
        memcpy(free, data, length)
        data = free
        store_u16(data + frame[HEIGHT_AT], (rows & 0xFF) << 8 | rows >> 8)
        free = _aligned(free + length)
    if _header3(functions[HEADER], (handle, data, length, told, told + 4, told + 8, told + 12)):
        return _header_failure(functions, handle)
    sampling = load_i32(told + 8)
    colours = load_i32(told + 12)
    if load_i32(told) != frame[WIDTH] or load_i32(told + 4) != rows:
        return _DAMAGED
    if sampling < 0 or sampling >= len(_SAMPLINGS) or (colours != _YCBCR and colours != _GREY):
        return _UNSUPPORTED
    across = _SAMPLINGS[sampling, 0]
    down = _SAMPLINGS[sampling, 1]
    width = _up(frame[WIDTH], shrink)
    height = _up(rows, shrink)
    stride = _aligned(_up(width, across) << across)
    chroma_stride = _aligned(_up(width, across))
    cb = free + stride * (_up(height, down) << down)
    cr = cb + chroma_stride * _up(height, down)
    for i in range(3):
        store_i64(pointers + 8 * i, (free, cb, cr)[i])
        store_i32(strides + 4 * i, stride if i == 0 else chroma_stride)
    if _planes(functions[PLANES], (handle, data, length, pointers, width, strides, height, _FLAGS)):
        status = _failure(functions, handle, frame[PLAIN])
        if status != _OK:
            return status
    picture[KIND] = GREY if colours == _GREY else YCC
    picture[PLANE] = free
    picture[STRIDE] = stride
    picture[picture_of.CB] = cb
    picture[picture_of.CR] = cr
    picture[picture_of.CHROMA_STRIDE] = chroma_stride
    picture[picture_of.ACROSS] = across
    picture[picture_of.DOWN] = down
    picture[TOP] = 0
    picture[LEFT] = 0
    picture[SHRINK] = shrink
    picture[picture_of.HEIGHT] = rows
    picture[picture_of.WIDTH] = frame[WIDTH]
    return _OK


@kernel("int64(int64[::1], int64, int64, int64[::1], int64[::1], int64, int64[::1], int64)")
def decode_planes(
    functions: Any,
    data: int,
    length: int,
    frame: Any,
    region: Any,
    shrink: int,
    picture: Any,
    scratch: int,
) -> int:
    """Decode the rows of a region, from the first on, into planes in scratch memory.

    Parameters
    ----------
    functions
        Addresses of `PLANES_CALLS`.
    data, length, frame
        The image and its frame, as `read_frame` gave it.
    region, shrink
        What is needed, and log2 of how much smaller it may be made.
    picture
        Becomes what `finish` wants to know.
    scratch
        Address of `planes_bytes` of memory, a multiple of 64.

    Returns
    -------
    A `Status`, or NO_MEMORY.
    """
    handle = _init(functions[INIT], (_DECOMPRESS,))
    if handle == 0:
        return NO_MEMORY
    status = _to_planes(functions, handle, data, length, frame, region, shrink, picture, scratch)
    _destroy(functions[DESTROY], (handle,))
    return status


@kernel("int64(int64[::1], int64[::1], int64)")
def region_bytes(frame: Any, region: Any, shrink: int) -> int:
    """Return the scratch memory that `decode_region` needs."""
    rows = _up(region[BOTTOM_ROW], shrink) - (region[TOP_ROW] >> shrink)
    columns = _up(region[RIGHT_COLUMN], shrink) - (region[LEFT_COLUMN] >> shrink)
    return rows * _aligned(3 * (columns + 2 + frame[ACROSS])) + _ALIGN


@kernel("int64(int64[::1], int64, int64, int64, int64[::1], int64[::1], int64, int64[::1], int64)")
def _to_region(
    functions: Any,
    handle: int,
    data: int,
    length: int,
    frame: Any,
    region: Any,
    shrink: int,
    picture: Any,
    scratch: int,
) -> int:
    """`decode_region` with a handle."""
    _set(functions[SET], (handle, _STOP_ON_WARNING, 1))
    _set(functions[SET], (handle, _SCAN_LIMIT, _MOST_SCANS))
    if _header(functions[HEADER], (handle, data, length)):
        return _header_failure(functions, handle)
    sampling = _get(functions[GET], (handle, _SUBSAMPLING))
    colours = _get(functions[GET], (handle, _COLOURS))
    wide = _get(functions[GET], (handle, _WIDE))
    high = _get(functions[GET], (handle, _HIGH))
    if wide != frame[WIDTH] or high != frame[HEIGHT]:
        return _DAMAGED
    if sampling < 0 or sampling >= len(_SAMPLINGS) or (colours != _YCBCR and colours != _GREY):
        return _UNSUPPORTED
    # One column more on either side: where chroma is blown up, it is smoothed across.
    width = _up(frame[WIDTH], shrink)
    step = max(frame[ACROSS] >> shrink, 1)
    left = max((region[LEFT_COLUMN] >> shrink) - 1, 0) // step * step
    right = min(_up(region[RIGHT_COLUMN], shrink) + 1, width)
    top = region[TOP_ROW] >> shrink
    bottom = _up(region[BOTTOM_ROW], shrink)
    if _scale(functions[SCALE], (handle, 1 | 1 << (32 + shrink))):
        return _UNSUPPORTED
    corner = left | top << 32
    extent = right - left | bottom - top << 32
    if _crop(functions[CROP], (handle, corner, extent)):
        return _UNSUPPORTED
    pixel = 1 if colours == _GREY else 3
    stride = _aligned(pixel * (right - left))
    form = _PIXELS_GREY if colours == _GREY else _PIXELS_RGB
    if _decompress(functions[DECOMPRESS], (handle, data, length, scratch, stride, form)):
        status = _failure(functions, handle, frame[PLAIN])
        if status != _OK:
            return status
    picture[KIND] = GREY if colours == _GREY else RGB
    picture[PLANE] = scratch
    picture[STRIDE] = stride
    picture[TOP] = top << shrink
    picture[LEFT] = left << shrink
    picture[SHRINK] = shrink
    return _OK


@kernel("int64(int64[::1], int64, int64, int64[::1], int64[::1], int64, int64[::1], int64)")
def decode_region(
    functions: Any,
    data: int,
    length: int,
    frame: Any,
    region: Any,
    shrink: int,
    picture: Any,
    scratch: int,
) -> int:
    """Decode a region alone into red, green and blue in scratch memory: `region_bytes`.

    `functions` are addresses of `REGION_CALLS`; all else as in `decode_planes`.
    """
    handle = _init(functions[INIT], (_DECOMPRESS,))
    if handle == 0:
        return NO_MEMORY
    status = _to_region(functions, handle, data, length, frame, region, shrink, picture, scratch)
    _destroy(functions[DESTROY], (handle,))
    return status
