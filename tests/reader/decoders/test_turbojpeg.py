"""libjpeg-turbo of both generations as a decoder: what it takes, refuses, and leaves alone."""

import io
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image
from tests.jpegs import SAMPLINGS, UNUSUAL, encode, photograph, with_frame
from tests.turbojpegs import GENERATIONS, library_of

from fieldslab.reader.decoders.decoder import Crops, Encoded, Status, Target
from fieldslab.reader.decoders.turbojpeg import TurboJpeg

HEIGHT, WIDTH = 131, 203
WHOLE = (0, 0, HEIGHT, WIDTH)
UNTOUCHED = 77
PLENTY = 2**28


@pytest.fixture(scope="module", params=GENERATIONS)
def decoder(request: pytest.FixtureRequest) -> TurboJpeg:
    """A decoder with the library of each generation."""
    return TurboJpeg(library_of(request.param))


class View(NamedTuple):
    """What became of one image."""

    status: Status
    pixels: np.ndarray


def decode(
    decoder: TurboJpeg,
    data: bytes,
    box: tuple[int, int, int, int] = WHOLE,
    out: tuple[int, int] | None = None,
    size: tuple[int, int] = (HEIGHT, WIDTH),
    max_pixels: int = PLENTY,
) -> View:
    """Decode one image; without `out` the box keeps its size."""
    values = np.frombuffer(data, np.uint8)
    images = Encoded(
        np.array([values.ctypes.data], np.uint64), np.array([values.size]),
        np.array([size], np.uint32), np.ones(1, np.uint8), np.zeros(1, np.uint64),
        np.zeros(1, np.int64), 0,
    )  # fmt: skip
    pixels = np.full((1, 1, *(out or box[2:]), 3), UNTOUCHED, np.uint8)
    crops = Crops(np.array([[box]], np.int32), np.zeros((1, 1), np.bool_))
    target = Target(pixels, False, np.ones(3, np.float32), np.zeros(3, np.float32))
    (status,) = decoder.decode(images, np.arange(1), crops, target, max_pixels)
    return View(Status(int(status)), pixels[0, 0])


def by_pillow(
    data: bytes, box: tuple[int, int, int, int] = WHOLE, out: tuple[int, int] | None = None
) -> np.ndarray:
    """The same by a full decode, as int64."""
    top, left, height, width = box
    cut = Image.open(io.BytesIO(data)).convert("RGB").crop((left, top, left + width, top + height))
    if out:
        cut = cut.resize(out[::-1], Image.Resampling.BILINEAR)
    return np.asarray(cut).astype(np.int64)


def psnr(one: np.ndarray, other: np.ndarray) -> float:
    """In dB."""
    return float(10 * np.log10(255**2 / max(np.mean((one - other.astype(float)) ** 2), 1e-9)))


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
def test_a_region_is_that_of_the_whole(
    decoder: TurboJpeg, sampling: str, box: tuple[int, int, int, int]
) -> None:
    """Decoding a part gives what a full decode has there: no seams, no edges."""
    data = encode(photograph(HEIGHT, WIDTH), sampling, quality=92)
    view = decode(decoder, data, box)
    assert view.status == Status.OK
    wrong = np.abs(view.pixels - by_pillow(data, box))
    if decoder.library.regions or sampling in ("grey", "4:4:4"):
        assert wrong.max() <= 1
    else:
        assert wrong.mean() <= 1


def test_which_kinds_are_taken(decoder: TurboJpeg) -> None:
    """Progressive images and those in several scans are decoded; other kinds are left to others."""
    pixels = photograph(HEIGHT, WIDTH)
    for kind, make in UNUSUAL.items():
        view = decode(decoder, make(pixels))
        if kind in ("progressive", "of one scan a component"):
            assert view.status == Status.OK, kind
            assert psnr(view.pixels, by_pillow(make(pixels))) > 40
        else:
            assert view.status == Status.UNSUPPORTED, kind


@pytest.mark.parametrize("restart", [0, 3])
@pytest.mark.parametrize("box", [WHOLE, (0, 0, 40, 50)])
def test_restart_markers(decoder: TurboJpeg, restart: int, box: tuple[int, int, int, int]) -> None:
    """Images with restart markers are decoded as those without."""
    data = encode(photograph(HEIGHT, WIDTH), "4:4:4", restart_marker_blocks=restart)
    view = decode(decoder, data, box)
    assert view.status == Status.OK
    assert np.abs(view.pixels - by_pillow(data, box)).max() <= 1


