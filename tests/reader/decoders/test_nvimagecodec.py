"""nvImageCodec, on the processor: the same code as on a GPU, but for the device."""

from typing import ClassVar

import numpy as np
import torch
from PIL import Image
from tests.jpegs import UNUSUAL, encode, photograph
from tests.reader.decoders.battery import Battery
from tests.reader.decoders.decoding import MAX_PIXELS, crops_of, decode, encoded, reference
from tests.reader.decoders.test_turbojpeg import ENCODINGS

from fieldslab.reader.decoders.decoder import Status
from fieldslab.reader.decoders.nvimagecodec import NvImageCodec
from fieldslab.schemas.images import CODES

DECODER = NvImageCodec(None)
ONES, ZEROS = np.ones(3, np.float32), np.zeros(3, np.float32)


class TestNvImageCodec(Battery):
    """Without a GPU."""

    decoder = DECODER
    encodings: ClassVar = ENCODINGS
    code = CODES["jpeg"]
    most_mean, least_psnr, least_single = 0.3, 55.0, 50.0


def test_other_kinds_are_left_to_others() -> None:
    """CMYK, lossless and the like."""
    for kind in ("CMYK", "lossless", "arithmetic", "of height 0"):
        batch, _kept = encoded([UNUSUAL[kind](photograph(40, 50))], [(40, 50)], CODES["jpeg"])
        _, statuses = decode(DECODER, batch, crops_of([(0, 0, 40, 50)]), (8, 8))
        assert statuses.tolist() == [Status.UNSUPPORTED], kind


def test_orientation_is_not_applied() -> None:
    """Boxes are those of the stored picture, whatever EXIF says of turning it."""
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encode(photograph(60, 100), quality=90, exif=exif)
    batch, _kept = encoded([data], [(60, 100)], CODES["jpeg"])
    out, statuses = decode(DECODER, batch, crops_of([(5, 40, 50, 60)]), (50, 60))
    assert statuses.tolist() == [Status.OK]
    wanted = reference(data, (5, 40, 50, 60), (50, 60))
    assert np.abs(out[0, 0] - wanted.astype(int)).max() <= 1


def test_crops_that_stay_on_the_device() -> None:
    """They are those that `decode` makes, as a tensor, with 0 for images that failed."""
    images = [encode(photograph(90, 120, number), quality=90) for number in range(3)]
    damaged = [images[0], images[1][:500], images[2]]
    boxes = [[(0, 0, 90, 120), (10, 20, 33, 64)]] * 3
    flips = np.array([[False, True]] * 3)
    batch, _kept = encoded(damaged, [(90, 120)] * 3, CODES["jpeg"])
    crops = crops_of(boxes, flips)
    which = np.array([2, 1, 0])
    scale, bias = np.array([0.5, 1, 2], np.float32), np.array([0, -3, 7], np.float32)
    out, statuses = DECODER.decode_on_device(
        batch, which, crops, (40, 30), scale, bias, torch.float32, MAX_PIXELS
    )
    assert statuses[[0, 2]].tolist() == [Status.OK] * 2
    assert statuses[1] != Status.OK
    assert out.shape == (3, 2, 3, 40, 30)
    assert not out[1].any()
    for at, image in ((0, 2), (2, 0)):
        for view, box in enumerate(boxes[image]):
            wanted = reference(images[image], box, (40, 30)).astype(np.float32)
            wanted = wanted[:, ::-1] if view else wanted
            found = (out[at, view].numpy().transpose(1, 2, 0) - bias) / scale
            assert np.abs(found - wanted).max() <= 1
    whole, _ = DECODER.decode_on_device(
        batch, which, crops, (40, 30), ONES, ZEROS, torch.uint8, MAX_PIXELS
    )
    assert whole.dtype == torch.uint8
