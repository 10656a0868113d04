"""JPEG images by libjpeg-turbo, called from kernels without the interpreter lock."""

from collections.abc import Set
from typing import Any

import numpy as np

from fieldslab.reader.decoders.decoder import Crops, Encoded, Status, Target
from fieldslab.reader.decoders.frames import FRAME, HEIGHT, WIDTH, check_frame
from fieldslab.reader.decoders.scratch import Scratch
from fieldslab.reader.decoders.turbocalls import (
    BOTTOM_ROW,
    LEFT_COLUMN,
    NO_MEMORY,
    PLANES_CALLS,
    REGION_CALLS,
    RIGHT_COLUMN,
    TOP_ROW,
    decode_planes,
    decode_region,
    planes_bytes,
    region_bytes,
)
from fieldslab.reader.pixels.finish import PICTURE, finish, work_bytes
from fieldslab.reader.pixels.store import form_of, item_bytes
from fieldslab.reader.stored.array import get_address
from fieldslab.schemas.codecs.turbojpeg import Library, find_all, newest
from fieldslab.schemas.images import CODES
from fieldslab.schemas.jit import kernel

_LEAST_WIDTH = 16
"""Below, the library may take another scale that gives the same size."""

_HALVED = 6
"""How many times larger than its view a box must be for the library to halve the picture first:
measured, 51 dB from a full decode and more, where 4 times gives 43 and saves a quarter as well."""

_OK, _OTHER_SIZE = int(Status.OK), int(Status.OTHER_SIZE)


@kernel("int64(int32[:, ::1], int64[::1], int64[::1], int64, int64)")
def _plan(boxes: Any, frame: Any, region: Any, out_height: int, out_width: int) -> int:
    """Find the region that all boxes lie in; return how often it may be halved: 0 or 1.

    -1 if a box is not inside the picture, or empty.
    """
    height, width = frame[HEIGHT], frame[WIDTH]
    region[TOP_ROW], region[BOTTOM_ROW] = height, 0
    region[LEFT_COLUMN], region[RIGHT_COLUMN] = width, 0
    shrink = 1 if width >= _LEAST_WIDTH else 0
    for view in range(boxes.shape[0]):
        top, left = np.int64(boxes[view, 0]), np.int64(boxes[view, 1])
        high, wide = np.int64(boxes[view, 2]), np.int64(boxes[view, 3])
        if min(top, left) < 0 or min(high, wide) < 1 or top > height - high or left > width - wide:
            return -1
        region[TOP_ROW] = min(region[TOP_ROW], top)
        region[LEFT_COLUMN] = min(region[LEFT_COLUMN], left)
        region[BOTTOM_ROW] = max(region[BOTTOM_ROW], top + high)
        region[RIGHT_COLUMN] = max(region[RIGHT_COLUMN], left + wide)
        if high < _HALVED * out_height or wide < _HALVED * out_width:
            shrink = 0
    return shrink


@kernel(
    "UniTuple(int64, 2)(int64, int64[::1], int64[::1], int64[::1], uint32[:, ::1], "
    "int64[::1], int32[:, :, ::1], boolean[:, ::1], int64, int64, int64, int64, int64, "
    "float32[::1], float32[::1], int64, int64, int64, int64, int32[::1])"
)
def _decode(
    regions: int,
    functions: Any,
    addresses: Any,
    lengths: Any,
    sizes: Any,
    which: Any,
    boxes: Any,
    flips: Any,
    out: int,
    out_height: int,
    out_width: int,
    form: int,
    channels_first: int,
    scale: Any,
    bias: Any,
    max_pixels: int,
    first: int,
    scratch: int,
    room: int,
    statuses: Any,
) -> tuple[int, int]:
    """Decode images `which[first:]`; return (how many are done, scratch memory that one needs).

    The second is 0 if all are done, or NO_MEMORY. `scratch` is an address of `room` bytes.
    """
    frame = np.empty(FRAME, np.int64)
    region = np.empty(4, np.int64)
    picture = np.zeros(PICTURE, np.int64)
    views = boxes.shape[1]
    view_bytes = 3 * out_height * out_width * item_bytes(form)
    start = (scratch + 63) // 64 * 64
    for position in range(first, which.size):
        image = which[position]
        data = addresses[image]
        length = lengths[image]
        status = check_frame(data, length, sizes[image], max_pixels, frame)
        shrink = 0
        if status == _OK:
            shrink = _plan(boxes[image], frame, region, out_height, out_width)
            status = _OK if shrink >= 0 else _OTHER_SIZE
        statuses[position] = status
        if status != _OK:
            continue
        work = 0
        for view in range(views):
            box = boxes[image, view]
            work = max(work, work_bytes(box[2], box[3], out_height, out_width))
        if regions:
            needed = region_bytes(frame, region, shrink)
        else:
            needed = planes_bytes(length, frame, region, shrink)
        if work + needed + 64 > room:
            return position, work + needed + 64
        if regions:
            status = decode_region(functions, data, length, frame, region, shrink, picture, start)
        else:
            status = decode_planes(functions, data, length, frame, region, shrink, picture, start)
        if status == NO_MEMORY:
            return position, NO_MEMORY
        statuses[position] = status
        if status != _OK:
            continue
        for view in range(views):
            top, left, high, wide = boxes[image, view]
            finish(
                picture,
                top,
                left,
                high,
                wide,
                flips[image, view],
                out + (image * views + view) * view_bytes,
                out_height,
                out_width,
                form,
                channels_first,
                scale,
                bias,
                start + needed,
            )
    return which.size, 0


class TurboJpeg:
    """Decodes JPEG images with libjpeg-turbo: all that are grey or Y, Cb and Cr, of 8 bits.

    With a library of 3.x, most of what lies outside the crops is left out; with 2.x, only rows
    below them. Crops that are made smaller by six or more are decoded at half of their size. A
    warning of the library is a failure, except for bytes behind a picture.

    Parameters
    ----------
    library
        Which one; the newest that is found if not given. Raises MissingLibrary without one.
    regions
        Whether to use the functions of 3.x, if it has them.
    """

    name = "turbojpeg"
    codes: Set[int] = frozenset({CODES["jpeg"]})

    def __init__(self, library: Library | None = None, regions: bool = True) -> None:
        self.library = library or newest(find_all())
        self._regions = regions and self.library.regions
        calls = REGION_CALLS if self._regions else PLANES_CALLS
        self._functions = np.array([self.library.functions[name] for name in calls], np.int64)
        self._scratch = Scratch()

    def decode(
        self, images: Encoded, which: np.ndarray, crops: Crops, target: Target, max_pixels: int
    ) -> np.ndarray:
        """See `Decoder.decode`."""
        out = target.out
        high, wide = out.shape[3:] if target.channels_first else out.shape[2:4]
        statuses = np.empty(len(which), np.int32)
        addresses = images.addresses.view(np.int64)
        done = room = 0
        while done < len(which):
            done, needed = _decode(
                self._regions,
                self._functions,
                addresses,
                images.lengths,
                images.sizes,
                which,
                crops.boxes,
                crops.flips,
                get_address(out),
                high,
                wide,
                form_of(out),
                target.channels_first,
                target.scale,
                target.bias,
                max_pixels,
                done,
                self._scratch.address(room),
                room,
                statuses,
            )
            if needed == NO_MEMORY:
                raise MemoryError("libjpeg-turbo has no memory left")
            room = max(room, needed + needed // 4)
        self._scratch.trim()
        return statuses

    def __getstate__(self) -> dict[str, Any]:
        """Nothing of a process goes to another: there, the library is found anew."""
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
