"""Kernels that call libjpeg-turbo: from the bytes of a JPEG to the samples that its crops need.

Two ways lead there. `call_decode_planes` takes functions of every version since 2.0: it lets the
library end early, by a copy of the file whose header states no more rows than are needed, and
takes Y, Cb and Cr as they are. `call_decode_region` takes those of 3.x, which leave out what lies
left, right, above and below of a region.

Both let the library halve the picture where the crops are made much smaller anyway. The library's
own word on size and sampling, asked for first, decides what memory it gets. Each image has a handle
of its own, which costs a microsecond: a handle remembers the tables of the image before, and an
error in a header.
"""

from typing import Any, NamedTuple

import numpy as np

from fieldslab.reader.decoders.decoder import Status
from fieldslab.reader.pixels.finish import GREY, RGB, YCC, Picture
from fieldslab.reader.pixels.lanes import load_i32, store_i32, store_i64, store_u16
from fieldslab.schemas.codecs.jpeg import Frame
from fieldslab.schemas.jit import (
    load_u8,
    make_foreign_call,
    make_tuple_type,
    memcpy,
    subkernel,
    types,
)


class TurboFunctions(NamedTuple):
    """Addresses of the functions that a way calls; 0 for those that it does not."""

    init: int
    destroy: int
    error_code: int
    error_text: int
    header: int
    decompress: int
    set: int = 0
    get: int = 0
    scale: int = 0
    crop: int = 0


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
    "tj3Decompress8",
    "tj3Set",
    "tj3Get",
    "tj3SetScalingFactor",
    "tj3SetCroppingRegion",
)
"""What each way calls, in the order of `TurboFunctions`."""

NO_MEMORY = -1
"""Returned where the library had no memory for a handle."""


class Region(NamedTuple):
    """The pixels that crops need, and log2 of how much smaller they may be made: each an int64."""

    top: Any
    left: Any
    bottom: Any
    right: Any
    shrink: Any


CALLS = make_tuple_type(TurboFunctions, *[types.int64] * 10)
REGION = make_tuple_type(Region, *[types.int64] * 5)

_OK, _UNSUPPORTED = int(Status.OK), int(Status.UNSUPPORTED)
_TRUNCATED, _DAMAGED = int(Status.TRUNCATED), int(Status.DAMAGED)

_init = make_foreign_call(
    "int64(int32)"
)  # tjInitDecompress takes nothing, and does not see the argument
_destroy = make_foreign_call("void(int64)")
_header3 = make_foreign_call("int32(int64, int64, uint64, int64, int64, int64, int64)")
_planes = make_foreign_call("int32(int64, int64, uint64, int64, int32, int64, int32, int32)")
_code = make_foreign_call("int32(int64)")
_text = make_foreign_call("int64(int64)")
_header = make_foreign_call("int32(int64, int64, uint64)")
_set = make_foreign_call("int32(int64, int32, int32)")
_get = make_foreign_call("int32(int64, int32)")
_scale = make_foreign_call("int32(int64, int64)")
_crop = make_foreign_call("int32(int64, int64, int64)")
_decompress = make_foreign_call("int32(int64, int64, uint64, int64, int32, int32)")

_DECOMPRESS = 1  # TJINIT_*
_FLAGS = 8192 | 32768  # TJFLAG_STOPONWARNING, TJFLAG_LIMITSCANS
_STOP_ON_WARNING, _SCAN_LIMIT = 0, 13  # TJPARAM_*
_SUBSAMPLING, _WIDTH, _HEIGHT, _COLOURS = 4, 5, 6, 8
_YCBCR, _GREY = 1, 2  # TJCS_*
_PIXELS_RGB, _PIXELS_GREY = 0, 6  # TJPF_*
_SAMPLINGS = np.array([[0, 0], [1, 0], [1, 1], [0, 0], [0, 1]])
"""log2 of how often chroma is subsampled, along a row and a column, by TJSAMP_*."""

_EXTRANEOUS = np.frombuffer(b"extraneous", np.uint8)
_PREMATURE = np.frombuffer(b"Premature end", np.uint8)
_MAX_SCANS = 500
"""What TJFLAG_LIMITSCANS means: more of them are an attack."""
_ALIGN = 64
_SPARE = 256
"""Bytes for what the library is told and tells: four int32, three int64, three int32."""


@subkernel("boolean(int64, Array(uint8, 1, 'C', readonly=True))")
def _contains_words(text: int, words: Any) -> bool:
    """Return True if a C string contains these bytes."""
    while load_u8(text) != 0:
        for i in range(words.size):
            if load_u8(text + i) != words[i]:
                break
            if i == words.size - 1:
                return True
        text += 1
    return False


