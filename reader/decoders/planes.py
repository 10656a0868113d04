"""Pixels that were decoded at pack: `rgb` and `yuv420`, straight from the map."""

from collections.abc import Set
from typing import Any

import numpy as np

from fieldslab.reader.decoders.decoder import Crops, EncodedImages, Status, Target
from fieldslab.reader.decoders.framecheck import CROPS, ENCODED
from fieldslab.reader.decoders.scratch import ThreadScratch
from fieldslab.reader.pixels.finish import (
    RGB,
    YCC,
    Box,
    Picture,
    count_most_work_bytes,
    new_picture,
    write_view,
)
from fieldslab.reader.pixels.store import OUTPUT, ViewOutput, describe_output
from fieldslab.schemas.images import CODES
from fieldslab.schemas.jit import clear, kernel, subkernel, types

_RGB = CODES["rgb"]
_YUV420 = CODES["yuv420"]
_OK, _TRUNCATED, _DAMAGED = int(Status.OK), int(Status.TRUNCATED), int(Status.DAMAGED)
_TOO_LARGE, _OTHER_SIZE = int(Status.TOO_LARGE), int(Status.OTHER_SIZE)
_UNSUPPORTED = int(Status.UNSUPPORTED)


@subkernel(types.int64(ENCODED, types.int64, Picture))
def describe_picture(images: EncodedImages, image: int, picture: Any) -> int:
    """Fill in what `write_view` must know; return a status."""
    address: Any = np.int64(images.addresses[image])
    height: Any = np.int64(images.sizes[image, 0])
    width: Any = np.int64(images.sizes[image, 1])
    length, code = images.lengths[image], images.codes[image]
    pixels = height * width
    chroma_stride = (width + 1) // 2
    chroma_pixels = (height + 1) // 2 * chroma_stride
    if code == _RGB:
        size = 3 * pixels
    elif code == _YUV420:
        size = pixels + 2 * chroma_pixels
    else:
        return _UNSUPPORTED
    if length != size:
        return _TRUNCATED if length < size else _DAMAGED
    clear(picture)
    picture.kind = RGB if code == _RGB else YCC
    picture.stride = 3 * width if code == _RGB else width
    picture.planes[0] = address
    picture.planes[1] = address + pixels
    picture.planes[2] = address + pixels + chroma_pixels
    picture.chroma_stride = chroma_stride
    picture.across = 1
    picture.down = 1
    picture.height = height
    picture.width = width
    return _OK


@subkernel(types.int64(ENCODED, types.int64, types.int32[:, :, ::1], types.int64))
def check_planes_of(images: EncodedImages, image: int, boxes: Any, max_pixels: int) -> int:
    """Return the status of an image, its size being a claim; OTHER_SIZE if a box is outside."""
    height: Any = np.int64(images.sizes[image, 0])
    width: Any = np.int64(images.sizes[image, 1])
    if height > 0 and width > max_pixels // height:
        return _TOO_LARGE
    status = describe_picture(images, image, new_picture())
    for view in range(boxes.shape[1]):
        top: Any = np.int64(boxes[image, view, 0])
        left: Any = np.int64(boxes[image, view, 1])
        box_height: Any = np.int64(boxes[image, view, 2])
        box_width: Any = np.int64(boxes[image, view, 3])
        inside = top <= height - box_height and left <= width - box_width
        if not inside or min(top, left) < 0 or min(box_height, box_width) < 1:
            status = max(status, _OTHER_SIZE)
    return status


@kernel(
    types.int64(
        ENCODED, types.int64[::1], types.int32[:, :, ::1], OUTPUT, types.int64, types.int32[::1]
    )
)
def check_planes(
    images: EncodedImages,
    which: Any,
    boxes: Any,
    output: ViewOutput,
    max_pixels: int,
    statuses: Any,
) -> int:
    """Fill in `statuses`; return the scratch memory that `decode_planes` needs.

    Sizes are a claim: no memory is asked for images that are too large, or do not have as many
    bytes. A box that is not inside its picture is OTHER_SIZE.
    """
    most: Any = np.int64(0)
    for position in range(len(which)):
        image = which[position]
        statuses[position] = check_planes_of(images, image, boxes, max_pixels)
        if statuses[position] == _OK:
            most = max(most, count_most_work_bytes(boxes[image], output))
    return most


@kernel(types.void(ENCODED, types.int64[::1], CROPS, OUTPUT, types.int64, types.int32[::1]))
def decode_planes(
    images: EncodedImages, which: Any, crops: Crops, output: ViewOutput, work: int, statuses: Any
) -> None:
    """Write all views of those of the images `which` that `check_planes` found OK.

    `work` is the address of as many bytes as it returned.
    """
    picture = new_picture()
    views = crops.boxes.shape[1]
    for position in range(len(which)):
        if statuses[position] != _OK:
            continue
        image = which[position]
        describe_picture(images, image, picture)
        for view in range(views):
            top, left, height, width = crops.boxes[image, view]
            box = Box(np.int64(top), np.int64(left), np.int64(height), np.int64(width))
            write_view(picture, box, crops.flips[image, view], output, image * views + view, work)


class Planes:
    """Takes pixels that need no decoding."""

    name = "planes"
    codes: Set[int] = frozenset({_RGB, _YUV420})

    def __init__(self) -> None:
        self._scratch = ThreadScratch()

    def decode(
        self,
        images: EncodedImages,
        which: np.ndarray,
        crops: Crops,
        target: Target,
        max_pixels: int,
    ) -> np.ndarray:
        """See `Decoder`."""
        statuses = np.empty(len(which), np.int32)
        output = describe_output(*target)
        size = check_planes(images, which, crops.boxes, output, max_pixels, statuses)
        decode_planes(images, which, crops, output, self._scratch.get_address(size), statuses)
        self._scratch.trim()
        return statuses
