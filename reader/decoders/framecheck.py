"""Whether the frame header of a JPEG states what the slab does, for decoders that use a library.

Also the types of `EncodedImages` and `Crops` in the signatures of kernels.
"""

from typing import Any

import numpy as np

from fieldslab.reader.decoders.decoder import Crops, EncodedImages, Status
from fieldslab.schemas.codecs.jpeg import Frame, new_frame, read_frame
from fieldslab.schemas.jit import kernel, make_tuple_type, subkernel, types

ENCODED = make_tuple_type(
    EncodedImages,
    types.uint64[::1],
    types.int64[::1],
    types.uint32[:, ::1],
    types.uint8[::1],
    types.uint64[::1],
    types.int64[::1],
    types.int64,
)
CROPS = make_tuple_type(Crops, types.int32[:, :, ::1], types.boolean[:, ::1])

_OK = int(Status.OK)
_TOO_LARGE, _OTHER_SIZE = int(Status.TOO_LARGE), int(Status.OTHER_SIZE)


@subkernel(types.int64(ENCODED, types.int64, types.int64, Frame))
def check_frame(images: EncodedImages, image: int, max_pixels: int, frame: Any) -> int:
    """Read the frame of an image by `read_frame`; returns a `Status`.

    TOO_LARGE if it states more than `max_pixels`, and OTHER_SIZE if not the size that the slab has.
    """
    address: Any = np.int64(images.addresses[image])
    height: Any = np.int64(images.sizes[image, 0])
    width: Any = np.int64(images.sizes[image, 1])
    status = read_frame(address, images.lengths[image], frame)
    if frame.height * frame.width > max_pixels:
        return _TOO_LARGE
    if status == _OK and (frame.height != height or frame.width != width):
        return _OTHER_SIZE
    return status


@kernel(types.void(ENCODED, types.int64[::1], types.int64, types.int32[::1]))
def check_frames(images: EncodedImages, which: Any, max_pixels: int, statuses: Any) -> None:
    """Check the frames of the images `which`; `statuses` is as long as that."""
    frame = new_frame()
    for position in range(len(which)):
        statuses[position] = check_frame(images, which[position], max_pixels, frame)
