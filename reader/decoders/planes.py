"""Pixels that were decoded at pack: `rgb` and `yuv420`, straight from the map."""

from collections.abc import Set
from typing import Any

import numpy as np

from fieldslab.reader.decoders.decoder import Crops, Encoded, Status, Target
from fieldslab.reader.decoders.scratch import Scratch
from fieldslab.reader.pixels.finish import (
    ACROSS,
    CB,
    CHROMA_STRIDE,
    CR,
    DOWN,
    HEIGHT,
    KIND,
    PICTURE,
    PLANE,
    RGB,
    STRIDE,
    WIDTH,
    YCC,
    finish,
    work_bytes,
)
from fieldslab.reader.pixels.store import form_of, item_bytes
from fieldslab.reader.stored.array import get_address
from fieldslab.schemas.images import CODES
from fieldslab.schemas.jit import kernel

_RGB = CODES["rgb"]
_YUV420 = CODES["yuv420"]
_OK, _TRUNCATED, _DAMAGED = int(Status.OK), int(Status.TRUNCATED), int(Status.DAMAGED)
_TOO_LARGE, _OTHER_SIZE = int(Status.TOO_LARGE), int(Status.OTHER_SIZE)
_UNSUPPORTED = int(Status.UNSUPPORTED)


@kernel("int64(int64, int64, int64, int64, int64, int64[::1])")
def _describe(
    address: int, length: int, height: int, width: int, code: int, picture: np.ndarray
) -> int:
    """Fill in what `finish` must know; return a status."""
    pixels = height * width
    row = (width + 1) // 2
    chroma = (height + 1) // 2 * row
    if code == _RGB:
        size = 3 * pixels
    elif code == _YUV420:
        size = pixels + 2 * chroma
    else:
        return _UNSUPPORTED
    if length != size:
        return _TRUNCATED if length < size else _DAMAGED
    picture[:] = 0
    picture[KIND] = RGB if code == _RGB else YCC
    picture[PLANE] = address
    picture[STRIDE] = 3 * width if code == _RGB else width
    picture[CB] = address + pixels
    picture[CR] = address + pixels + chroma
    picture[CHROMA_STRIDE] = row
    picture[ACROSS] = 1
    picture[DOWN] = 1
    picture[HEIGHT] = height
    picture[WIDTH] = width
    return _OK


@kernel(
    "int64(uint64[::1], int64[::1], uint32[:, ::1], uint8[::1], int64[::1], int32[:, :, ::1], "
    "int64, int64, int64, int32[::1])"
)
def check_planes(
    addresses: np.ndarray,
    lengths: np.ndarray,
    sizes: np.ndarray,
    codes: np.ndarray,
    which: np.ndarray,
    boxes: np.ndarray,
    out_height: int,
    out_width: int,
    max_pixels: int,
    statuses: np.ndarray,
) -> int:
    """Fill in `statuses`; return the scratch memory that `decode_planes` needs.

    Sizes are a claim: no memory is asked for images that are too large, or do not have as many
    bytes. A box that is not inside its picture is OTHER_SIZE.
    """
    picture = np.empty(PICTURE, np.int64)
    most: Any = np.int64(0)
    for k in range(len(which)):
        i = which[k]
        height: Any = np.int64(sizes[i, 0])
        width: Any = np.int64(sizes[i, 1])
        if height > 0 and width > max_pixels // height:
            statuses[k] = _TOO_LARGE
            continue
        address: Any = np.int64(addresses[i])
        statuses[k] = _describe(address, lengths[i], height, width, codes[i], picture)
        for view in range(boxes.shape[1]):
            top: Any = np.int64(boxes[i, view, 0])
            left: Any = np.int64(boxes[i, view, 1])
            tall: Any = np.int64(boxes[i, view, 2])
            wide: Any = np.int64(boxes[i, view, 3])
            inside = top <= height - tall and left <= width - wide
            if not inside or min(top, left) < 0 or min(tall, wide) < 1:
                statuses[k] = max(statuses[k], _OTHER_SIZE)
            if statuses[k] == _OK:
                most = max(most, work_bytes(tall, wide, out_height, out_width))
    return most


@kernel(
    "void(uint64[::1], int64[::1], uint32[:, ::1], uint8[::1], int64[::1], int32[:, :, ::1], "
    "bool_[:, ::1], int64, int64, int64, int64, boolean, float32[::1], float32[::1], int64, "
    "int32[::1])"
)
def decode_planes(
    addresses: np.ndarray,
    lengths: np.ndarray,
    sizes: np.ndarray,
    codes: np.ndarray,
    which: np.ndarray,
    boxes: np.ndarray,
    flips: np.ndarray,
    out: int,
    out_height: int,
    out_width: int,
    form: int,
    channels_first: bool,
    scale: np.ndarray,
    bias: np.ndarray,
    work: int,
    statuses: np.ndarray,
) -> None:
    """Write all views of those of the images `which` that `check_planes` found OK.

    The arrays are those of `Encoded`, `Crops` and `Target`; `work` is the address of as many bytes
    as it returned.
    """
    picture = np.empty(PICTURE, np.int64)
    views = boxes.shape[1]
    view_bytes = 3 * out_height * out_width * item_bytes(form)
    for k in range(len(which)):
        if statuses[k] != _OK:
            continue
        i = which[k]
        address: Any = np.int64(addresses[i])
        _describe(address, lengths[i], sizes[i, 0], sizes[i, 1], codes[i], picture)
        for view in range(views):
            finish(
                picture,
                boxes[i, view, 0],
                boxes[i, view, 1],
                boxes[i, view, 2],
                boxes[i, view, 3],
                flips[i, view],
                out + (i * views + view) * view_bytes,
                out_height,
                out_width,
                form,
                channels_first,
                scale,
                bias,
                work,
            )


class Planes:
    """Takes pixels that need no decoding."""

    name = "planes"
    codes: Set[int] = frozenset({_RGB, _YUV420})

    def __init__(self) -> None:
        self._scratch = Scratch()

    def decode(
        self, images: Encoded, which: np.ndarray, crops: Crops, target: Target, max_pixels: int
    ) -> np.ndarray:
        """See `Decoder`."""
        axis = 3 if target.channels_first else 2
        height, width = target.out.shape[axis : axis + 2]
        statuses = np.empty(len(which), np.int32)
        room = check_planes(
            images.addresses,
            images.lengths,
            images.sizes,
            images.codes,
            which,
            crops.boxes,
            height,
            width,
            max_pixels,
            statuses,
        )
        decode_planes(
            images.addresses,
            images.lengths,
            images.sizes,
            images.codes,
            which,
            crops.boxes,
            crops.flips,
            get_address(target.out),
            height,
            width,
            form_of(target.out),
            target.channels_first,
            target.scale,
            target.bias,
            self._scratch.address(room),
            statuses,
        )
        self._scratch.trim()
        return statuses
