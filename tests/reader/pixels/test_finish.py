"""Crop, resize, colours and numbers, beside Pillow."""

from itertools import product

import numpy as np
import pytest
from PIL import Image
from tests.guarded import Guarded
from tests.reader.pixels.pictures import (
    finished,
    photograph,
    psnr,
    resized,
    rgb_picture,
    ycc_picture,
)
from tests.reader.pixels.planes import enlarged, shrunk, to_rgb, to_ycc

from fieldslab.reader.pixels import finish, store

BOXES = {
    "all": (0, 0, 512, 512),
    "usual": (21, 13, 311, 318),
    "enlarged": (100, 200, 90, 61),
    "wide": (10, 0, 7, 512),
    "tall": (0, 500, 512, 5),
    "column": (3, 511, 400, 1),
    "pixel": (511, 511, 1, 1),
}


@pytest.mark.parametrize("box", BOXES.values(), ids=BOXES)
@pytest.mark.parametrize(
    "size", [(224, 224), (32, 48), (7, 300), (1, 1), (15, 17), (3, 2)], ids=str
)
def test_rgb_is_within_a_grey_level_of_pillow(
    box: tuple[int, int, int, int], size: tuple[int, int]
) -> None:
    """Any box to any size is what Pillow's crop and antialiased resize give, rounding apart."""
    out = finished(rgb_picture(photograph()), box, size)
    difference = np.abs(out.astype(int) - resized(photograph(), box, size))
    assert difference.max() <= 1
    assert difference.mean() < 0.35


def test_the_size_of_the_box_gives_the_pixels_themselves() -> None:
    """A box that keeps its size is copied exactly."""
    out = finished(rgb_picture(photograph()), (5, 9, 100, 77), (100, 77))
    np.testing.assert_array_equal(out, photograph()[5:105, 9:86])


@pytest.mark.parametrize(("across", "down"), list(product((0, 1), (0, 1))))
@pytest.mark.parametrize("shape", [(512, 512), (333, 251)], ids=str)
def test_planes_look_as_pillow_decodes_them(shape: tuple[int, int], across: int, down: int) -> None:
    """Subsampled chroma, resized at its own size, stays above 50 dB of blowing it up first."""
    height, width = shape
    y, cb, cr = to_ycc(photograph(*shape))
    small = [shrunk(each, across, down) for each in (cb, cr)]
    blown = [enlarged(each, across, down)[:height, :width] for each in small]
    whole = to_rgb(y, *blown)
    box = (21, 13, height - 40, width - 61)
    out = finished(ycc_picture([y, *small], across, down), box, (224, 224))
    reference = resized(whole, box, (224, 224))
    assert psnr(out, reference) > 50
    assert abs(float((out.astype(float) - reference).mean())) < 0.2


def test_grey_is_the_same_in_three_channels() -> None:
    """One plane becomes red, green and blue alike."""
    grey = np.ascontiguousarray(photograph()[..., 1])
    picture = rgb_picture(grey)
    picture.kind = finish.GREY
    out = finished(picture, BOXES["usual"], (224, 224))
    reference = resized(grey, BOXES["usual"], (224, 224)).astype(int)
    for channel in range(3):
        assert np.abs(out[..., channel] - reference).max() <= 1


def test_a_flip_is_the_mirrored_view() -> None:
    """Flipping while resizing gives exactly the mirrored picture."""
    picture = rgb_picture(photograph())
    plain = finished(picture, BOXES["usual"], (224, 200))
    flipped = finished(picture, BOXES["usual"], (224, 200), flip=True)
    np.testing.assert_array_equal(flipped, plain[:, ::-1])


