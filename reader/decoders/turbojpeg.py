"""JPEG images by libjpeg-turbo, called from kernels without the interpreter lock."""

from collections.abc import Set
from typing import Any

import numpy as np

from fieldslab.reader.decoders.decoder import Crops, EncodedImages, Status, Target
from fieldslab.reader.decoders.framecheck import CROPS, ENCODED, check_frame
from fieldslab.reader.decoders.scratch import ThreadScratch
from fieldslab.reader.decoders.turbocalls import (
    CALLS,
    NO_MEMORY,
    PLANES_CALLS,
    REGION,
    REGION_CALLS,
    Region,
    TurboFunctions,
    call_decode_planes,
    call_decode_region,
    count_planes_bytes,
    count_region_bytes,
)
from fieldslab.reader.pixels.finish import Box, count_most_work_bytes, new_picture, write_view
from fieldslab.reader.pixels.store import OUTPUT, ViewOutput, describe_output
from fieldslab.schemas.codecs.jpeg import Frame, new_frame
from fieldslab.schemas.codecs.turbolibrary import Library, choose_newest, find_libraries
from fieldslab.schemas.images import CODES
from fieldslab.schemas.jit import kernel, subkernel, types

_MIN_HALVED_WIDTH = 16
"""Below, the library may take another scale that gives the same size."""

_HALVED_FROM = 6
"""How many times larger than its view a box must be for the library to halve the picture first:
measured, 51 dB from a full decode and more, where 4 times gives 43 and saves a quarter as well."""

_OK, _OTHER_SIZE = int(Status.OK), int(Status.OTHER_SIZE)


@subkernel(types.Tuple((types.boolean, REGION))(types.int32[:, ::1], Frame, OUTPUT))
def _plan_region(boxes: Any, frame: Any, output: ViewOutput) -> tuple[bool, Region]:
    """Find the region that all boxes lie in, and whether it may be halved.

    False if a box is not inside the picture, or empty.
    """
    height, width = frame.height, frame.width
    nothing: Any = np.int64(0)
    first_row, first_column = height, width
    last_row, last_column = nothing, nothing
    inside, shrink = True, nothing + (width >= _MIN_HALVED_WIDTH)
    for view in range(boxes.shape[0]):
        top, left = np.int64(boxes[view, 0]), np.int64(boxes[view, 1])
        box_height, box_width = np.int64(boxes[view, 2]), np.int64(boxes[view, 3])
        if min(top, left) < 0 or min(box_height, box_width) < 1:
            inside = False
        if top > height - box_height or left > width - box_width:
            inside = False
        first_row, first_column = min(first_row, top), min(first_column, left)
        last_row, last_column = max(last_row, top + box_height), max(last_column, left + box_width)
        if box_height < _HALVED_FROM * output.height or box_width < _HALVED_FROM * output.width:
            shrink = nothing
    return inside, Region(first_row, first_column, last_row, last_column, shrink)


@kernel(
    types.UniTuple(types.int64, 2)(
        CALLS,
        ENCODED,
        types.int64[::1],
        CROPS,
        OUTPUT,
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.int32[::1],
    )
)
def _decode_images(
    calls: TurboFunctions,
    images: EncodedImages,
    which: Any,
    crops: Crops,
    output: ViewOutput,
    max_pixels: int,
    first: int,
    scratch: int,
    scratch_bytes: int,
    statuses: Any,
) -> tuple[int, int]:
    """Decode images `which[first:]`; return (how many are done, scratch memory that one needs).

    The second is 0 if all are done, or NO_MEMORY. `scratch` is an address.
    """
    frame, picture = new_frame(), new_picture()
    views = crops.boxes.shape[1]
    memory = (scratch + 63) // 64 * 64
    for position in range(first, which.size):
        image = which[position]
        address: Any = np.int64(images.addresses[image])
        length = images.lengths[image]
        boxes = crops.boxes[image]
        status = check_frame(images, image, max_pixels, frame)
        inside, region = _plan_region(boxes, frame, output)
        if status == _OK and not inside:
            status = _OTHER_SIZE
        statuses[position] = status
        if status != _OK:
            continue
        if calls.crop:
            samples_bytes = count_region_bytes(frame, region)
        else:
            samples_bytes = count_planes_bytes(length, frame, region)
        needed = count_most_work_bytes(boxes, output) + samples_bytes + 64
        if needed > scratch_bytes:
            return position, needed
        if calls.crop:
            status = call_decode_region(calls, address, length, frame, region, picture, memory)
        else:
            status = call_decode_planes(calls, address, length, frame, region, picture, memory)
        if status == NO_MEMORY:
            return position, NO_MEMORY
        statuses[position] = status
        if status != _OK:
            continue
        for view in range(views):
            top, left, height, width = boxes[view]
            box = Box(np.int64(top), np.int64(left), np.int64(height), np.int64(width))
            flip, number = crops.flips[image, view], image * views + view
            write_view(picture, box, flip, output, number, memory + samples_bytes)
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
        self.library = library or choose_newest(find_libraries())
        self._regions = regions and self.library.regions
        names = REGION_CALLS if self._regions else PLANES_CALLS
        self._calls = TurboFunctions(*(self.library.functions[name] for name in names))
        self._scratch = ThreadScratch()

    def decode(
        self,
        images: EncodedImages,
        which: np.ndarray,
        crops: Crops,
        target: Target,
        max_pixels: int,
    ) -> np.ndarray:
        """See `Decoder.decode`."""
        output = describe_output(*target)
        statuses = np.empty(len(which), np.int32)
        done = size = 0
        while done < len(which):
            done, needed = _decode_images(
                self._calls,
                images,
                which,
                crops,
                output,
                max_pixels,
                done,
                self._scratch.get_address(size),
                size,
                statuses,
            )
            if needed == NO_MEMORY:
                raise MemoryError("libjpeg-turbo has no memory left")
            size = max(size, needed + needed // 4)
        self._scratch.trim()
        return statuses

    def __getstate__(self) -> dict[str, Any]:
        """Pickle nothing: the other process finds the library itself."""
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
