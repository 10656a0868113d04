"""EXIF orientation, and nothing read outside the image that states it."""

import io

import numpy as np
import pytest
from PIL import Image
from tests.guarded import Guarded
from tests.jpegs import encode, photograph

from fieldslab.schemas.codecs.orientation import UPRIGHT, read_orientation, read_orientations

PIXELS = photograph(8, 8)
MEMORY = Guarded(5000)


def turned(value: int) -> bytes:
    """An image with this orientation, among other entries."""
    exif = Image.Exif()
    exif[0x010F] = "Maker"
    exif[0x0112] = value
    return encode(PIXELS, exif=exif)


def read(data: bytes) -> int:
    """The orientation of an image, against a guard page."""
    return read_orientation(MEMORY.put(data, True), len(data))


@pytest.mark.parametrize("value", range(1, 9))
def test_the_orientation_is_read(value: int) -> None:
    """Both byte orders, as Pillow understands them."""
    data = turned(value)
    assert Image.open(io.BytesIO(data)).getexif()[0x0112] == value
    assert read(data) == value
    assert data[data.index(b"Exif\0\0") + 6 :].startswith(b"MM")
    little = Image.Exif()
    little.endian = "<"
    little[0x0112] = value
    swapped = encode(PIXELS, exif=little.tobytes())
    assert swapped[swapped.index(b"Exif\0\0") + 6 :].startswith(b"II")
    assert read(swapped) == value


def test_what_states_none_is_upright() -> None:
    """No EXIF, another value, no JPEG at all."""
    for data in (encode(PIXELS), turned(0), turned(9), b"", b"\xff\xd8", b"no image" * 9):
        assert read(data) == UPRIGHT


def test_cut_and_changed_headers_are_read_within_their_bytes() -> None:
    """Whatever a byte becomes and wherever the image ends, the answer is 1 to 8."""
    data = turned(6)
    head = data.index(b"\xff\xdb")
    for index in range(head):
        assert read_orientation(MEMORY.put(data[:index], True), index) == UPRIGHT
        for value in (0, 1, 0xFF):
            changed = data[:index] + bytes([value]) + data[index + 1 : head]
            assert 1 <= read_orientation(MEMORY.put(changed, True), head) <= 8


def test_many_at_once() -> None:
    """One kernel call for a batch."""
    images = [np.frombuffer(turned(value), np.uint8) for value in (3, 8, 1)]
    addresses = np.array([image.ctypes.data for image in images], np.uint64)
    out = np.zeros(3, np.uint8)
    read_orientations(addresses, np.array([len(image) for image in images]), out)
    assert out.tolist() == [3, 8, 1]