@pytest.mark.parametrize("width", [224, 201, 3])
def test_every_form_in_both_orders(width: int) -> None:
    """Each dtype holds the same values, rounded to nearest even; channels first or last."""
    scale = np.array([1 / 58.4, 1 / 57.1, 0.0], np.float32)
    bias = np.array([-2.1, 40000.0, 3e-6], np.float32)
    picture, box = rgb_picture(photograph()), BOXES["usual"]
    exact = finished(picture, box, (50, width), form=store.FLOAT32, scale=scale, bias=bias)
    plain = finished(picture, box, (50, width), form=store.FLOAT32)
    np.testing.assert_allclose(exact, plain * scale + bias, rtol=1e-6, atol=1e-5)
    half = finished(picture, box, (50, width), form=store.FLOAT16, scale=scale, bias=bias)
    np.testing.assert_array_equal(half, exact.astype(np.float16))
    brain = finished(picture, box, (50, width), form=store.BFLOAT16, scale=scale, bias=bias)
    bits = exact.view(np.uint32).astype(np.uint64)
    np.testing.assert_array_equal(brain, (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
    last = finished(picture, box, (50, width))
    assert np.abs(last - plain).max() <= 0.5 + 1e-3
    for form in (store.UINT8, store.FLOAT32, store.FLOAT16, store.BFLOAT16):
        rows = finished(picture, box, (50, width), form=form)
        planes = finished(picture, box, (50, width), form=form, first=True)
        np.testing.assert_array_equal(planes, np.moveaxis(rows, 2, 0))


def test_float16_knows_the_small_and_the_huge() -> None:
    """Subnormal numbers are rounded, and what is too large becomes infinite."""
    picture = rgb_picture(photograph())
    for factor in (1e-7, 3e-8, 1e-10, 1.0, -500.0, 300.0):
        scale = np.full(3, factor, np.float32)
        exact = finished(picture, BOXES["usual"], (64, 64), form=store.FLOAT32, scale=scale)
        half = finished(picture, BOXES["usual"], (64, 64), form=store.FLOAT16, scale=scale)
        with np.errstate(over="ignore", under="ignore"):
            np.testing.assert_array_equal(half, exact.astype(np.float16))


def test_nothing_outside_the_box_has_a_part() -> None:
    """Pixels around the box do not change the view: the planes may end where the box does."""
    box = (40, 50, 100, 131)
    inside = np.ascontiguousarray(photograph()[40:140, 50:181])
    picture = rgb_picture(inside)
    picture.top, picture.left = 40, 50
    np.testing.assert_array_equal(
        finished(picture, box, (64, 64)), finished(rgb_picture(photograph()), box, (64, 64))
    )


def test_a_region_of_planes_gives_what_the_whole_gives() -> None:
    """Planes that begin inside the picture are read from there, in chroma, too."""
    y, cb, cr = (np.ascontiguousarray(photograph()[..., i]) for i in range(3))
    cb, cr = (np.ascontiguousarray(each[::2, ::2]) for each in (cb, cr))
    whole = ycc_picture([y, cb, cr], 1, 1)
    box = (37, 51, 101, 99)
    part = [y[32:150, 48:160], cb[16:75, 24:80], cr[16:75, 24:80]]
    part = [np.ascontiguousarray(each) for each in part]
    region = ycc_picture(part, 1, 1)
    region.top, region.left = 32, 48
    region.height, region.width = 118, 112
    whole.height = whole.width = 512
    np.testing.assert_array_equal(finished(region, box, (64, 64)), finished(whole, box, (64, 64)))


@pytest.mark.parametrize("shrink", [1, 2, 3])
@pytest.mark.parametrize(("across", "down"), list(product((0, 1), (0, 1))))
def test_a_shrunken_sample_stands_for_a_square_of_pixels(
    across: int, down: int, shrink: int
) -> None:
    """Planes of fewer samples give the view of planes that repeat each, wherever the box begins."""
    step = 1 << shrink
    sizes = [(512, 512), (512 >> down, 512 >> across)]
    pixels = photograph()
    planes, repeated = [], []
    for number in range(3):
        height, width = sizes[min(number, 1)]
        size = (width >> shrink, height >> shrink)
        small = Image.fromarray(pixels[..., number]).resize(size, Image.Resampling.BOX)
        planes.append(np.asarray(small))
        repeated.append(np.repeat(np.repeat(planes[-1], step, 0), step, 1))
    picture, whole = (ycc_picture(each, across, down) for each in (planes, repeated))
    picture.shrink = picture.chroma_shrink = shrink
    for each in (picture, whole):
        each.height = each.width = 512
    for box in ((0, 0, 512, 512), (20, 40, 300, 200), (21, 43, 333, 267), (3, 5, 509, 507)):
        out, expected = (finished(each, box, (48, 64)) for each in (picture, whole))
        difference = np.abs(out.astype(int) - expected)
        assert difference.max() <= 1, box
        assert difference.mean() < 0.1


def test_shrunken_planes_look_as_the_picture() -> None:
    """Planes at half size, resized to a quarter, are near to what the picture itself gives."""
    half = np.asarray(Image.fromarray(photograph()).resize((256, 256), Image.Resampling.BOX))
    picture = rgb_picture(half)
    picture.shrink = 1
    box = (20, 40, 300, 200)
    out = finished(picture, box, (75, 50))
    assert psnr(out, resized(photograph(), box, (75, 50))) > 38


@pytest.mark.parametrize("at_end", [False, True])
def test_nothing_beside_the_planes_is_read(at_end: bool) -> None:
    """Planes lie against a page that nobody may read: boxes at their edges do not touch it."""
    room = [Guarded(512 * 512 * 3) for _ in range(3)]
    random = np.random.default_rng(int(at_end))
    for _ in range(60):
        height, width = (int(number) for number in random.integers(1, 60, 2))
        pixels = photograph(height, width)
        across, down = (int(number) for number in random.integers(2, size=2))
        planes = to_ycc(pixels)
        planes[1:] = [shrunk(each, across, down) for each in planes[1:]]
        lying = [
            guarded.view(plane.tobytes(), at_end).reshape(plane.shape)
            for guarded, plane in zip(room, planes, strict=True)
        ]
        ycc = ycc_picture(lying, across, down)
        ycc.height, ycc.width = height, width
        top, left = int(random.integers(height)), int(random.integers(width))
        size = (int(random.integers(1, 40)), int(random.integers(1, 40)))
        for box in ((0, 0, height, width), (top, left, height - top, width - left)):
            finished(ycc, box, size)
        placed = room[0].view(pixels.tobytes(), at_end).reshape(pixels.shape)
        for box in ((0, 0, height, width), (top, left, height - top, width - left)):
            out = finished(rgb_picture(placed), box, size)
            assert np.abs(out.astype(int) - resized(pixels, box, size)).max() <= 1
