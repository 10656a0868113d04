"""JPEG images by NVIDIA's nvImageCodec: on the GPU where there is one, else on the processor.

`decode` fits the protocol and leaves its crops in host memory. `decode_on_device` leaves them where
they were decoded, as a tensor of torch, without a copy through the host.
"""

import ctypes
import os
import threading
from collections.abc import Set
from typing import Any

import numpy as np

from fieldslab.reader.decoders.decoder import Crops, EncodedImages, Status, Target
from fieldslab.reader.decoders.framecheck import check_frames
from fieldslab.reader.decoders.planes import Planes
from fieldslab.schemas.codecs.decoders import GPU_INSTALL, count_gpus
from fieldslab.schemas.errors import MissingLibrary
from fieldslab.schemas.images import CODES

# What an image is refused for is told by its status; nvImageCodec would print it as well.
os.environ.setdefault("PYNVIMGCODEC_VERBOSITY", "0")
try:
    from nvidia import nvimgcodec
except ImportError as error:
    hint = f"Install it: {GPU_INSTALL}."
    raise MissingLibrary("the decoder `nvimagecodec` needs nvImageCodec", hint=hint) from error

_PROVEN_REGIONS = frozenset[str]()
"""Versions whose GPU decoders were seen to decode regions of an image: none was tried so far. Those
of 0.9.0 fail, or end the process (nvImageCodec's issue 55)."""

_OK, _DAMAGED, _OTHER_SIZE = int(Status.OK), int(Status.DAMAGED), int(Status.OTHER_SIZE)


