"""What every decoder must hold to: a class of tests, inherited once for each decoder.

class TestMine(Battery):
    decoder = Mine()
    encodings = {"4:2:0": partial(encode, sampling="4:2:0"), ...}
    code = CODES["jpeg"]
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.guarded import Guarded
from tests.jpegs import photograph
from tests.reader.decoders.decoding import (
    Box,
    crops_of,
    decode,
    encoded,
    reference,
    target_of,
)

from fieldslab.reader.decoders.decoder import Decoder, EncodedImages, Status

FAILED = frozenset({Status.NOT_AN_IMAGE, Status.TRUNCATED, Status.DAMAGED, Status.OTHER_SIZE})
SIZES = ((1, 1), (1, 17), (16, 16), (33, 7), (100, 75), (255, 333), (480, 641))
VIEW = (224, 224)


def boxes_of(height: int, width: int, seed: int) -> list[Box]:
    """The whole picture, its last pixel, and three random boxes."""
    random = np.random.default_rng(seed)
    boxes = [(0, 0, height, width), (height - 1, width - 1, 1, 1)]
    for _ in range(3):
        tall, wide = int(random.integers(1, height + 1)), int(random.integers(1, width + 1))
        top, left = (int(random.integers(n + 1)) for n in (height - tall, width - wide))
        boxes.append((top, left, tall, wide))
    return boxes


class Battery:
    """Inherit from this and set the attributes."""

    decoder: ClassVar[Decoder]
    encodings: ClassVar[Mapping[str, Callable[[np.ndarray], bytes]]]
    """Each makes an image of uint8[height, width, 3]."""
    code: ClassVar[int]
    """What the images are, by `CODES`."""
    mutations = 300
    """How many damaged images are tried."""
    checks_content = True
    """Whether garbage can be told from an image at all: any pixels are right."""
    most_mean, least_psnr, least_single = 0.5, 50.0, 40.0
    """Against `reference`: mean difference, and PSNR in dB over all images and of each."""

    def reference(
        self, data: bytes, box: Box, size: tuple[int, int], shape: tuple[int, int]
    ) -> np.ndarray:
        """What a view should look like; `shape` is height and width of the picture."""
        return reference(data, box, size)

    def make(self, height: int, width: int, number: int = 0) -> bytes:
        """An image in the first of the encodings."""
        return next(iter(self.encodings.values()))(photograph(height, width, number))

    def batch(
        self, images: list[bytes], sizes: Any, indexed: list[bytes] | None = None
    ) -> tuple[EncodedImages, Any]:
        """Images of this decoder's code in memory."""
        return encoded(images, sizes, self.code, indexed)

    def views(self, count: int = 6) -> tuple[EncodedImages, Any, Any]:
        """A batch of photographs of 100 x 140 pixels, what keeps it, and three boxes for each."""
        images = [self.make(100, 140, number) for number in range(count)]
        batch, kept = self.batch(images, [(100, 140)] * count)
        boxes = [[(i, 3, 60 + i, 100), (0, 0, 100, 140), (20, 2 * i, 31, 17)] for i in range(count)]
        return batch, kept, boxes

    def test_pictures_look_as_pillow_decodes_them(self) -> None:
        """Over all encodings, sizes and boxes: close in the mean, in PSNR, and in each view."""
        squares, differences, worst = [], [], {}
        for (name, encode), (height, width) in product(self.encodings.items(), SIZES):
            data = encode(photograph(height, width, height))
            boxes = boxes_of(height, width, height)
            batch, _kept = self.batch([data], [(height, width)])
            out, statuses = decode(self.decoder, batch, crops_of([boxes]), VIEW)
            assert statuses.tolist() == [Status.OK], (name, height, width)
            for view, box in zip(out[0], boxes, strict=True):
                wanted = self.reference(data, box, VIEW, (height, width))
                error = view.astype(float) - wanted
                squares.append(np.square(error).mean())
                differences.append(np.abs(error).mean())
                worst[name, height, width, box] = 10 * np.log10(255**2 / max(squares[-1], 1e-9))
        assert np.mean(differences) <= self.most_mean
        assert 10 * np.log10(255**2 / np.mean(squares)) >= self.least_psnr
        assert {key: psnr for key, psnr in worst.items() if psnr < self.least_single} == {}

    def test_views_are_what_single_crops_are(self) -> None:
        """Several views of an image are those that it has alone, each flipped or not."""
        batch, _kept, boxes = self.views()
        flips = np.arange(18).reshape(6, 3) % 2 == 0
        out, statuses = decode(self.decoder, batch, crops_of(boxes, flips), (48, 64))
        assert (statuses == Status.OK).all()
        for view in range(3):
            alone = crops_of([image[view] for image in boxes])
            single, _ = decode(self.decoder, batch, alone, (48, 64))
            for image, flip in enumerate(flips[:, view]):
                wanted = single[image, 0, :, ::-1] if flip else single[image, 0]
                np.testing.assert_array_equal(out[image, view], wanted)

    def test_only_the_chosen_are_written(self) -> None:
        """`which` says whose places are written; the others are left as they were."""
        batch, _kept, boxes = self.views()
        crops = crops_of([image[0] for image in boxes])
        whole, _ = decode(self.decoder, batch, crops, (32, 32))
        out = np.full((6, 1, 32, 32, 3), 77, np.uint8)
        which = np.array([4, 1])
        statuses = self.decoder.decode(batch, which, crops, target_of(out), 2**20)
        assert statuses.tolist() == [Status.OK] * 2
        assert statuses.dtype == np.int32
        for image in range(6):
            wanted = whole[image] if image in (1, 4) else np.full_like(whole[image], 77)
            np.testing.assert_array_equal(out[image], wanted)

    def test_nobody_chosen(self) -> None:
        """An empty choice does nothing."""
        batch, _kept, boxes = self.views(1)
        out = np.full((1, 3, 8, 8, 3), 77, np.uint8)
        none = np.empty(0, np.int64)
        assert len(self.decoder.decode(batch, none, crops_of(boxes), target_of(out), 9)) == 0
        assert (out == 77).all()

    @pytest.mark.parametrize("first", [False, True])
    def test_numbers_in_every_form(self, first: bool) -> None:
        """Floats are scale * value + bias of what uint8 holds, in both orders of channels."""
        batch, _kept, boxes = self.views()
        crops = crops_of(boxes)
        grey, _ = decode(self.decoder, batch, crops, (30, 41))
        shape = (6, 3, 3, 30, 41) if first else (6, 3, 30, 41, 3)
        wanted = np.moveaxis(grey, 4, 2) if first else grey
        actual = {}
        for dtype in (np.uint8, np.float32, np.float16, np.uint16):
            actual[dtype] = np.full(shape, 9, dtype)
            scale, bias = (1, 0) if dtype is np.uint8 else (1 / 64, -2)
            target = target_of(actual[dtype], first, scale, bias)
            assert (self.decoder.decode(batch, np.arange(6), crops, target, 2**20) == 0).all()
        np.testing.assert_array_equal(actual[np.uint8], wanted)
        np.testing.assert_allclose(actual[np.float32], wanted / 64 - 2, atol=0.502 / 64)
        np.testing.assert_array_equal(actual[np.float16], actual[np.float32].astype(np.float16))
        brain = (actual[np.uint16].astype(np.uint32) << 16).view(np.float32)
        np.testing.assert_allclose(brain, actual[np.float32], rtol=2**-8, atol=1e-30)

    def test_threads_see_what_one_sees(self) -> None:
        """Four threads on one decoder get what one gets."""
        batch, _kept, boxes = self.views()
        crops = crops_of(boxes)
        alone, _ = decode(self.decoder, batch, crops, (64, 64))
        with ThreadPoolExecutor(4) as threads:
            for out, statuses in threads.map(
                lambda _: decode(self.decoder, batch, crops, (64, 64)), range(24)
            ):
                assert (statuses == Status.OK).all()
                np.testing.assert_array_equal(out, alone)

    def test_a_damaged_image_spoils_no_other(self) -> None:
        """Those that cannot be decoded have a status and an untouched place; the rest is right."""
        images = [self.make(90, 70, number) for number in range(5)]
        broken = list(images)
        broken[1] = images[1][: len(images[1]) // 2]
        broken[3] = b""
        boxes = crops_of([(0, 0, 90, 70)] * 5)
        batch, _kept = self.batch(images, [(90, 70)] * 5)
        whole, _ = decode(self.decoder, batch, boxes, (32, 32))
        batch, _kept = self.batch(broken, [(90, 70)] * 5, images)
        out, statuses = decode(self.decoder, batch, boxes, (32, 32), fill=77)
        assert {Status(statuses[1]), Status(statuses[3])} <= FAILED
        assert statuses[[0, 2, 4]].tolist() == [Status.OK] * 3
        assert (out[[1, 3]] == 77).all()
        np.testing.assert_array_equal(out[[0, 2, 4]], whole[[0, 2, 4]])

    def test_garbage_is_no_image(self) -> None:
        """Random bytes, zeros and text are no images."""
        if not self.checks_content:
            return
        noise = np.random.default_rng(0).bytes(5000)
        garbage = [noise, bytes(5000), b"hello" * 900, b"\xff\xd8\xff", self.make(20, 20)[:9]]
        batch, _kept = self.batch(garbage, [(20, 20)] * 5, [self.make(20, 20)] * 5)
        out, statuses = decode(self.decoder, batch, crops_of([(0, 0, 20, 20)] * 5), (8, 8), 77)
        assert {Status(status) for status in statuses} <= FAILED | {Status.UNSUPPORTED}
        assert (out == 77).all()

    def test_another_size_than_the_slab_states(self) -> None:
        """Boxes were drawn for the size in the slab: an image that has another fails."""
        data = self.make(60, 50)
        wrong = [(61, 50), (60, 49), (600, 500), (6, 5)]
        if self.checks_content:
            wrong.append((50, 60))
        for height, width in wrong:
            batch, _kept = self.batch([data], [(height, width)])
            boxes = crops_of([(0, 0, height, width)])
            out, statuses = decode(self.decoder, batch, boxes, (8, 8), fill=77)
            assert Status(statuses[0]) in FAILED
            assert (out == 77).all()

    def test_too_many_pixels(self) -> None:
        """An image with more than `max_pixels` is refused, one with as many is not."""
        batch, _kept = self.batch([self.make(40, 50)], [(40, 50)])
        boxes = crops_of([(0, 0, 40, 50)])
        out, statuses = decode(self.decoder, batch, boxes, (8, 8), fill=77, max_pixels=1999)
        assert statuses.tolist() == [Status.TOO_LARGE]
        assert (out == 77).all()
        _, statuses = decode(self.decoder, batch, boxes, (8, 8), max_pixels=2000)
        assert statuses.tolist() == [Status.OK]

    def test_mutations(self) -> None:
        """Flipped bits, cuts and moved parts: an error, or a picture; nothing stale, no wild read.

        The image lies against a page that nobody may read. A failure leaves its place as it was;
        what is called decoded does not depend on what was there before.
        """
        random = np.random.default_rng(7)
        names = list(self.encodings)
        room = Guarded(200_000)
        crops = crops_of([[(0, 0, 50, 67), (21, 30, 20, 30)]])
        pixels = photograph(50, 67, 3)
        for number in range(self.mutations):
            whole = self.encodings[names[number % len(names)]](pixels)
            data = mutated(whole, random)
            batch, _kept = self.batch([data], [(50, 67)], [whole])
            address = room.put(data, at_end=number % 3 != 0)
            batch = batch._replace(addresses=np.array([address], np.uint64))
            out, statuses = decode(self.decoder, batch, crops, (24, 24), fill=77)
            again, _ = decode(self.decoder, batch, crops, (24, 24), fill=178)
            if statuses[0] == Status.OK:
                np.testing.assert_array_equal(out, again)
            else:
                assert (out == 77).all()
                assert (again == 178).all()


def mutated(data: bytes, random: np.random.Generator) -> bytes:
    """An image that was damaged in one of several ways."""
    changed = bytearray(data)
    kind = random.integers(6)
    offset = int(random.integers(len(data)))
    if kind == 0:
        return data[:offset]
    if kind == 1:
        other = int(random.integers(len(data)))
        changed[offset : offset + 32] = data[other : other + 32]
    elif kind == 2:
        del changed[offset : offset + int(random.integers(1, 40))]
    elif kind == 3:
        changed[offset : offset + 2] = b"\xff" + bytes([int(random.integers(0xC0, 0xFF))])
    else:  # headers are short and decide most: half of these flips go there
        limit = len(data) if kind == 4 else min(700, len(data))
        for _ in range(int(random.integers(1, 6))):
            changed[int(random.integers(limit))] ^= 1 << int(random.integers(8))
    return bytes(changed)
