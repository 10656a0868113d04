"""Pixels decoded at pack."""

from typing import ClassVar

import numpy as np
import pytest
from tests.reader.decoders.battery import Battery
from tests.reader.decoders.decoding import Box, crops_of, decode, encoded
from tests.reader.pixels.pictures import resized
from tests.reader.pixels.planes import enlarged, shrunk, to_rgb, to_ycc

from fieldslab.reader.decoders.decoder import Status
from fieldslab.reader.decoders.planes import Planes
from fieldslab.reader.decoders.scratch import KEPT, ThreadScratch
from fieldslab.schemas.images import CODES


class TestRgb(Battery):
    """Red, green and blue."""

    decoder = Planes()
    encodings: ClassVar = {"rgb": lambda pixels: pixels.tobytes()}
    code = CODES["rgb"]
    checks_content = False
    most_mean, least_psnr, least_single = 0.3, 55.0, 50.0

    def reference(
        self, data: bytes, box: Box, size: tuple[int, int], shape: tuple[int, int]
    ) -> np.ndarray:
        """The pixels themselves, resized by Pillow."""
        return resized(np.frombuffer(data, np.uint8).reshape(*shape, 3), box, size)


def to_planes(pixels: np.ndarray) -> bytes:
    """Y, Cb and Cr as they are stored."""
    y, cb, cr = to_ycc(pixels)
    return b"".join(plane.tobytes() for plane in (y, shrunk(cb, 1, 1), shrunk(cr, 1, 1)))


class TestYuv420(Battery):
    """Luma, and chroma at half size."""

    decoder = Planes()
    encodings: ClassVar = {"yuv420": to_planes}
    code = CODES["yuv420"]
    checks_content = False

    def reference(
        self, data: bytes, box: Box, size: tuple[int, int], shape: tuple[int, int]
    ) -> np.ndarray:
        """Chroma blown up, colours converted, and resized by Pillow."""
        height, width = shape
        small = -(-height // 2), -(-width // 2)
        values = np.frombuffer(data, np.uint8)
        y, cb, cr = np.split(values, [height * width, height * width + small[0] * small[1]])
        chroma = [enlarged(each.reshape(small), 1, 1)[:height, :width] for each in (cb, cr)]
        return resized(to_rgb(y.reshape(shape), *chroma), box, size)


@pytest.mark.parametrize("most", [2**20, 2**62])
def test_no_memory_is_asked_for_what_a_size_claims(most: int) -> None:
    """A height of two billion is refused before scratch memory, by pixels or by the bytes."""
    batch, _kept = encoded([bytes(30)], [(2**31 - 1, 1)], CODES["rgb"])
    crops = crops_of([(0, 0, 2**31 - 1, 1)])
    out, statuses = decode(Planes(), batch, crops, (2, 1000), fill=77, max_pixels=most)
    assert statuses.tolist() == [Status.TOO_LARGE if most < 2**31 else Status.TRUNCATED]
    assert (out == 77).all()


def test_what_a_giant_picture_needs_is_given_back() -> None:
    """Scratch memory beyond what a thread keeps does not stay."""
    planes = Planes()
    batch, _kept = encoded([bytes(24000)], [(8000, 1)], CODES["rgb"])
    decode(planes, batch, crops_of([(0, 0, 8000, 1)]), (1, 1000))
    assert isinstance(planes._scratch, ThreadScratch)
    assert len(planes._scratch._memory) <= KEPT
