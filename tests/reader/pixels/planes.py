"""Pixels as planes of Y, Cb and Cr, and back, by the book."""

import numpy as np
from PIL import Image


def to_ycc(pixels: np.ndarray) -> list[np.ndarray]:
    """Full-range BT.601, as ITU-T T.871 has it."""
    red, green, blue = np.moveaxis(pixels.astype(float), 2, 0)
    y = 0.299 * red + 0.587 * green + 0.114 * blue
    chroma = (blue - y) / 1.772 + 128, (red - y) / 1.402 + 128
    return [np.rint(each).clip(0, 255).astype(np.uint8) for each in (y, *chroma)]


def to_rgb(y: np.ndarray, cb: np.ndarray, cr: np.ndarray) -> np.ndarray:
    """Back again, in whole numbers."""
    luma, blue, red = y.astype(float), cb.astype(float) - 128, cr.astype(float) - 128
    green = luma - 0.114 * 1.772 / 0.587 * blue - 0.299 * 1.402 / 0.587 * red
    channels = np.stack([luma + 1.402 * red, green, luma + 1.772 * blue], 2)
    return np.rint(channels).clip(0, 255).astype(np.uint8)


def shrunk(plane: np.ndarray, across: int, down: int) -> np.ndarray:
    """Mean of each pair of samples along the axes that are subsampled."""
    height, width = plane.shape
    padded = np.pad(plane.astype(float), ((0, height % 2), (0, width % 2)), "edge")
    if across:
        padded = (padded[:, ::2] + padded[:, 1::2]) / 2
    if down:
        padded = (padded[::2] + padded[1::2]) / 2
    return np.rint(padded).astype(np.uint8)


def enlarged(plane: np.ndarray, across: int, down: int) -> np.ndarray:
    """Twice the samples along the axes that are subsampled, by weights 3/4 and 1/4."""
    size = plane.shape[1] << across, plane.shape[0] << down
    return np.asarray(Image.fromarray(plane).resize(size, Image.Resampling.BILINEAR))