@subkernel(types.int64(CALLS, types.int64, types.int64))
def _explain_failure(calls: TurboFunctions, handle: int, plain: int) -> int:
    """Return what the last failure means, by the library's first warning or error.

    Bytes behind the picture are no fault of it: where the scan is `plain`, nothing but that can
    be behind this warning, and every row was decoded. Otherwise the next decoder is asked.
    """
    text = _text(calls.error_text, (handle,))
    if _code(calls.error_code, (handle,)) == 0 and _contains_words(text, _EXTRANEOUS):
        return _OK if plain else _UNSUPPORTED
    return _TRUNCATED if _contains_words(text, _PREMATURE) else _DAMAGED


@subkernel(types.int64(CALLS, types.int64))
def _explain_header_failure(calls: TurboFunctions, handle: int) -> int:
    """Return what a failure to read the header means: a warning is for others to judge."""
    return _UNSUPPORTED if _code(calls.error_code, (handle,)) == 0 else _DAMAGED


@subkernel("int64(int64, int64)")
def _shift_down(value: int, bits: int) -> int:
    """Return value / 2**bits, rounded up."""
    return (value + (1 << bits) - 1) >> bits


@subkernel("int64(int64)")
def _align(value: int) -> int:
    return (value + _ALIGN - 1) // _ALIGN * _ALIGN


@subkernel(types.int64(Frame, REGION))
def _count_needed_rows(frame: Any, region: Region) -> int:
    """Return the height to state: whole rows of MCUs where the library can end early.

    The row below the region is among them, for the sake of its chroma.
    """
    if not frame.plain:
        return frame.height
    mcu_height = 8 * frame.down
    rows = (region.bottom + 1 + mcu_height - 1) // mcu_height * mcu_height
    return min(rows, frame.height)


@subkernel(types.int64(types.int64, Frame, REGION))
def count_planes_bytes(length: int, frame: Any, region: Region) -> int:
    """Count the bytes of scratch memory that `call_decode_planes` needs, for any sampling."""
    rows = _shift_down(_count_needed_rows(frame, region), region.shrink) + 1
    stride = _align(_shift_down(frame.width, region.shrink) + 3)
    return _SPARE + length + 3 * rows * stride + 5 * _ALIGN


_TO_SAMPLES = (types.int64, types.int64, Frame, REGION, Picture, types.int64)


@subkernel(types.int64(CALLS, types.int64, *_TO_SAMPLES))
def _decode_to_planes(
    calls: TurboFunctions,
    handle: int,
    data: int,
    length: int,
    frame: Any,
    region: Region,
    picture: Any,
    scratch: int,
) -> int:
    """`call_decode_planes` with a handle."""
    results = scratch
    pointers = scratch + 64
    strides = scratch + 128
    free = scratch + _SPARE
    rows = _count_needed_rows(frame, region)
    if rows != frame.height:
        memcpy(free, data, length)
        data = free
        store_u16(data + frame.height_offset, (rows & 0xFF) << 8 | rows >> 8)
        free = _align(free + length)
    stated = results, results + 4, results + 8, results + 12
    if _header3(calls.header, (handle, data, length, *stated)):
        return _explain_header_failure(calls, handle)
    sampling = load_i32(results + 8)
    colours = load_i32(results + 12)
    if load_i32(results) != frame.width or load_i32(results + 4) != rows:
        return _DAMAGED
    if sampling < 0 or sampling >= len(_SAMPLINGS) or (colours != _YCBCR and colours != _GREY):
        return _UNSUPPORTED
    across = _SAMPLINGS[sampling, 0]
    down = _SAMPLINGS[sampling, 1]
    width = _shift_down(frame.width, region.shrink)
    height = _shift_down(rows, region.shrink)
    stride = _align(_shift_down(width, across) << across)
    chroma_stride = _align(_shift_down(width, across))
    cb = free + stride * (_shift_down(height, down) << down)
    cr = cb + chroma_stride * _shift_down(height, down)
    picture.kind = GREY if colours == _GREY else YCC
    picture.planes[0], picture.planes[1], picture.planes[2] = free, cb, cr
    picture.stride = stride
    picture.chroma_stride = chroma_stride
    picture.across = across
    picture.down = down
    picture.top = 0
    picture.left = 0
    picture.shrink = picture.chroma_shrink = region.shrink
    picture.height = rows
    picture.width = frame.width
    for i in range(3):
        store_i64(pointers + 8 * i, picture.planes[i])
        store_i32(strides + 4 * i, stride if i == 0 else chroma_stride)
    arguments = handle, data, length, pointers, width, strides, height, _FLAGS
    if _planes(calls.decompress, arguments):
        return _explain_failure(calls, handle, frame.plain)
    return _OK


