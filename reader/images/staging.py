"""Images whose views are made on a device later: their stored pixels, and what to make of them."""

from typing import NamedTuple

import numpy as np

from fieldslab.reader.buffers import Allocator
from fieldslab.reader.decoders.decoder import Crops, EncodedImages
from fieldslab.reader.decoders.planecopy import copy_regions
from fieldslab.reader.images.steps import ImageSteps
from fieldslab.reader.pixels.records import RECORD_LENGTH
from fieldslab.schemas.mapping import get_address


class StagedSize(NamedTuple):
    """The views of one size.

    Attributes
    ----------
    records
        int64[rows, views, RECORD_LENGTH].
    shape
        Of a view: (height, width, 3) or (3, height, width).
    done, values
        Rows whose views were made on the processor, int64[k], and these: (k, views, *shape).
    """

    records: np.ndarray
    shape: tuple[int, ...]
    done: np.ndarray
    values: np.ndarray


class StagedViews:
    """What a device makes the views of a field from.

    Attributes
    ----------
    pixels
        The parts of all pictures that are in views: uint8[bytes].
    sizes
        A `StagedSize` for each size of views.
    images
        The steps.
    scale, bias
        float32[3]: `scale * value + bias` is stored, of values in 0..255.
    """

    def __init__(
        self,
        pixels: np.ndarray,
        sizes: list[StagedSize],
        images: ImageSteps,
        scale: np.ndarray,
        bias: np.ndarray,
    ) -> None:
        self.pixels = pixels
        self.sizes = sizes
        self.images = images
        self.scale = scale
        self.bias = bias

    @property
    def nbytes(self) -> int:
        """Bytes of the pixels."""
        return self.pixels.nbytes

    def select_rows(self, keep: np.ndarray) -> "StagedViews":
        """Select the rows where `keep` (bool[rows]) is true."""
        numbers = np.cumsum(keep) - 1
        sizes = [
            StagedSize(
                size.records[keep],
                size.shape,
                numbers[size.done[keep[size.done]]],
                size.values[keep[size.done]],
            )
            for size in self.sizes
        ]
        return StagedViews(self.pixels, sizes, self.images, self.scale, self.bias)


def stage_pixels(
    images: EncodedImages,
    which: np.ndarray,
    crops: Crops,
    max_pixels: int,
    memory: Allocator,
    name: str,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Copy what views need of stored pixels.

    Returns
    -------
    pixels, records, statuses
        uint8[bytes]; int64[n, views, RECORD_LENGTH], zeros except for images `which` that are OK;
        int32[k] of `Status`.
    """
    records = np.zeros((*crops.flips.shape, RECORD_LENGTH), np.int64)
    statuses = np.empty(len(which), np.int32)
    size = copy_regions(images, which, crops, max_pixels, 0, statuses, records)
    pixels = memory.allocate_array((name, "pixels"), (size,), np.dtype(np.uint8))
    if size:
        copy_regions(images, which, crops, max_pixels, get_address(pixels), statuses, records)
    return pixels, records, statuses
