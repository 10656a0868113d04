"""libjpeg-turbo of both generations: what it takes, what it refuses, and how true it is."""

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.jpegs import SAMPLINGS, UNUSUAL, encode, photograph, with_frame
from tests.reader.decoders.battery import Battery
from tests.reader.decoders.decoding import Box, crops_of, decode, encoded, reference
from tests.turbojpegs import GENERATIONS, library_of

from fieldslab.reader.decoders.decoder import Status
from fieldslab.reader.decoders.turbojpeg import TurboJpeg
from fieldslab.schemas.images import CODES

HEIGHT, WIDTH = 131, 203
WHOLE = (0, 0, HEIGHT, WIDTH)
TOP = (0, 0, 40, 50)
UNTOUCHED = 77
ENCODINGS: dict[str, Callable[[np.ndarray], bytes]] = {
    **{name: partial(encode, sampling=name) for name in SAMPLINGS},
    "progressive": UNUSUAL["progressive"],
    "of one scan a component": UNUSUAL["of one scan a component"],
    "restart markers": partial(encode, restart_marker_blocks=3),
}


class TestPlanes(Battery):
    """With the functions of 2.x."""

    encodings: ClassVar = ENCODINGS
    code = CODES["jpeg"]

    @pytest.fixture(autouse=True)
    def library(self) -> None:
        """The test fails, with a hint, where the library is missing."""
        type(self).decoder = TurboJpeg(library_of("2"))


class TestRegions(Battery):
    """With the functions of 3.x."""

    encodings: ClassVar = ENCODINGS
    code = CODES["jpeg"]
    most_mean, least_psnr, least_single = 0.3, 55.0, 45.0

    @pytest.fixture(autouse=True)
    def library(self) -> None:
        """The test fails, with a hint, where the library is missing."""
        type(self).decoder = TurboJpeg(library_of("3"))


@pytest.fixture(params=GENERATIONS)
def decoder(request: pytest.FixtureRequest) -> TurboJpeg:
    """A decoder with the library of each generation."""
    return TurboJpeg(library_of(request.param))


def view_of(
    decoder: TurboJpeg, data: bytes, box: Box = WHOLE, size: Any = None, stated: Any = None
) -> tuple[Status, np.ndarray]:
    """Status and pixels of one box; without `size` the box keeps its own."""
    batch, _kept = encoded([data], [stated or (HEIGHT, WIDTH)], CODES["jpeg"])
    out, statuses = decode(decoder, batch, crops_of([box]), size or box[2:], fill=UNTOUCHED)
    return Status(int(statuses[0])), out[0, 0]


def psnr(image: np.ndarray, other: np.ndarray) -> float:
    """In dB."""
    return float(10 * np.log10(255**2 / max(np.mean((image - other.astype(float)) ** 2), 1e-9)))


BOXES = [
    WHOLE,
    (0, 0, 1, 1),
    (130, 202, 1, 1),
    (17, 33, 50, 61),
    (64, 96, 67, 107),
    (100, 0, 31, 9),
]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("box", BOXES)
def test_a_region_is_that_of_the_whole(decoder: TurboJpeg, sampling: str, box: Box) -> None:
    """Decoding a part gives what a full decode has there: no seams, no edges."""
    data = encode(photograph(HEIGHT, WIDTH), sampling, quality=92)
    status, pixels = view_of(decoder, data, box)
    assert status == Status.OK
    wrong = np.abs(pixels - reference(data, box, box[2:]).astype(int))
    exact = decoder.library.regions or sampling in ("grey", "4:4:4")
    assert wrong.max() <= (1 if exact else 3)


def test_which_kinds_are_taken(decoder: TurboJpeg) -> None:
    """Progressive images and those in several scans are decoded; other kinds are left to others."""
    pixels = photograph(HEIGHT, WIDTH)
    for kind, make in UNUSUAL.items():
        status, _ = view_of(decoder, make(pixels))
        taken = kind in ("progressive", "of one scan a component")
        assert status == (Status.OK if taken else Status.UNSUPPORTED), kind


@pytest.mark.parametrize("box", [WHOLE, TOP])
def test_bytes_behind_the_picture(decoder: TurboJpeg, box: Box) -> None:
    """They are no damage; where they cannot be told from damage, the next decoder is asked."""
    data = encode(photograph(HEIGHT, WIDTH), "4:4:4")
    expected = view_of(decoder, data, box)[1]
    for padded in (data[:-2] + bytes(100) + data[-2:], data + bytes(100)):
        status, pixels = view_of(decoder, padded, box)
        assert status == Status.OK
        np.testing.assert_array_equal(pixels, expected)
    progressive = encode(photograph(HEIGHT, WIDTH), progressive=True)
    padded = progressive[:-2] + bytes(100) + progressive[-2:]
    assert view_of(decoder, padded, box)[0] == Status.UNSUPPORTED


def test_truncation_and_damage_leave_the_place_as_it_was(decoder: TurboJpeg) -> None:
    """Whatever the library warns of is a failure, and nothing of the picture is written."""
    data = encode(photograph(HEIGHT, WIDTH), quality=92)
    scan = data.index(b"\xff\xda")
    damaged = bytearray(data)
    damaged[scan + 400 : scan + 420] = b"\xff\xd0" * 10
    cases = [
        (data[: len(data) // 2], Status.TRUNCATED),
        (data[:-2], Status.TRUNCATED),
        (data[: scan + 8], Status.TRUNCATED),
        (data[:20], Status.TRUNCATED),
        (bytes(damaged), Status.DAMAGED),
        (b"", Status.NOT_AN_IMAGE),
        (b"\x89PNG\r\n\x1a\n" + data, Status.NOT_AN_IMAGE),
    ]
    for case, expected in cases:
        status, pixels = view_of(decoder, case)
        assert status == expected
        assert (pixels == UNTOUCHED).all()


def test_bombs_cost_nothing(decoder: TurboJpeg) -> None:
    """A giant picture is refused by its header, whatever the slab says."""
    bomb = with_frame(encode(photograph(HEIGHT, WIDTH)), 65535, 65535)
    assert view_of(decoder, bomb, (0, 0, 65535, 65535), (8, 8), (65535, 65535))[0] == (
        Status.TOO_LARGE
    )


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_pictures_are_halved_only_where_it_does_not_show(decoder: TurboJpeg, sampling: str) -> None:
    """A crop more than six times larger than its view, and one less, stay above 49 dB."""
    data = encode(photograph(768, 1001), sampling, quality=92)
    for box in ((3, 5, 762, 995), (1, 0, 380, 600)):
        status, pixels = view_of(decoder, data, box, (64, 90), (768, 1001))
        assert status == Status.OK
        assert psnr(pixels, reference(data, box, (64, 90))) > 49


def test_no_image_depends_on_the_one_before(decoder: TurboJpeg) -> None:
    """Tables that an image lacks are not those of the image before; nor is its failure."""
    pixels = photograph(HEIGHT, WIDTH)
    data = encode(pixels, "grey", quality=60)
    tables = data.index(b"\xff\xdb")
    bare = data[:tables] + data[tables + 2 + int.from_bytes(data[tables + 2 : tables + 4], "big") :]
    for _ in range(2):
        assert view_of(decoder, bare)[0] == Status.DAMAGED
        assert view_of(decoder, data)[0] == Status.OK


def test_it_can_be_pickled(decoder: TurboJpeg) -> None:
    """In another process, the library is found anew."""
    data = encode(photograph(HEIGHT, WIDTH))
    other = pickle.loads(pickle.dumps(decoder))
    assert psnr(view_of(other, data)[1], view_of(decoder, data)[1]) > 30
