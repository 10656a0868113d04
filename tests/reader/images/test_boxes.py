"""Boxes: how they are distributed, and what they depend on."""

import math

import numpy as np
import pytest

from fieldslab.reader import CenterCrop, RandomResizedCrop, Resize
from fieldslab.reader.images.boxes import draw_boxes, draw_flips

N = 20_000
ROWS = np.arange(N)
SHAPES = {"landscape": (375, 500), "square": (256, 256), "wide": (100, 900), "tiny": (3, 2)}
GOLDEN = [[33, 231, 325, 248], [13, 61, 360, 338], [147, 25, 219, 221], [7, 108, 319, 339]]
FLIPS = "1011010101101000"
"""Drawn by the first version."""

RANGES = {
    "usual": ((0.08, 1.0), (3 / 4, 4 / 3)),
    "narrow": ((0.3, 0.5), (1.0, 2.0)),
    "one ratio": ((0.5, 1.0), (1.0, 1.0)),
}


def sizes(height: int, width: int, count: int = N) -> np.ndarray:
    """The same size for all rows."""
    return np.tile(np.array([height, width]), (count, 1))


def draw_by_the_book(
    height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> np.ndarray:
    """torchvision's published `RandomResizedCrop.get_params`, drawn by numpy, N times."""
    random = np.random.default_rng(1)
    area = height * width * random.uniform(*scale, (N, 10))
    aspect = np.exp(random.uniform(math.log(ratio[0]), math.log(ratio[1]), (N, 10)))
    wide, high = np.rint(np.sqrt(area * aspect)), np.rint(np.sqrt(area / aspect))
    fits = (wide > 0) & (wide <= width) & (high > 0) & (high <= height)
    first = (np.arange(N), fits.argmax(1))  # of ten attempts
    w, h = wide[first].astype(int), high[first].astype(int)
    actual = fits.any(1)
    w[~actual], h[~actual] = width, height
    if width / height < ratio[0]:
        h[~actual] = round(width / ratio[0])
    elif width / height > ratio[1]:
        w[~actual] = round(height * ratio[1])
    top, left = random.integers(height - h + 1), random.integers(width - w + 1)
    top[~actual], left[~actual] = ((height - h) // 2)[~actual], ((width - w) // 2)[~actual]
    return np.stack([top, left, h, w], 1).astype(float)


def differ(sample: np.ndarray, other: np.ndarray) -> bool:
    """Whether two samples are from different distributions, with an error of 1 in 10,000.

    The test of Kolmogorov and Smirnov: the largest distance of their cumulative shares.
    """
    both = np.sort(np.concatenate([sample, other]))
    shares = [np.searchsorted(np.sort(each), both, "right") / len(each) for each in (sample, other)]
    limit = math.sqrt(-math.log(1e-4 / 2) / 2) * math.sqrt(1 / len(sample) + 1 / len(other))
    return float(np.abs(shares[0] - shares[1]).max()) > limit


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("ranges", RANGES.values(), ids=RANGES)
def test_boxes_are_distributed_as_torchvisions(
    shape: tuple[int, int], ranges: tuple[tuple[float, float], tuple[float, float]]
) -> None:
    """Every coordinate, area and shape come from the same distribution (Kolmogorov-Smirnov)."""
    drawn = draw_boxes(RandomResizedCrop(8, *ranges), sizes(*shape), ROWS, 0, 0, 0).astype(float)
    wanted = draw_by_the_book(*shape, *ranges)
    for of in (0, 1, 2, 3):
        assert not differ(drawn[:, of], wanted[:, of])
    assert not differ(drawn[:, 2] * drawn[:, 3], wanted[:, 2] * wanted[:, 3])
    assert not differ(drawn[:, 3] / drawn[:, 2], wanted[:, 3] / wanted[:, 2])
    assert differ(drawn[:, 3] * 1.1, wanted[:, 3]) or shape == SHAPES["tiny"]
    assert (drawn[:, :2] >= 0).all()
    assert (drawn[:, 2:] >= 1).all()
    assert (drawn[:, :2] + drawn[:, 2:] <= shape).all()


def test_scale_and_ratio_have_their_moments() -> None:
    """In a large picture the share of area is uniform, and so is the logarithm of the ratio."""
    crop = RandomResizedCrop(8, (0.1, 0.3))
    boxes = draw_boxes(crop, sizes(8000, 8000), ROWS, 3, 1, 0).astype(float)
    share = boxes[:, 2] * boxes[:, 3] / 8000**2
    ratio = np.log(boxes[:, 3] / boxes[:, 2])
    assert share.mean() == pytest.approx(0.2, abs=0.002)
    assert share.std() == pytest.approx(0.2 / math.sqrt(12), rel=0.02)
    assert ratio.mean() == pytest.approx(0, abs=0.005)
    assert ratio.std() == pytest.approx(2 * math.log(4 / 3) / math.sqrt(12), rel=0.02)
    free = 8000 - boxes[:, 2]
    assert (boxes[:, 0] / free).mean() == pytest.approx(0.5, abs=0.01)


def test_draws_depend_on_seed_epoch_row_and_view_alone() -> None:
    """Rows in any company get the same box; another seed, epoch or view gives another."""
    crop = RandomResizedCrop(8)
    whole = draw_boxes(crop, sizes(300, 400), ROWS, 5, 2, 0)
    chosen = np.array([17, 3, 17, 9999])
    np.testing.assert_array_equal(
        draw_boxes(crop, sizes(300, 400, 4), chosen, 5, 2, 0), whole[chosen]
    )
    for other in ((6, 2, 0), (5, 3, 0), (5, 2, 1)):
        boxes = draw_boxes(crop, sizes(300, 400), ROWS, *other)
        assert (boxes == whole).all(axis=1).mean() < 0.01
        correlation = np.corrcoef(boxes[:, 2], whole[:, 2])[0, 1]
        assert abs(correlation) < 0.05


def test_draws_are_frozen() -> None:
    """A run that resumes in another version draws what it would have drawn."""
    boxes = draw_boxes(
        RandomResizedCrop(224), sizes(375, 500, 4), np.array([0, 1, 2, 10**12]), 7, 3, 1
    )
    assert boxes.tolist() == GOLDEN
    flips = draw_flips(0.5, np.arange(16), 7, 3, 0)
    assert "".join(str(int(flip)) for flip in flips) == FLIPS


def test_flips_come_as_often_as_asked() -> None:
    """A flip has its probability, independently of the box, and of other views."""
    flips = draw_flips(0.3, ROWS, 0, 0, 0)
    assert flips.mean() == pytest.approx(0.3, abs=0.015)
    boxes = draw_boxes(RandomResizedCrop(8), sizes(300, 400), ROWS, 0, 0, 0)
    assert abs(np.corrcoef(flips, boxes[:, 2])[0, 1]) < 0.03
    assert abs(np.corrcoef(flips, draw_flips(0.3, ROWS, 0, 0, 1))[0, 1]) < 0.03
    assert not draw_flips(0.0, ROWS, 0, 0, 0).any()
    assert draw_flips(1.0, ROWS, 0, 0, 0).all()


@pytest.mark.parametrize(
    ("crop", "size", "box"),
    [
        (CenterCrop(224, resize=256), (256, 300), [16, 38, 224, 224]),
        (CenterCrop(224, resize=256), (512, 512), [32, 32, 448, 448]),
        (CenterCrop(224), (375, 500), [0, 62, 375, 375]),
        (CenterCrop((100, 200)), (400, 400), [100, 0, 200, 400]),
        (CenterCrop(224, resize=256), (1, 1), [0, 0, 1, 1]),
        (CenterCrop((10, 200)), (3, 3), [1, 0, 1, 3]),
        (Resize(32), (7, 9), [0, 0, 7, 9]),
        (RandomResizedCrop(32), (0, 0), [0, 0, 0, 0]),
        (CenterCrop(32), (0, 0), [0, 0, 0, 0]),
    ],
)
def test_boxes_that_are_not_drawn(crop: CenterCrop, size: tuple[int, int], box: list[int]) -> None:
    """The middle in proportion, the whole picture, and nothing of nothing."""
    actual = draw_boxes(crop, np.array([size, (640, 480)]), np.array([4, 5]), 0, 0, 0)
    assert actual[0].tolist() == box
