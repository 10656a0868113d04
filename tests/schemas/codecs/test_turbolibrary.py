"""Finding the TurboJPEG library, and making files baseline with it."""

import io

import numpy as np
import pytest
from PIL import Image
from tests.turbojpegs import GENERATIONS, library_of

from fieldslab.bench.photographs import photographs
from fieldslab.schemas.codecs import turbolibrary
from fieldslab.schemas.codecs.turbolibrary import Library, convert_to_baseline
from fieldslab.schemas.errors import DamagedImage, MissingLibrary
from fieldslab.schemas.images import find_jpeg_frame

BASELINE, PROGRESSIVE = 0xC0, 0xC2
MODES = [("RGB", "4:4:4"), ("RGB", "4:2:2"), ("RGB", "4:2:0"), ("L", "4:4:4"), ("CMYK", "4:4:4")]


@pytest.fixture(params=GENERATIONS)
def library(request: pytest.FixtureRequest) -> Library:
    """A library of each generation."""
    return library_of(request.param)


def encoded(mode: str = "RGB", subsampling: str = "4:2:0", progressive: bool = True) -> bytes:
    """A photograph of an odd size, encoded anew, with EXIF data."""
    (photograph,) = photographs(1, seed=1)
    exif = Image.Exif()
    exif[0x010E] = "a description"
    file = io.BytesIO()
    Image.open(io.BytesIO(photograph)).crop((0, 0, 243, 155)).convert(mode).save(
        file, "JPEG", quality=90, subsampling=subsampling, progressive=progressive, exif=exif
    )
    return file.getvalue()


def pixels(data: bytes) -> np.ndarray:
    """What Pillow makes of it."""
    return np.asarray(Image.open(io.BytesIO(data)))


@pytest.mark.parametrize(("mode", "subsampling"), MODES)
def test_baseline_has_the_same_pixels(library: Library, mode: str, subsampling: str) -> None:
    """A progressive file becomes baseline, bit for bit the same picture, with its EXIF data."""
    data = encoded(mode, subsampling)
    baseline = convert_to_baseline(memoryview(data), library)
    assert find_jpeg_frame(data)[0] == PROGRESSIVE
    assert find_jpeg_frame(baseline)[0] == BASELINE
    np.testing.assert_array_equal(pixels(baseline), pixels(data))
    assert Image.open(io.BytesIO(baseline)).getexif()[0x010E] == "a description"


def test_any_library_makes_the_same_bytes() -> None:
    """Which library is found does not change what is packed."""
    data = encoded()
    assert (
        len({convert_to_baseline(data, library_of(generation)) for generation in GENERATIONS}) == 1
    )


def test_baseline_stays_as_it_is(library: Library) -> None:
    """A file that is baseline is returned byte for byte."""
    data = encoded(progressive=False)
    assert convert_to_baseline(np.frombuffer(data, np.uint8), library) == data


def test_damage_is_named(library: Library) -> None:
    """Nothing is made of a damaged file: what the library says of it is in the error."""
    data = encoded()
    with pytest.raises(DamagedImage, match="Premature end"):
        convert_to_baseline(data[: len(data) // 2], library)
    flipped = bytearray(data)
    for index in range(len(data) // 2, len(data) - 1000, 100):
        flipped[index] ^= 0x55
    with pytest.raises(DamagedImage, match="baseline JPEG"):
        convert_to_baseline(flipped, library)
    for nothing in (b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", data[:100]):
        with pytest.raises(DamagedImage, match="no JPEG header"):
            convert_to_baseline(nothing, library)


def test_bombs_are_refused(library: Library) -> None:
    """A header that states a giant picture is an error before memory is taken for it."""
    data = bytearray(encoded())
    offset = data.index(b"\xff\xc2") + 5
    data[offset : offset + 4] = b"\xff\xff\xff\xff"
    with pytest.raises(DamagedImage, match="too many pixels"):
        convert_to_baseline(data, library)


def test_the_newest_is_used() -> None:
    """A library that can leave out what is not needed is preferred to one that cannot."""
    older, newer = library_of("2"), library_of("3")
    assert turbolibrary.choose_newest([older, newer]) == newer
    assert turbolibrary.choose_newest([older]) == older
    assert newer.regions


def test_without_a_library_it_says_what_to_install() -> None:
    """Where no library is found, the error names packages that have one."""
    with pytest.raises(MissingLibrary, match=r"apt install libturbojpeg0.*pip install pylibjxl"):
        turbolibrary.choose_newest([])


def test_what_exports_no_symbol_is_no_library() -> None:
    """Any other library, and a file that is none, are passed over."""
    assert turbolibrary.load_library("libc.so.6") is None
    assert turbolibrary.load_library(__file__) is None
