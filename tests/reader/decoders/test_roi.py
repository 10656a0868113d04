"""The decoder by index points: what it takes, what it leaves, and how it tells damage."""

import math
import pickle
from functools import partial
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.guarded import Guarded
from tests.jpegs import SAMPLINGS, UNUSUAL, encode, photograph
from tests.reader.decoders.battery import Battery
from tests.reader.decoders.decoding import crops_of, decode, encoded, reference
from tests.reader.pixels.pictures import psnr

from fieldslab.bench import photographs
from fieldslab.reader.decoders.decoder import EncodedImages, Status
from fieldslab.reader.decoders.roi import Roi
from fieldslab.schemas.codecs.indexpoints import find_index_points
from fieldslab.schemas.images import CODES

ROI = Roi()
JPEG = CODES["jpeg"]
WAYS: dict[str, dict[str, Any]] = {
    "": {},
    ", restarts": {"restart_marker_blocks": 5},
    ", optimised": {"optimize": True, "quality": 98},
    ", coarse": {"quality": 30},
}


class TestRoi(Battery):
    """Every sampling, with restart markers, with tables of their own, at low quality."""

    decoder = ROI
    encodings: ClassVar = {
        name + way: partial(encode, sampling=name, **options)
        for name, (way, options) in product(SAMPLINGS, WAYS.items())
    }
    code = JPEG
    mutations = 2000


SHRUNK_FROM = 3.5, 9, 28


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_views_made_much_smaller_look_as_pillow_decodes_them(sampling: str) -> None:
    """At 1/2, 1/4 and 1/8 of their size, blocks give 45 dB in each view; at full size 50 in all."""
    pictures = [np.asarray(each) for each in photographs.pictures()[::2]]
    for scale in (3.4, *SHRUNK_FROM, 4.7, 8.9, 12, 27, 32):
        results = []
        for pixels in pictures:
            data, shape = encode(pixels, sampling), pixels.shape[:2]
            side = int((min(shape) - 20) / scale)
            length = math.ceil(side * scale)
            box, size = (7, 13, length, length), (side, side)
            batch, _kept = encoded([data], [shape], JPEG)
            out, statuses = decode(ROI, batch, crops_of([box]), size)
            assert statuses.tolist() == [Status.OK]
            results.append(psnr(out[0, 0], reference(data, box, size)))
        assert min(results) >= 45, scale
        assert scale >= SHRUNK_FROM[0] or np.mean(results) >= 50


@pytest.mark.parametrize("every", [0, 3, 8])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_shrunken_views_do_not_depend_on_the_points(sampling: str, every: int) -> None:
    """A box anywhere in the picture, from any index point on, is cut from the same samples."""
    data = encode(photograph(333, 401), sampling, restart_marker_blocks=7)
    points, _ = find_index_points(np.frombuffer(data, np.uint8), np.array([len(data)]), every)
    batch, _kept = with_points(data, points, every, (333, 401))
    other, _also = encoded([data], [(333, 401)], JPEG)
    for box in ((0, 0, 333, 401), (100, 131, 233, 270), (17, 255, 146, 146)):
        for size in (40, 15, 4):
            out, statuses = decode(ROI, batch, crops_of([box]), (size, size))
            assert statuses.tolist() == [Status.OK]
            np.testing.assert_array_equal(out, decode(ROI, other, crops_of([box]), (size, size))[0])


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_an_image_after_a_shrunken_one_is_decoded_alike(sampling: str) -> None:
    """Nothing is left behind: whole, shrunk and whole again gives the same as each alone."""
    data = encode(photograph(200, 240), sampling, quality=97)
    batch, _kept = encoded([data] * 3, [(200, 240)] * 3, JPEG)
    boxes = [(0, 0, 40, 48), (0, 0, 200, 240), (0, 0, 40, 48)]
    for size in (40, 20, 10, 5, 3):
        out, _ = decode(Roi(), batch, crops_of(boxes), (size, size))
        for number, box in enumerate(boxes):
            single, _kept_too = encoded([data], [(200, 240)], JPEG)
            alone, _ = decode(Roi(), single, crops_of([box]), (size, size))
            np.testing.assert_array_equal(out[number], alone[0])


def with_points(
    data: bytes, points: np.ndarray, every: int, size: Any
) -> tuple[EncodedImages, Any]:
    """An image with points that may lie."""
    batch, kept = encoded([data], [size], JPEG)
    actual = np.ascontiguousarray(points)
    batch = batch._replace(
        points=np.array([actual.ctypes.data], np.uint64),
        counts=np.array([len(actual)]),
        every=every,
    )
    return batch, (kept, actual)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_all_distances_of_points_give_the_same(sampling: str) -> None:
    """Whatever lies between two points, and with one point a row."""
    data = encode(photograph(130, 201), sampling, restart_marker_blocks=7)
    boxes = crops_of([[(0, 0, 130, 201), (31, 90, 55, 66), (129, 200, 1, 1)]])
    wanted = None
    for every in (0, 1, 3, 8, 100):
        points, _ = find_index_points(np.frombuffer(data, np.uint8), np.array([len(data)]), every)
        batch, _kept = with_points(data, points, every, (130, 201))
        out, statuses = decode(ROI, batch, boxes, (40, 40))
        assert statuses.tolist() == [Status.OK]
        wanted = out if wanted is None else wanted
        np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("kind", UNUSUAL)
