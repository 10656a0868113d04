"""Image headers: codec, height and width, and no crash whatever the bytes."""

import io
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fieldslab.schemas.images import FORMATS, detect_format, read_image_size, read_image_sizes

HEIGHT, WIDTH = 21, 34


def picture(codec: str, mode: str = "RGB", **options: Any) -> bytes:
    """A real image of HEIGHT x WIDTH, encoded by Pillow."""
    pixels = np.random.default_rng(3).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, codec, **options)
    return stream.getvalue()


EXIF = Image.Exif()
EXIF[0x0112] = 6  # turned by 90 degrees
REAL = {
    "JPEG": picture("jpeg"),
    "progressive JPEG": picture("jpeg", progressive=True),
    "grey JPEG": picture("jpeg", "L"),
    "CMYK JPEG": picture("jpeg", "CMYK"),
    "JPEG with EXIF orientation": picture("jpeg", exif=EXIF),
    "JPEG with a comment of 60 kB": picture("jpeg", comment=b"\xff\xc0" * 30_000),
    "JPEG with fill bytes": picture("jpeg").replace(b"\xff\xdb", b"\xff\xff\xff\xdb", 1),
    "PNG": picture("png"),
    "PNG with alpha": picture("png", "RGBA"),
    "PNG of one bit": picture("png", "1"),
    "lossy WebP": picture("webp"),
    "lossless WebP": picture("webp", lossless=True),
    "WebP with alpha": picture("webp", "RGBA"),
    "WebP with EXIF": picture("webp", exif=EXIF),
}


@pytest.mark.parametrize("name", REAL)
def test_real_images(name: str) -> None:
    """Height and width are those that were encoded, before any orientation."""
    codec, height, width = read_image_size(memoryview(REAL[name]))
    assert (height, width) == (HEIGHT, WIDTH)
    assert codec in FORMATS
    assert codec in name.lower()


def test_large_sizes() -> None:
    """Sizes up to the limits of each codec are read in full."""
    png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 2**31 - 1, 7)
    assert read_image_size(memoryview(png)) == ("png", 7, 2**31 - 1)
    jpeg = b"\xff\xd8\xff\xc2\0\x11\x08" + struct.pack(">HH", 65535, 65534)
    assert read_image_size(memoryview(jpeg)) == ("jpeg", 65535, 65534)
    webp = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + b"\xff\xff\xff" + b"\0\0\x01"
    assert read_image_size(memoryview(webp)) == ("webp", 65537, 2**24)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"GIF89a" + bytes(20),
        b"RIFF\0\0\0\0WAVE" + bytes(20),
        b"\x89PNG\r\n",
        b"\xff\xd8\xff",
        b"\xff\xd8\xff\xff\xff\xff",
        b"\xff\xd8\xff\xe0\0\0" * 9,
        b"RIFF\0\0\0\0WEBPVP9 " + bytes(30),
        b"RIFF\0\0\0\0WEBP",
    ],
)
def test_no_header_no_size(data: bytes) -> None:
    """Bytes without a readable header are no image: size 0, 0."""
    assert read_image_size(memoryview(data)) == (None, 0, 0)


@pytest.mark.parametrize("name", REAL)
def test_every_truncation(name: str) -> None:
    """An image cut anywhere gives the right size or none."""
    data = REAL[name]
    for size in range(min(len(data), 700)):
        codec, height, width = read_image_size(memoryview(data[:size]))
        expected = (0, 0) if codec is None else (HEIGHT, WIDTH)
        assert (height, width) == expected


@given(st.sampled_from(sorted(REAL)), st.binary(max_size=60), st.integers(2, 40))
def test_any_bytes_give_an_answer(name: str, noise: bytes, cut: int) -> None:
    """Whatever the bytes, there is an answer that a uint32 can hold, and no exception."""
    data = REAL[name][:cut] + noise + REAL[name][cut : cut + 40]
    codec, height, width = read_image_size(memoryview(data))
    assert codec in (None, *FORMATS)
    assert 0 <= height < 2**32
    assert 0 <= width < 2**32


def test_many_at_once() -> None:
    """`read_image_sizes` walks over concatenated images; rows without one get 0, 0."""
    rows = [REAL["PNG"], b"", REAL["JPEG"], b"no image", REAL["lossy WebP"]]
    values = np.frombuffer(b"".join(rows), np.uint8)
    sizes, codecs = read_image_sizes(values, np.array([len(row) for row in rows]))
    full, none = [HEIGHT, WIDTH], [0, 0]
    assert sizes.tolist() == [full, none, full, none, full]
    assert sizes.dtype == np.uint32
    assert codecs == ["png", None, "jpeg", None, "webp"]


def test_format_needs_the_first_bytes_only() -> None:
    """The codec is told by at most twelve bytes."""
    for name, data in REAL.items():
        assert detect_format(memoryview(data[:12])) in name.lower().split() + [
            word for word in FORMATS if word in name.lower()
        ]