@pytest.mark.parametrize("box", [WHOLE, (0, 0, 40, 50)])
def test_bytes_behind_the_picture(decoder: TurboJpeg, box: tuple[int, int, int, int]) -> None:
    """They are no damage; where they cannot be told from damage, the next decoder is asked."""
    data = encode(photograph(HEIGHT, WIDTH), "4:4:4")
    view = decode(decoder, data[:-2] + bytes(100) + data[-2:], box)
    assert view.status == Status.OK
    assert np.abs(view.pixels - by_pillow(data, box)).max() <= 1
    assert decode(decoder, data + bytes(100), box).status == Status.OK
    progressive = encode(photograph(HEIGHT, WIDTH), progressive=True)
    padded = progressive[:-2] + bytes(100) + progressive[-2:]
    assert decode(decoder, padded, box).status == Status.UNSUPPORTED


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
    for case, status in cases:
        view = decode(decoder, case)
        assert view.status == status
        assert (view.pixels == UNTOUCHED).all()


def test_headers_are_held_against_the_slab(decoder: TurboJpeg) -> None:
    """Another size than the slab's is an error, as are more pixels than are admitted."""
    data = encode(photograph(HEIGHT, WIDTH))
    assert decode(decoder, data, size=(HEIGHT, WIDTH + 1)).status == Status.OTHER_SIZE
    assert decode(decoder, data, max_pixels=HEIGHT * WIDTH).status == Status.OK
    assert decode(decoder, data, max_pixels=HEIGHT * WIDTH - 1).status == Status.TOO_LARGE
    bomb = with_frame(data, 65535, 65535)
    assert decode(decoder, bomb, size=(65535, 65535)).status == Status.TOO_LARGE


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_pictures_are_halved_only_where_it_does_not_show(decoder: TurboJpeg, sampling: str) -> None:
    """A crop six times larger than its view, and one a little smaller, both stay above 49 dB."""
    data = encode(photograph(768, 1001), sampling, quality=92)
    for box in ((3, 5, 762, 995), (1, 0, 380, 600)):
        view = decode(decoder, data, box, out=(64, 90), size=(768, 1001))
        assert view.status == Status.OK
        assert psnr(view.pixels, by_pillow(data, box, (64, 90))) > 49


def test_views_share_one_decode(decoder: TurboJpeg) -> None:
    """Several views of several images come out as each alone, flipped ones mirrored."""
    pictures = [encode(photograph(HEIGHT, WIDTH, number)) for number in range(3)]
    values = [np.frombuffer(data, np.uint8) for data in pictures]
    images = Encoded(
        np.array([one.ctypes.data for one in values], np.uint64),
        np.array([one.size for one in values]), np.array([[HEIGHT, WIDTH]] * 3, np.uint32),
        np.ones(3, np.uint8), np.zeros(3, np.uint64), np.zeros(3, np.int64), 0,
    )  # fmt: skip
    boxes = np.array([[WHOLE, (9, 9, 60, 60)]] * 3, np.int32)
    flips = np.array([[False, True]] * 3)
    out = np.zeros((3, 2, 3, 32, 32), np.float32)
    target = Target(out, True, np.full(3, 0.5, np.float32), np.full(3, -1, np.float32))
    statuses = decoder.decode(images, np.array([2, 0]), Crops(boxes, flips), target, PLENTY)
    assert statuses.tolist() == [Status.OK, Status.OK]
    assert not out[1].any()
    for image in (0, 2):
        for view, box in enumerate((WHOLE, (9, 9, 60, 60))):
            alone = decode(decoder, pictures[image], box, (32, 32)).pixels
            expected = alone[:, ::-1] if view else alone
            found = (out[image, view].transpose(1, 2, 0) + 1) / 0.5
            assert np.abs(found - expected).max() <= 1.01


def test_threads_share_a_decoder(decoder: TurboJpeg) -> None:
    """Threads that decode at once do not get in each other's way."""
    pictures = [encode(photograph(HEIGHT, WIDTH, number)) for number in range(8)]
    expected = [decode(decoder, data).pixels for data in pictures]
    meeting = threading.Barrier(3)

    def work(_: int) -> None:
        meeting.wait()
        for data, pixels in zip(pictures * 5, expected * 5, strict=True):
            np.testing.assert_array_equal(decode(decoder, data).pixels, pixels)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))


def test_no_image_depends_on_the_one_before(decoder: TurboJpeg) -> None:
    """Tables that an image lacks are not those of the image before."""
    pixels = photograph(HEIGHT, WIDTH)
    data = encode(pixels, "grey", quality=60)
    tables = data.index(b"\xff\xdb")
    bare = data[:tables] + data[tables + 2 + int.from_bytes(data[tables + 2 : tables + 4], "big") :]
    before = decode(decoder, bare)
    assert decode(decoder, encode(pixels, "grey", quality=10)).status == Status.OK
    assert decode(decoder, bare).status == before.status == Status.DAMAGED


def test_it_can_be_pickled(decoder: TurboJpeg) -> None:
    """In another process, the library is found anew."""
    data = encode(photograph(HEIGHT, WIDTH))
    other = pickle.loads(pickle.dumps(decoder))
    np.testing.assert_allclose(decode(other, data).pixels, decode(decoder, data).pixels, atol=40)