def test_other_kinds_are_left_to_other_decoders(kind: str) -> None:
    """They have no points; with points of another image they are refused all the same."""
    pixels = photograph(48, 64)
    batch, _kept = encoded([UNUSUAL[kind](pixels)], [(48, 64)], JPEG)
    out, statuses = decode(ROI, batch, crops_of([(0, 0, 48, 64)]), (8, 8), fill=77)
    assert statuses.tolist() == [Status.UNSUPPORTED]
    batch, _kept = encoded([UNUSUAL[kind](pixels)], [(48, 64)], JPEG, [encode(pixels)])
    out, statuses = decode(ROI, batch, crops_of([(0, 0, 48, 64)]), (8, 8), fill=77)
    assert statuses.tolist() == [Status.UNSUPPORTED]
    assert (out == 77).all()


def test_points_that_lie_are_damage() -> None:
    """Another bit, another predictor, one too many or too few: never a wrong picture here."""
    data = encode(photograph(64, 200))
    points, counts = find_index_points(np.frombuffer(data, np.uint8), np.array([len(data)]), 8)
    boxes = crops_of([(0, 0, 64, 200)])
    assert counts.tolist() == [8]
    lies = [points[:-1], np.concatenate([points, points[-1:]]), points[::-1]]
    for place, value in product(range(5), (1, 0x7FFF, 0xFFFF)):
        lies.append(points.copy())
        lies[-1][3, place] ^= value
    for lie in lies:
        batch, _kept = with_points(data, lie, 8, (64, 200))
        out, statuses = decode(ROI, batch, boxes, (32, 32), fill=77)
        assert Status(statuses[0]) in (Status.DAMAGED, Status.TRUNCATED)
        assert (out == 77).all()


def test_random_points_lead_nowhere_else() -> None:
    """Against guard pages, a thousand lies are refused, or decoded from the image's bytes."""
    data = encode(photograph(64, 200), restart_marker_blocks=5)
    points, _ = find_index_points(np.frombuffer(data, np.uint8), np.array([len(data)]), 8)
    random = np.random.default_rng(5)
    room = Guarded(len(data))
    boxes = crops_of([[(0, 0, 64, 200), (20, 130, 30, 31)]])
    seen = set()
    for number in range(1000):
        lie = points.copy()
        some = random.random(lie.shape) < random.choice([0.02, 0.5, 1.0])
        lie[some] = random.integers(0, 2**16, some.sum())
        if number % 2:
            lie[:, 1] = 0  # so that more of them lie in the image
        batch, _kept = with_points(data, lie, 8, (64, 200))
        address = room.put(data, at_end=number % 3 > 0)
        batch = batch._replace(addresses=np.array([address], np.uint64))
        out, statuses = decode(ROI, batch, boxes, (24, 24), fill=77)
        seen.add(Status(statuses[0]))
        assert statuses[0] == Status.OK or (out == 77).all()
    assert Status.DAMAGED in seen


def test_damage_between_points_is_told_at_the_next() -> None:
    """A flipped bit that changes a DC value, or where codes begin, contradicts the next point."""
    data = encode(photograph(128, 256), quality=90)
    random = np.random.default_rng(9)
    boxes = crops_of([(0, 0, 128, 256)])
    scan = data.index(b"\xff\xda") + 14
    count = 0
    for _ in range(200):
        changed = bytearray(data)
        changed[int(random.integers(scan, len(data) - 2))] ^= 1 << int(random.integers(8))
        batch, _kept = encoded([bytes(changed)], [(128, 256)], JPEG, [data])
        _, statuses = decode(ROI, batch, boxes, (8, 8))
        count += statuses[0] != Status.OK
    assert count > 40  # the others change single coefficients


def test_a_box_outside_of_the_picture_is_refused() -> None:
    """Boxes are checked against the header, not believed."""
    batch, _kept = encoded([encode(photograph(40, 50))], [(40, 50)], JPEG)
    for box in [(0, 0, 41, 50), (-1, 0, 5, 5), (0, 46, 5, 5), (0, 0, 0, 5), (9, 9, 2**31 - 1, 5)]:
        out, statuses = decode(ROI, batch, crops_of([box]), (8, 8), fill=77)
        assert statuses.tolist() == [Status.OTHER_SIZE]
        assert (out == 77).all()


def test_it_can_be_pickled() -> None:
    """As a loader's workers want it."""
    batch, _kept = encoded([encode(photograph(40, 50))], [(40, 50)], JPEG)
    boxes = crops_of([(3, 4, 30, 40)])
    out, _ = decode(pickle.loads(pickle.dumps(ROI)), batch, boxes, (8, 8))
    np.testing.assert_array_equal(out, decode(ROI, batch, boxes, (8, 8))[0])
