"""nvImageCodec, on the processor: the same code as on a GPU, but for the device."""

from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from tests.jpegs import UNUSUAL, encode, photograph
from tests.reader.decoders.battery import Battery
from tests.reader.decoders.decoding import MAX_PIXELS, crops_of, decode, encoded, reference
from tests.reader.decoders.test_turbojpeg import ENCODINGS
from tests.reader.images.packing import pack_images

from fieldslab.reader import Loader, Slab
from fieldslab.reader.decoders.decoder import Status
from fieldslab.reader.decoders.nvimagecodec import NvImageCodec
from fieldslab.reader.images.normalize import Normalize
from fieldslab.reader.images.steps import (
    CenterCrop,
    ImageSteps,
    MultiCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
)
from fieldslab.reader.orders.order import Sequential
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.images import CODES

DECODER = NvImageCodec(None)


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
    """They are those that `decode` makes, as a tensor; places of images that fail are left."""
    images = [encode(photograph(90, 120, number), quality=90) for number in range(3)]
    damaged = [images[0], images[1][:500], images[2]]
    boxes = [[(0, 0, 90, 120), (10, 20, 33, 64)]] * 3
    flips = np.array([[False, True]] * 3)
    batch, _kept = encoded(damaged, [(90, 120)] * 3, CODES["jpeg"])
    crops = crops_of(boxes, flips)
    which = np.array([2, 1, 0])
    scale, bias = np.array([0.5, 1, 2], np.float32), np.array([0, -3, 7], np.float32)
    out = torch.full((3, 2, 3, 40, 30), 9, dtype=torch.float32)
    statuses = DECODER.decode_on_device(batch, which, crops, out, scale, bias, MAX_PIXELS)
    assert statuses[[0, 2]].tolist() == [Status.OK] * 2
    assert statuses[1] != Status.OK
    assert bool((out[1] == 9).all())
    for image in (0, 2):
        for view, box in enumerate(boxes[image]):
            wanted = reference(images[image], box, (40, 30)).astype(np.float32)
            wanted = wanted[:, ::-1] if view else wanted
            actual = (out[image, view].numpy().transpose(1, 2, 0) - bias) / scale
            assert np.abs(actual - wanted).max() <= 1


class Leaving:
    """NVIDIA's decoder as other versions have it: what fails is left out of the list."""

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder

    def decode(self, streams: Any, **options: Any) -> list[Any]:
        """The pictures of those that were decoded."""
        return [each for each in self._decoder.decode(streams, **options) if each is not None]


def test_images_that_the_library_leaves_out_are_failures() -> None:
    """Nobody gets the picture of another, nor of nothing, where the list is too short."""
    images = [encode(photograph(90, 120, number), quality=90) for number in range(3)]
    batch, _kept = encoded([images[0], images[1][:500], images[2]], [(90, 120)] * 3, CODES["jpeg"])
    codec = NvImageCodec(None)
    codec._local.decoder = Leaving(codec._get_decoder())
    out = torch.zeros((3, 1, 3, 90, 120))
    ones, zeros = np.ones(3, np.float32), np.zeros(3, np.float32)
    crops = crops_of([[(0, 0, 90, 120)]] * 3, np.zeros((3, 1), np.bool_))
    statuses = codec.decode_on_device(batch, np.arange(3), crops, out, ones, zeros, MAX_PIXELS)
    assert [status == Status.OK for status in statuses] == [True, False, True]
    wanted = reference(images[2], (0, 0, 90, 120), (90, 120)).astype(np.float32)
    assert np.abs(out[2, 0].numpy().transpose(1, 2, 0) - wanted).max() <= 1


@pytest.fixture(scope="module")
def slab(tmp_path_factory: pytest.TempPathFactory) -> Slab:
    """Five photographs, one of them turned by EXIF and one cut off; and a null."""
    exif = Image.Exif()
    exif[0x0112] = 6
    rows = [encode(photograph(90, 120, number), quality=90) for number in range(5)]
    rows[1] = encode(photograph(90, 120, 1), quality=90, exif=exif)
    rows[2] = rows[2][:700]
    return pack_images(tmp_path_factory.mktemp("device"), [*rows, None], nulls="image=mask")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_batch_on_a_device(slab: Slab, dtype: Any) -> None:
    """`device` gives a tensor of the values that arrays have without it, filled as they are."""
    steps = [RandomResizedCrop(32), RandomHorizontalFlip(), Normalize(dtype=dtype)]
    options: dict[str, Any] = {"decoder": "nvimagecodec", "on_error": "fill", "apply_exif": True}
    rows = np.arange(len(slab))
    host = slab.gather(rows, decode={"image": ImageSteps(steps, **options)}, epoch=1)
    batch = slab.gather(rows, decode={"image": ImageSteps(steps, device="cpu", **options)}, epoch=1)
    tensor = batch["image"]
    assert isinstance(tensor, torch.Tensor)
    assert tensor.dtype == getattr(torch, dtype)
    wanted = torch.from_numpy(host["image"])
    wanted = wanted.view(torch.bfloat16) if dtype == "bfloat16" else wanted
    level = 1 / 255 / 0.22  # a grey level, normalized
    assert (tensor.float() - wanted.float()).abs().max() < 1.5 * level + 0.02
    assert batch.failures == host.failures
    assert [failure.row for failure in batch.failures] == [2]
    assert batch.nbytes == host.nbytes


def test_views_and_skipped_rows_on_a_device(slab: Slab) -> None:
    """Views of several sizes are tensors, and rows that are skipped are missing in each."""
    steps = [MultiCrop([RandomResizedCrop(32), CenterCrop(16)])]
    images = ImageSteps(steps, decoder="nvimagecodec", on_error="skip", device="cpu")
    batch = slab.gather(np.arange(5), decode={"image": images})
    large, small = batch["image"]
    assert large.shape == (4, 1, 3, 32, 32)
    assert small.shape == (4, 1, 3, 16, 16)
    assert large.dtype == torch.uint8


def test_a_loader_gives_tensors_of_a_device(slab: Slab) -> None:
    """With `output="torch"` they come as they are."""
    images = ImageSteps([CenterCrop(16)], decoder="nvimagecodec", on_error="fill", device="cpu")
    loader = Loader(slab, 3, Sequential(), decode={"image": images}, output="torch")
    assert [batch["image"].shape for batch in loader] == [(3, 3, 16, 16)] * 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cuda:99", "decoder": "nvimagecodec"}, "device cannot be used"),
        ({"device": "moon", "decoder": "nvimagecodec"}, "no such device"),
        ({"device": 0, "decoder": "nvimagecodec"}, "must be the name of a device"),
        ({"device": "cpu"}, "cannot decode on a device"),
        ({"device": "cpu", "decoder": "nvimagecodec", "channels_first": False}, "channels_first"),
    ],
)
def test_devices_that_cannot_be(slab: Slab, options: Any, message: str) -> None:
    """A device that is not there, or that nothing can decode on, is named."""
    with pytest.raises(UsageError, match=message):
        slab.gather([0], decode={"image": ImageSteps([CenterCrop(16)], **options)})