@subkernel(types.int64(CALLS, *_TO_SAMPLES))
def call_decode_planes(
    calls: TurboFunctions,
    data: int,
    length: int,
    frame: Any,
    region: Region,
    picture: Any,
    scratch: int,
) -> int:
    """Decode the rows of a region, from the first on, into planes in scratch memory.

    Parameters
    ----------
    calls
        Addresses of `PLANES_CALLS`.
    data, length, frame
        The image and its frame, as `read_frame` filled it in.
    region
        What is needed.
    picture
        Becomes what `write_view` wants to know.
    scratch
        Address of `count_planes_bytes` of memory, a multiple of 64.

    Returns
    -------
    A `Status`, or NO_MEMORY.
    """
    handle = _init(calls.init, (_DECOMPRESS,))
    if handle == 0:
        return NO_MEMORY
    status = _decode_to_planes(calls, handle, data, length, frame, region, picture, scratch)
    _destroy(calls.destroy, (handle,))
    return status


@subkernel(types.int64(Frame, REGION))
def count_region_bytes(frame: Any, region: Region) -> int:
    """Count the bytes of scratch memory that `call_decode_region` needs."""
    rows = _shift_down(region.bottom, region.shrink) - (region.top >> region.shrink)
    columns = _shift_down(region.right, region.shrink) - (region.left >> region.shrink)
    return rows * _align(3 * (columns + 2 + 8 * frame.across)) + _ALIGN


@subkernel(types.int64(CALLS, types.int64, *_TO_SAMPLES))
def _decode_to_region(
    calls: TurboFunctions,
    handle: int,
    data: int,
    length: int,
    frame: Any,
    region: Region,
    picture: Any,
    scratch: int,
) -> int:
    """`call_decode_region` with a handle."""
    shrink = region.shrink
    _set(calls.set, (handle, _STOP_ON_WARNING, 1))
    _set(calls.set, (handle, _SCAN_LIMIT, _MAX_SCANS))
    if _header(calls.header, (handle, data, length)):
        return _explain_header_failure(calls, handle)
    sampling = _get(calls.get, (handle, _SUBSAMPLING))
    colours = _get(calls.get, (handle, _COLOURS))
    if _get(calls.get, (handle, _WIDTH)) != frame.width:
        return _DAMAGED
    if _get(calls.get, (handle, _HEIGHT)) != frame.height:
        return _DAMAGED
    if sampling < 0 or sampling >= len(_SAMPLINGS) or (colours != _YCBCR and colours != _GREY):
        return _UNSUPPORTED
    # One column more on either side: where chroma is blown up, it is smoothed across.
    width = _shift_down(frame.width, shrink)
    step = max(8 * frame.across >> shrink, 1)
    left = max((region.left >> shrink) - 1, 0) // step * step
    right = min(_shift_down(region.right, shrink) + 1, width)
    top = region.top >> shrink
    bottom = _shift_down(region.bottom, shrink)
    if _scale(calls.scale, (handle, 1 | 1 << (32 + shrink))):
        return _UNSUPPORTED
    corner = left | top << 32
    extent = right - left | bottom - top << 32
    if _crop(calls.crop, (handle, corner, extent)):
        return _UNSUPPORTED
    pixel_bytes = 1 if colours == _GREY else 3
    stride = _align(pixel_bytes * (right - left))
    form = _PIXELS_GREY if colours == _GREY else _PIXELS_RGB
    if _decompress(calls.decompress, (handle, data, length, scratch, stride, form)):
        status = _explain_failure(calls, handle, frame.plain)
        if status != _OK:
            return status
    picture.kind = GREY if colours == _GREY else RGB
    picture.planes[0] = scratch
    picture.stride = stride
    picture.top = top << shrink
    picture.left = left << shrink
    picture.shrink = shrink
    return _OK


@subkernel(types.int64(CALLS, *_TO_SAMPLES))
def call_decode_region(
    calls: TurboFunctions,
    data: int,
    length: int,
    frame: Any,
    region: Region,
    picture: Any,
    scratch: int,
) -> int:
    """Decode a region alone into red, green and blue in scratch memory: `count_region_bytes`.

    `calls` are addresses of `REGION_CALLS`; all else as in `call_decode_planes`.
    """
    handle = _init(calls.init, (_DECOMPRESS,))
    if handle == 0:
        return NO_MEMORY
    status = _decode_to_region(calls, handle, data, length, frame, region, picture, scratch)
    _destroy(calls.destroy, (handle,))
    return status
