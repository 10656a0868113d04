"""Encoded images as a decoder gets them, and what Pillow makes of the same bytes."""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from fieldslab.reader.decoders.decoder import Crops, Decoder, EncodedImages, Target
from fieldslab.schemas.codecs.indexpoints import find_index_points
from fieldslab.schemas.mapping import get_address

EVERY = 8
MAX_PIXELS = 2**26

Box = tuple[int, int, int, int]


def encoded(
    images: Sequence[bytes],
    sizes: Any,
    codes: int | Sequence[int],
    indexed: Sequence[bytes] | None = None,
) -> tuple[EncodedImages, Any]:
    """The images in memory, and what keeps them there.

    JPEG images have the index of `indexed`, which are the images themselves if not given:
    damage comes after packing.
    """
    values = np.frombuffer(b"".join(images), np.uint8)
    lengths = np.array([len(image) for image in images], np.int64)
    starts = np.cumsum(lengths) - lengths
    originals = images if indexed is None else indexed
    whole = np.frombuffer(b"".join(originals), np.uint8)
    points, counts = find_index_points(whole, np.array([len(each) for each in originals]), EVERY)
    first = np.cumsum(counts) - counts
    addresses = np.where(counts > 0, get_address(points) + 10 * first, 0)
    batch = EncodedImages(
        (get_address(values) + starts).astype(np.uint64),
        lengths,
        np.array(sizes, np.uint32).reshape(-1, 2),
        np.broadcast_to(np.array(codes, np.uint8), len(images)).copy(),
        addresses.astype(np.uint64),
        counts,
        EVERY,
    )
    return batch, (values, points)


def crops_of(boxes: Any, flips: Any = False) -> Crops:
    """Boxes (n, views, 4) or (n, 4), with the same flips for all or one for each."""
    where = np.array(boxes, np.int32)
    where = where.reshape(len(where), -1, 4)
    return Crops(where, np.broadcast_to(np.array(flips, np.bool_), where.shape[:2]).copy())


def target_of(out: np.ndarray, first: bool = False, scale: float = 1, bias: float = 0) -> Target:
    """A target with the same scale and bias in every channel."""
    return Target(out, first, np.full(3, scale, np.float32), np.full(3, bias, np.float32))


def decode(
    decoder: Decoder,
    batch: EncodedImages,
    crops: Crops,
    size: tuple[int, int],
    fill: int = 0,
    max_pixels: int = MAX_PIXELS,
) -> tuple[np.ndarray, np.ndarray]:
    """Decode all images to uint8; the pixels over what was `fill`, and the statuses."""
    count, views = crops.flips.shape
    out = np.full((count, views, *size, 3), fill, np.uint8)
    which = np.arange(count)
    return out, decoder.decode(batch, which, crops, target_of(out), max_pixels)


def reference(data: bytes, box: Box, size: tuple[int, int]) -> np.ndarray:
    """Full decode, crop and antialiased bilinear resize by Pillow."""
    top, left, height, width = box
    with Image.open(io.BytesIO(data)) as image:
        crop = image.convert("RGB").crop((left, top, left + width, top + height))
    return np.asarray(crop.resize((size[1], size[0]), Image.Resampling.BILINEAR))
