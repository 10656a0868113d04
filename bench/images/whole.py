"""The plain way to decode, to measure ours against: each picture whole, then cropped and resized.

This is what libjpeg-turbo does when it is called as its manual says, followed by the same resize
as everywhere else, so that the difference lies in the decoding alone.
"""

import ctypes
import threading
from collections.abc import Set
from typing import Any

import numpy as np

from fieldslab.reader.decoders.decoder import Crops, EncodedImages, Status, Target
from fieldslab.reader.pixels.finish import PICTURE, RGB, Box, count_work_bytes, write_view
from fieldslab.reader.pixels.store import describe_output
from fieldslab.schemas.codecs.turbolibrary import choose_newest, find_libraries
from fieldslab.schemas.images import CODES
from fieldslab.schemas.jit import make_zero_record
from fieldslab.schemas.mapping import get_address

_PIXEL_FORMAT_RGB, _ACCURATE_DCT = 0, 4096


class WholeDecoder:
    """libjpeg-turbo's `tjDecompress2`, accurate, into RGB; then `write_view`."""

    name = "whole"
    codes: Set[int] = frozenset({CODES["jpeg"]})

    def __init__(self) -> None:
        """Find the library. Raises MissingLibrary."""
        self._library = ctypes.CDLL(choose_newest(find_libraries()).path)
        self._library.tjInitDecompress.restype = ctypes.c_void_p
        self._local = threading.local()

    def decode(
        self,
        images: EncodedImages,
        which: np.ndarray,
        crops: Crops,
        target: Target,
        max_pixels: int,
    ) -> np.ndarray:
        """See `Decoder.decode`; pictures are trusted to be what the slab says."""
        if not hasattr(self._local, "handle"):
            self._local.handle = ctypes.c_void_p(self._library.tjInitDecompress())
        output = describe_output(*target)
        views = crops.boxes.shape[1]
        picture = make_zero_record(PICTURE)
        statuses = np.zeros(which.size, np.int32)
        for position, image in enumerate(which.tolist()):
            height, width = images.sizes[image].tolist()
            pixels = self._decoded(images, image, height, width)
            if pixels is None:
                statuses[position] = Status.DAMAGED
                continue
            picture.kind, picture.stride = RGB, 3 * width
            picture.planes[0] = get_address(pixels)
            for view, box in enumerate(map(Box._make, crops.boxes[image].tolist())):
                size = count_work_bytes(box.height, box.width, output.height, output.width)
                work = np.empty(size, np.uint8)
                flip, number = int(crops.flips[image, view]), image * views + view
                write_view(picture, box, flip, output, number, get_address(work))
        return statuses

    def _decoded(self, images: EncodedImages, image: int, height: int, width: int) -> Any:
        pixels = np.empty((height, width, 3), np.uint8)
        failed = self._library.tjDecompress2(
            self._local.handle,
            ctypes.c_void_p(int(images.addresses[image])),
            ctypes.c_ulong(int(images.lengths[image])),
            ctypes.c_void_p(get_address(pixels)),
            width,
            3 * width,
            height,
            _PIXEL_FORMAT_RGB,
            _ACCURATE_DCT,
        )
        return None if failed else pixels
