"""The plain way to decode, to measure ours against: each picture whole, then cropped and resized.

This is what libjpeg-turbo does when it is called as its manual says, followed by the same resize
as everywhere else, so that the difference lies in the decoding alone.
"""

import ctypes
import threading
from collections.abc import Set
from typing import Any

import numpy as np

from fieldslab.reader.decoders.decoder import Crops, Encoded, Status, Target
from fieldslab.reader.pixels.finish import KIND, PICTURE, PLANE, RGB, STRIDE, finish, work_bytes
from fieldslab.reader.pixels.store import form_of
from fieldslab.reader.stored.array import get_address
from fieldslab.schemas.codecs.turbojpeg import find_all, newest
from fieldslab.schemas.images import CODES

_PIXEL_FORMAT_RGB, _ACCURATE_DCT = 0, 4096


class WholeDecoder:
    """libjpeg-turbo's `tjDecompress2`, accurate, into RGB; then `finish`."""

    name = "whole"
    codes: Set[int] = frozenset({CODES["jpeg"]})

    def __init__(self) -> None:
        """Find the library. Raises MissingLibrary."""
        self._library = ctypes.CDLL(newest(find_all()).path)
        self._library.tjInitDecompress.restype = ctypes.c_void_p
        self._local = threading.local()

    def decode(
        self, images: Encoded, which: np.ndarray, crops: Crops, target: Target, max_pixels: int
    ) -> np.ndarray:
        """See `Decoder.decode`; pictures are trusted to be what the slab says."""
        if not hasattr(self._local, "handle"):
            self._local.handle = ctypes.c_void_p(self._library.tjInitDecompress())
        out, first = target.out, target.channels_first
        high, wide = out.shape[3:] if first else out.shape[2:4]
        picture = np.zeros(PICTURE, np.int64)
        statuses = np.zeros(which.size, np.int32)
        for position, image in enumerate(which.tolist()):
            height, width = images.sizes[image].tolist()
            pixels = self._decoded(images, image, height, width)
            if pixels is None:
                statuses[position] = Status.DAMAGED
                continue
            picture[[KIND, PLANE, STRIDE]] = RGB, get_address(pixels), 3 * width
            for view, (top, left, height, width) in enumerate(crops.boxes[image].tolist()):
                work = np.empty(work_bytes(height, width, high, wide), np.uint8)
                finish(
                    picture,
                    top,
                    left,
                    height,
                    width,
                    int(crops.flips[image, view]),
                    get_address(out[image, view]),
                    high,
                    wide,
                    form_of(out),
                    int(first),
                    target.scale,
                    target.bias,
                    get_address(work),
                )
        return statuses

    def _decoded(self, images: Encoded, image: int, height: int, width: int) -> Any:
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
