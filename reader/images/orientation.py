"""EXIF orientation: from boxes in the picture as it is shown to boxes in the picture as stored.

A stored picture is shown by swapping its rows and its columns end for end, where needed, and then
transposing it (EXIF 2.3, section 4.6.4, tag 0x0112). Decoders swap columns by themselves; what is
left is done here, to the view.
"""

from typing import NamedTuple

import numpy as np

from fieldslab.reader.decoders.decoder import Crops, EncodedImages
from fieldslab.schemas.images import CODES

_JPEG = CODES["jpeg"]
_STORED = (CODES["rgb"], CODES["yuv420"])

_TRANSPOSED = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1], np.bool_)
_ROWS = np.array([0, 0, 0, 1, 1, 0, 1, 1, 0], np.bool_)
_COLUMNS = np.array([0, 0, 1, 1, 0, 0, 0, 1, 1], np.bool_)


class OrientedCrops(NamedTuple):
    """Crops in stored pictures, and what is to be done to each view: bool[n, views], bool[n]."""

    crops: Crops
    swap_rows: np.ndarray
    transpose: np.ndarray


def read_orientations(images: EncodedImages) -> np.ndarray:
    """Read the EXIF orientation of each image, 1 to 8: uint8[n]; 1 for stored pixels."""
    from fieldslab.schemas.codecs import orientation  # compiled kernels take their time

    orientations = np.ones(len(images.codes), np.uint8)
    jpegs = np.flatnonzero(images.codes == _JPEG)
    jpeg_orientations = np.empty(len(jpegs), np.uint8)
    orientation.read_orientations(images.addresses[jpegs], images.lengths[jpegs], jpeg_orientations)
    orientations[jpegs] = jpeg_orientations
    for i in np.flatnonzero(~np.isin(images.codes, (_JPEG, *_STORED))).tolist():
        _, _, orientations[i] = measure_with_pillow(images, i)
    return orientations


def measure_with_pillow(images: EncodedImages, index: int) -> tuple[int, int, int]:
    """Measure height, width and orientation with Pillow; 0, 0, 1 if it is not installed."""
    import ctypes

    from fieldslab.schemas.errors import MissingLibrary

    try:
        from fieldslab.reader.decoders.pillow import read_size_and_orientation
    except MissingLibrary:
        return 0, 0, 1
    return read_size_and_orientation(
        ctypes.string_at(int(images.addresses[index]), int(images.lengths[index]))
    )


def orient_sizes(sizes: np.ndarray, orientations: np.ndarray) -> np.ndarray:
    """Return the sizes of the pictures as they are displayed: int64[n, 2]."""
    swapped = _TRANSPOSED[orientations]
    return np.where(swapped[:, None], sizes[:, ::-1], sizes).astype(np.int64)


def orient_boxes(
    boxes: np.ndarray, flips: np.ndarray, sizes: np.ndarray, orientations: np.ndarray
) -> OrientedCrops:
    """Bring boxes and flips of pictures as they are shown to pictures as they are stored.

    Parameters
    ----------
    boxes, flips
        int32[n, views, 4] and bool[n, views], of what is shown.
    sizes
        Of the stored pictures: int64[n, 2].
    orientations
        Orientations.
    """
    transpose = _TRANSPOSED[orientations]
    rows, columns = _ROWS[orientations][:, None], _COLUMNS[orientations][:, None]
    stored = np.where(transpose[:, None, None], boxes[..., [1, 0, 3, 2]], boxes)
    top, left, height, width = np.moveaxis(stored, 2, 0)
    top = np.where(rows, sizes[:, :1] - top - height, top)
    left = np.where(columns, sizes[:, 1:] - left - width, left)
    across = np.where(transpose[:, None], columns, columns ^ flips)
    down = np.where(transpose[:, None], rows ^ flips, rows & np.ones_like(flips))
    stored = np.stack([top, left, height, width], axis=2).astype(np.int32)
    return OrientedCrops(Crops(stored, np.ascontiguousarray(across)), down, transpose)
