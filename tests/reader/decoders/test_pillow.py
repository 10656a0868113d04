"""Whatever Pillow reads."""

import io
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
from PIL import Image
from tests.jpegs import SAMPLINGS, UNUSUAL, encode, photograph
from tests.reader.decoders.battery import Battery
from tests.reader.decoders.decoding import crops_of, decode, encoded

from fieldslab.reader.decoders.decoder import Status
from fieldslab.reader.decoders.pillow import Pillow, read_size_and_orientation
from fieldslab.schemas.images import CODES

PILLOW = Pillow()


def save(pixels: Any, codec: str, mode: str | None = None, **options: Any) -> bytes:
    """Encode an array, in another mode if asked to."""
    stream = io.BytesIO()
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(stream, codec, **options)
    return stream.getvalue()


class TestJpeg(Battery):
    """JPEG in every sampling, and of the kinds that other decoders leave to this one."""

    decoder = PILLOW
    encodings: ClassVar = {
        **{name: partial(encode, sampling=name) for name in SAMPLINGS},
        "progressive": UNUSUAL["progressive"],
        "CMYK": UNUSUAL["CMYK"],
        "RGB": UNUSUAL["RGB"],
    }
    code = CODES["jpeg"]
    most_mean, least_psnr, least_single = 0.3, 55.0, 50.0


class TestOthers(Battery):
    """Formats that nothing else reads."""

    decoder = PILLOW
    encodings: ClassVar = {
        "png": partial(save, codec="png"),
        "webp": partial(save, codec="webp"),
        "tiff": partial(save, codec="tiff", compression="tiff_lzw"),
        "gif": partial(save, codec="gif"),
        "avif": partial(save, codec="avif"),
        "palette": partial(save, codec="png", mode="P"),
        "grey": partial(save, codec="png", mode="L"),
        "black and white": partial(save, codec="png", mode="1"),
        "alpha": partial(save, codec="png", mode="RGBA"),
        "bmp": partial(save, codec="bmp"),
    }
    code = CODES[None]
    most_mean, least_psnr, least_single = 0.3, 55.0, 50.0


def test_sixteen_bits_are_cut_to_eight() -> None:
    """The high byte of 16 bits of grey is what is shown."""
    wide = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64) * 16
    batch, _kept = encoded([save(wide, "png")], [(64, 64)], CODES["png"])
    out, statuses = decode(PILLOW, batch, crops_of([(0, 0, 64, 64)]), (64, 64))
    assert statuses.tolist() == [Status.OK]
    for channel in range(3):
        np.testing.assert_array_equal(out[0, 0, :, :, channel], wide >> 8)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_numbers_of_unknown_range_are_not_supported(dtype: Any) -> None:
    """What white is in 32 bits, nobody knows."""
    batch, _kept = encoded([save(np.ones((8, 8), dtype), "tiff")], [(8, 8)], CODES[None])
    out, statuses = decode(PILLOW, batch, crops_of([(0, 0, 8, 8)]), (8, 8), fill=77)
    assert statuses.tolist() == [Status.UNSUPPORTED]
    assert (out == 77).all()


def test_alpha_is_dropped() -> None:
    """Colours under transparent pixels are those that are stored."""
    pixels = np.dstack([photograph(20, 30), np.zeros((20, 30), np.uint8)])
    batch, _kept = encoded([save(pixels, "png")], [(20, 30)], CODES["png"])
    out, _ = decode(PILLOW, batch, crops_of([(0, 0, 20, 30)]), (20, 30))
    np.testing.assert_array_equal(out[0, 0], pixels[..., :3])


def test_measure_reads_headers() -> None:
    """Height, width and orientation; zeros for what is no image."""
    exif = Image.Exif()
    exif[0x0112] = 6
    for codec in ("png", "webp", "avif", "jpeg"):
        assert read_size_and_orientation(save(photograph(30, 50), codec, exif=exif.tobytes())) == (
            30,
            50,
            6,
        )
    assert read_size_and_orientation(save(photograph(30, 50), "tiff", exif=exif)) == (50, 30, 1)
    assert read_size_and_orientation(save(photograph(9, 5), "gif")) == (9, 5, 1)
    assert read_size_and_orientation(b"nothing") == (0, 0, 1)
