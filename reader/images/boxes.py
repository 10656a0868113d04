"""Which part of a picture a view shows: drawn for each row, or computed from the size.

Draws are those of SplitMix64, started from a hash of the row and its visit under keys of seed,
epoch and view (see `reader.draws.visits`). What these functions return is frozen: runs resume by
it.
"""

import math
from functools import singledispatch
from typing import Any

import numpy as np

from fieldslab.reader.draws.permutation import draw_uniform, make_keys, mix_bits
from fieldslab.reader.images.steps import CenterCrop, Crop, RandomResizedCrop, Resize
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.jit import inlined, kernel

TRIES = 10
"""How often a box is drawn before the middle is taken, as in torchvision."""


@singledispatch
def draw_boxes(
    crop: Crop, sizes: np.ndarray, rows: np.ndarray, seed: int, epoch: int, view: int
) -> np.ndarray:
    """Draw the boxes of a view: int32[n, 4] of top, left, height and width.

    Parameters
    ----------
    crop
        The step.
    sizes
        Height and width of the pictures: int64[n, 2]. Where one is 0, the box is empty.
    rows
        What `make_draw_numbers` makes of rows and visits: uint64[n]. Rows themselves are visit 0.
    seed, epoch, view
        What decides, with the row and its visit, on what is drawn.
    """
    raise UsageError("unknown kind of crop", found=repr(crop))


@draw_boxes.register
def _draw_random_resized_crops(
    crop: RandomResizedCrop,
    sizes: np.ndarray,
    rows: np.ndarray,
    seed: int,
    epoch: int,
    view: int,
) -> np.ndarray:
    out = np.zeros((len(rows), 4), np.int32)
    key = make_keys("crop", seed, epoch, view)
    low, high = (math.log(ratio) for ratio in crop.ratio)
    _draw_random_boxes(rows.astype(np.uint64), sizes, key, *crop.scale, low, high, out)
    return out


@draw_boxes.register
def _place_center_crops(
    crop: CenterCrop, sizes: np.ndarray, rows: np.ndarray, seed: int, epoch: int, view: int
) -> np.ndarray:
    shown = np.array(crop.size, np.float64)
    # Pixels of the picture to a pixel of the view; the shorter side is the one that limits it.
    unit = (sizes / shown).min(axis=1, initial=np.inf)
    if crop.resize is not None:
        unit = np.minimum(unit, sizes.min(axis=1, initial=2**31) / crop.resize)
    box = np.rint(unit[:, None] * shown).astype(np.int64).clip(np.minimum(sizes, 1), sizes)
    return np.concatenate([(sizes - box) // 2, box], axis=1).astype(np.int32)


@draw_boxes.register
def _select_whole_images(
    crop: Resize, sizes: np.ndarray, rows: np.ndarray, seed: int, epoch: int, view: int
) -> np.ndarray:
    return np.concatenate([np.zeros_like(sizes), sizes], axis=1).astype(np.int32)


def draw_flips(p: float, rows: np.ndarray, seed: int, epoch: int, view: int) -> np.ndarray:
    """Decide which views are mirrored, each with probability `p`: bool[n]."""
    return draw_uniform(rows, make_keys("flip", seed, epoch, view)) < p


@inlined
def _scale_to_unit(state: Any) -> float:
    """Turn the state of the generator into a number in [0, 1)."""
    return np.float64(mix_bits(state) >> np.uint64(11)) * 2.0**-53


@kernel(
    "void(uint64[::1], int64[:, ::1], uint64[::1], float64, float64, float64, float64, "
    "int32[:, ::1])"
)
def _draw_random_boxes(
    rows: np.ndarray,
    sizes: np.ndarray,
    key: np.ndarray,
    scale_low: float,
    scale_high: float,
    ratio_low: float,
    ratio_high: float,
    out: np.ndarray,
) -> None:
    """Draw boxes as torchvision's `RandomResizedCrop.get_params` does; ratios are logarithms."""
    step = np.uint64(0x9E3779B97F4A7C15)
    for i in range(len(rows)):
        height = sizes[i, 0]
        width = sizes[i, 1]
        if height == 0 or width == 0:
            continue
        state = mix_bits(rows[i] + key[0]) + key[1]
        fits = False
        for _ in range(TRIES):
            state += step
            area = height * width * (scale_low + (scale_high - scale_low) * _scale_to_unit(state))
            state += step
            ratio = math.exp(ratio_low + (ratio_high - ratio_low) * _scale_to_unit(state))
            w: Any = np.int64(np.rint(math.sqrt(area * ratio)))
            h: Any = np.int64(np.rint(math.sqrt(area / ratio)))
            if 0 < w <= width and 0 < h <= height:
                fits = True
                break
        if fits:
            state += step
            top = np.int64(_scale_to_unit(state) * (height - h + 1))
            state += step
            left = np.int64(_scale_to_unit(state) * (width - w + 1))
        else:
            w = width
            h = height
            if width / height < math.exp(ratio_low):
                h = np.int64(np.rint(width / math.exp(ratio_low)))
            elif width / height > math.exp(ratio_high):
                w = np.int64(np.rint(height * math.exp(ratio_high)))
            h = min(max(h, 1), height)
            w = min(max(w, 1), width)
            top = (height - h) // 2
            left = (width - w) // 2
        out[i, 0] = top
        out[i, 1] = left
        out[i, 2] = h
        out[i, 3] = w