class NvImageCodec:
    """Decodes JPEG images a batch at a time, with one decoder a thread.

    Each image is read in place from the mapped slab. Where nvImageCodec can decode regions, only
    the part that the crops need is decoded. Some damaged images pass here that the decoder
    `turbojpeg` refuses.

    Parameters
    ----------
    device
        Number of a GPU, -1 for the thread's current one, or None for the processor, which is taken
        where there is no GPU.
    """

    name = "nvimagecodec"
    codes: Set[int] = frozenset({CODES["jpeg"]})

    def __init__(self, device: int | None = -1) -> None:
        self._device = device if device is None or count_gpus() else None
        self._decodes_regions = self._device is None or nvimgcodec.__version__ in _PROVEN_REGIONS
        self._planes = Planes()
        self._local = threading.local()
        # The size in the slab is that of the stored picture, and so are the boxes.
        self._params = nvimgcodec.DecodeParams(
            apply_exif_orientation=False, color_spec=nvimgcodec.ColorSpec.SRGB
        )

    def decode(
        self,
        images: EncodedImages,
        which: np.ndarray,
        crops: Crops,
        target: Target,
        max_pixels: int,
    ) -> np.ndarray:
        """See `Decoder.decode`."""
        pictures, corners, statuses = self._decode_regions(images, which, crops, max_pixels, 0)
        decodable = np.flatnonzero(statuses == _OK)
        on_host = [np.ascontiguousarray(pictures[index].cpu()) for index in decodable]
        count = len(images.addresses)
        addresses, lengths = np.zeros(count, np.uint64), np.zeros(count, np.int64)
        sizes, boxes = np.zeros((count, 2), np.uint32), crops.boxes.copy()
        for index, pixels in zip(decodable, on_host, strict=True):
            image = which[index]
            addresses[image], lengths[image] = pixels.ctypes.data, pixels.nbytes
            sizes[image] = pixels.shape[:2]
            boxes[image, :, :2] -= corners[index]
        decoded = images._replace(
            addresses=addresses,
            lengths=lengths,
            sizes=sizes,
            codes=np.full(count, CODES["rgb"], np.uint8),
        )
        placed = self._planes.decode(
            decoded, which[decodable], Crops(boxes, crops.flips), target, max_pixels
        )
        statuses[decodable] = placed
        return statuses

    def decode_on_device(
        self,
        images: EncodedImages,
        which: np.ndarray,
        crops: Crops,
        out: Any,
        scale: np.ndarray,
        bias: np.ndarray,
        max_pixels: int,
    ) -> np.ndarray:
        """Decode the images `which` into their places in a tensor on the device that decodes.

        Parameters
        ----------
        images, which, crops, max_pixels
            As `Decoder.decode` takes them.
        out
            Tensor (n, views, 3, height, width): floats, or uint8 for the nearest whole value.
        scale, bias
            float32[3], by channel: `scale * value + bias` is what comes out.

        Returns
        -------
        int32[len(which)] of `Status`. Places of images that fail are left as they were.
        """
        from fieldslab.reader.pixels import device

        with device.use_device(self._device) as (where, stream):
            pictures, corners, statuses = self._decode_regions(
                images, which, crops, max_pixels, stream
            )
            factor, offset = (
                device.make_channel_tensor(scale, where),
                device.make_channel_tensor(bias, where),
            )
            for index in np.flatnonzero(statuses == _OK):
                boxes = crops.boxes[which[index]].copy()
                boxes[:, :2] -= corners[index]
                pixels = device.view_as_tensor(pictures[index], where)
                device.make_views(
                    pixels, boxes, crops.flips[which[index]], factor, offset, out[which[index]]
                )
        return statuses

    def _decode_regions(
        self, images: EncodedImages, which: np.ndarray, crops: Crops, max_pixels: int, stream: int
    ) -> tuple[list[Any], np.ndarray, np.ndarray]:
        """Decoded regions or None, their top left corners int32[k, 2], and statuses."""
        statuses = np.empty(len(which), np.int32)
        check_frames(images, which, max_pixels, statuses)
        boxes = crops.boxes[which].astype(np.int64)
        low = boxes[..., :2].min(axis=1, initial=2**31)
        high = (boxes[..., :2] + boxes[..., 2:]).max(axis=1, initial=0)
        empty = (boxes[..., 2:] < 1).any(axis=(1, 2))
        outside = empty | (low < 0).any(axis=1) | (high > images.sizes[which]).any(axis=1)
        statuses[(statuses == _OK) & outside] = _OTHER_SIZE
        if not self._decodes_regions:
            low, high = np.zeros_like(low), images.sizes[which].astype(np.int64)
        pictures: list[Any] = [None] * len(which)
        decodable, streams, whole_streams = [], [], []
        for index in np.flatnonzero(statuses == _OK):
            image = which[index]
            try:
                whole = nvimgcodec.CodeStream(
                    _view_bytes(images.addresses[image], images.lengths[image])
                )
                region = nvimgcodec.Region(*map(int, (*low[index], *high[index])))
                part = whole.get_sub_code_stream(0, region) if self._decodes_regions else whole
            except RuntimeError:
                statuses[index] = _DAMAGED
                continue
            if (whole.height, whole.width) != tuple(images.sizes[image]):
                statuses[index] = _DAMAGED
                continue
            decodable.append(index)
            streams.append(part)
            whole_streams.append(whole)
        if decodable:
            decoded = self._call_library(streams, stream)
            for index, picture in zip(decodable, decoded, strict=True):
                expected = (*(high[index] - low[index]), 3)
                if picture is None or tuple(picture.shape) != expected:
                    statuses[index] = _DAMAGED
                else:
                    pictures[index] = picture
        return pictures, low.astype(np.int32), statuses

    def _call_library(self, streams: list[Any], stream: int) -> list[Any]:
        """Decode by the library; None for each image that it cannot decode."""
        decode = self._get_decoder().decode
        try:
            pictures = list(decode(streams, params=self._params, cuda_stream=stream))
        except RuntimeError:
            pictures = []
        if len(pictures) == len(streams):
            return pictures
        if len(streams) == 1:
            return [None]
        return [
            self._call_library([each], stream)[0] for each in streams
        ]  # which, nothing else tells

    def _get_decoder(self) -> Any:
        """Return this thread's decoder."""
        decoder = getattr(self._local, "decoder", None)
        if decoder is None and self._device is None:
            # Either alone is not enough: without the device it looks for a GPU and fails.
            only = nvimgcodec.Backend(nvimgcodec.BackendKind.CPU_ONLY)
            decoder = nvimgcodec.Decoder(
                device_id=nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY,
                max_num_cpu_threads=1,
                backends=[only],
            )
        elif decoder is None:
            decoder = nvimgcodec.Decoder(device_id=self._device)
        self._local.decoder = decoder
        return decoder


def _view_bytes(address: Any, length: Any) -> Any:
    """View the bytes at an address as an array; nothing is copied."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * int(length)).from_address(int(address)))
