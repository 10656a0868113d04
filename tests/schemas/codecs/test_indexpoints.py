"""Index points: those that T.81 gives, of images that are whole, and none of all others."""

import random

import numpy as np
import pytest
from tests.guarded import Guarded
from tests.jpegs import SAMPLINGS, UNUSUAL, encode, frame_header, photograph
from tests.schemas.codecs.reference import index_points

from fieldslab.schemas.codecs.indexpoints import find_index_points

SIZES = [(1, 1), (8, 8), (17, 33), (61, 150)]
WAYS = {
    "plain": {},
    "optimised tables": {"optimize": True, "quality": 97},
    "coarse": {"quality": 20},
    "restarts in rows": {"restart_marker_blocks": 3},
    "a restart a row": {"restart_marker_rows": 1},
}
WHOLE = encode(photograph(61, 150))


def found(images: list[bytes], every: int) -> tuple[np.ndarray, list[int]]:
    """Points and counts of some images."""
    values = np.frombuffer(b"".join(images), np.uint8)
    points, counts = find_index_points(values, np.array([len(image) for image in images]), every)
    assert points.dtype == np.uint16
    assert points.shape == (counts.sum(), 5)
    return points, counts.tolist()


def rows(image: bytes, every: int) -> list[list[int]]:
    """What the points of an image must be, as they are stored."""
    points = index_points(image, every)
    return [
        [index & 0xFFFF, index >> 16, *(value & 0xFFFF for value in dc)] for index, dc in points
    ]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_points_are_where_the_standard_puts_them(sampling: str, way: str) -> None:
    """Bits and predictors are those of a decoder written by the letter, for every distance."""
    for height, width in SIZES:
        image = encode(photograph(height, width), sampling, **WAYS[way])
        for every in (0, 1, 3, 8):
            points, counts = found([image], every)
            assert points.tolist() == rows(image, every)
            assert counts == [len(points)]


def test_images_of_many_kinds_lie_one_behind_the_other() -> None:
    """An image without points leaves no gap, and each has its own tables."""
    pixels = photograph(40, 50)
    kinds = [encode(pixels), b"", encode(pixels, "grey", optimize=True), b"no image", b"\xff\xd8"]
    kinds += [UNUSUAL["progressive"](pixels), encode(pixels, "4:4:4", quality=95), WHOLE[:-9]]
    points, counts = found(kinds, 2)
    expected = [rows(kind, 2) if i in (0, 2, 6) else [] for i, kind in enumerate(kinds)]
    assert counts == [len(image_points) for image_points in expected]
    assert points.tolist() == [row for image_points in expected for row in image_points]


@pytest.mark.parametrize("kind", UNUSUAL)
def test_unusual_kinds_have_no_points(kind: str) -> None:
    """What cannot be decoded from the middle is left to other decoders."""
    assert found([UNUSUAL[kind](photograph(40, 50))], 8)[1] == [0]


def test_cut_images_have_no_points() -> None:
    """However short the cut, down to the last byte of the end marker."""
    images = [WHOLE[:length] for length in range(len(WHOLE))]
    assert found(images, 8)[1] == [0] * len(images)


def test_bytes_behind_the_end_do_no_harm() -> None:
    """Cameras put previews there."""
    assert found([WHOLE + b"\xff\xd8more"], 8)[1] == found([WHOLE], 8)[1]


@pytest.mark.parametrize("number", range(3))
def test_a_missing_or_wrong_restart_marker_is_damage(number: int) -> None:
    """Such an image is left to decoders that guess."""
    image = encode(photograph(61, 150), restart_marker_blocks=7)
    offset = image.index(bytes([0xFF, 0xD0 + number]))
    assert found([image], 8)[1][0] > 0
    assert found([image[:offset] + image[offset + 2 :]], 8)[1] == [0]
    assert found([image[: offset + 1] + b"\xd7" + image[offset + 2 :]], 8)[1] == [0]
    assert found([image[:offset] + b"\0" + image[offset:]], 8)[1] == [0]


def test_fill_bytes_in_front_of_markers_are_skipped() -> None:
    """T.81 allows any number of them."""
    image = encode(photograph(61, 150), restart_marker_blocks=7)
    offset = image.index(b"\xff\xd1")
    filled = image[:offset] + b"\xff\xff" + image[offset:-2] + b"\xff" + image[-2:]
    assert found([filled.replace(b"\xff\xdb", b"\xff\xff\xff\xdb")], 4)[1] == found([image], 4)[1]


def test_a_header_that_lies_about_its_size_costs_nothing() -> None:
    """65,535 x 65,535 pixels in 3 kB have no points, and no memory is taken for them."""
    offset = frame_header(WHOLE)
    assert found([WHOLE[: offset + 5] + b"\xff" * 4 + WHOLE[offset + 9 :]], 1)[1] == [0]


def test_lengths_must_fit_the_bytes() -> None:
    """The kernels rely on them."""
    values = np.zeros(10, np.uint8)
    for lengths in ([11], [5, 6], [-1]):
        with pytest.raises(ValueError, match="lengths"):
            find_index_points(values, np.array(lengths), 8)
    with pytest.raises(ValueError, match="every"):
        find_index_points(values, np.array([10]), -1)


@pytest.mark.parametrize("sampling", ["grey", "4:2:0"])
def test_mutated_images_are_never_read_beyond_their_bytes(sampling: str) -> None:
    """With guard pages on both sides, 500 damaged images are walked through; some are refused."""
    image = encode(photograph(61, 150), sampling, restart_marker_blocks=7)
    points = found([image], 4)[1][0]
    generator = random.Random(7)
    memory = Guarded(len(image))
    seen = set()
    for number in range(500):
        changed = bytearray(image)
        for _ in range(generator.randrange(1, 5)):
            changed[generator.randrange(len(image))] = generator.randrange(256)
        data = bytes(changed[: generator.randrange(len(image))] if number % 3 else changed)
        view = memory.view(data, at_end=number % 2 == 0)
        _, counts = find_index_points(view, np.array([len(data)]), 4)
        seen.add(counts[0] > 0)
    assert points > 0
    assert seen == {True, False}
