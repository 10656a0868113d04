"""How far pixels are from Pillow's: decoded whole, cropped, resized with antialiasing."""

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from fieldslab.bench.images.subjects import encoded
from fieldslab.reader import ImageSteps, Slab


class Fidelity(NamedTuple):
    """Over all pixels of all images; the least PSNR is that of the worst image."""

    mean_difference: float
    psnr: float
    least_psnr: float


def by_pillow(file: bytes, box: Sequence[float], size: int) -> Image.Image:
    """Crop and resize a box (top, left, height, width) of a picture with Pillow."""
    top, left, height, width = box
    picture = Image.open(io.BytesIO(file)).convert("RGB")
    cut = (left, top, left + width, top + height)
    if all(float(side).is_integer() for side in cut):
        return picture.crop(cut).resize((size, size), Image.Resampling.BILINEAR)
    return picture.resize((size, size), Image.Resampling.BILINEAR, box=cut)


def boxes_of(slab: Slab, crop: Any) -> np.ndarray:
    """Return the boxes drawn for all rows: int32[rows, 4]."""
    images = ImageSteps([crop], crop_boxes=True)
    batch = slab.gather(range(len(slab)), ["image"], decode={"image": images})
    boxes: np.ndarray = batch["image.boxes"]
    return boxes


def fidelity(slab: Slab, original: Slab, crop: Any, decoder: Any) -> Fidelity:
    """Compare views of a slab with Pillow's of the photographs that it was made from."""
    images = ImageSteps([crop], decoder=decoder, crop_boxes=True)
    batch = slab.gather(range(len(slab)), ["image"], decode={"image": images})
    scales = original[:].gather(range(len(slab)), ["image"]).sizes["image"] / batch.sizes["image"]
    squares, differences = [], []
    for row, file in enumerate(encoded(original)):
        view = batch["image"][row]
        box = batch["image.boxes"][row] * np.tile(scales[row], 2)
        wanted = np.asarray(by_pillow(file, box.tolist(), view.shape[0]))
        difference = view.astype(np.float64) - wanted
        squares.append(np.square(difference).mean())
        differences.append(np.abs(difference).mean())
    return Fidelity(
        float(np.mean(differences)), psnr(float(np.mean(squares))), psnr(float(np.max(squares)))
    )


def psnr(square: float) -> float:
    """Compute the PSNR of a mean squared difference, in dB; 99 if there is none."""
    return min(99.0, 10 * np.log10(255**2 / square)) if square else 99.0
