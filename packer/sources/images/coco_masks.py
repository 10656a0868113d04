"""Masks of COCO: polygons, and run lengths, plain or compressed.

Polygons of all objects of an image are one list of points; run lengths are one list of runs. How
many belong to each, and to which object, stands beside.
"""

from typing import Any

import msgspec
import numpy as np

from fieldslab.packer.sources.images.object_lists import make_lists
from fieldslab.schemas.errors import SourceInconsistent

MASK_COLUMNS = {
    "polygons.points": "x, y of all polygons",
    "polygons.lengths": "points of each polygon",
    "polygons.objects": "object of each polygon",
    "rle.counts": "run lengths of all masks",
    "rle.lengths": "runs of each mask",
    "rle.objects": "object of each mask",
}
"""What the columns of masks hold."""
_MOST_RUNS = 1 << 31


class Rle(msgspec.Struct, gc=False):
    """Run lengths of a mask of `size` (height, width), down the columns, background first."""

    counts: list[int] | str
    size: list[int]


Mask = list[list[float]] | Rle | None


def make_mask_columns(
    masks: list[list[Mask]], sizes: list[tuple[float | None, float | None]], places: list[str]
) -> dict[str, Any]:
    """Make the columns of masks; those that no object has are left out.

    Raises SourceInconsistent for what is no mask, or for a mask of another size than its image.
    """
    columns: dict[str, Any] = {}
    flat = [mask for items in masks for mask in items]
    if any(isinstance(mask, list) and mask for mask in flat):
        pieces = [
            [
                (number, _check_polygon(polygon, place))
                for number, mask in enumerate(items)
                if isinstance(mask, list)
                for polygon in mask
            ]
            for items, place in zip(masks, places, strict=True)
        ]
        columns |= _make_columns(pieces, "polygons", 2)
    if any(isinstance(mask, Rle) for mask in flat):
        pieces = [
            [
                (number, _read_runs(mask, size, place))
                for number, mask in enumerate(items)
                if isinstance(mask, Rle)
            ]
            for items, size, place in zip(masks, sizes, places, strict=True)
        ]
        columns |= _make_columns(pieces, "rle", 1)
    return columns


def _make_columns(
    pieces: list[list[tuple[int, np.ndarray]]], name: str, width: int
) -> dict[str, Any]:
    """Join the pieces of each image: their values, their lengths, and the objects they are of."""
    arrays = [array for row in pieces for _, array in row]
    lengths = np.array([len(array) for array in arrays], np.int64)
    objects = np.array([number for row in pieces for number, _ in row], np.int64)
    counts = np.array([len(row) for row in pieces], np.int64)
    totals = np.array([sum(len(array) for _, array in row) for row in pieces], np.int64)
    empty = np.empty((0, 2) if width == 2 else 0, np.float64 if width == 2 else np.uint32)
    values = np.concatenate([empty, *arrays])
    return {
        f"{name}.{'points' if width == 2 else 'counts'}": make_lists(totals, values),
        f"{name}.lengths": make_lists(counts, lengths),
        f"{name}.objects": make_lists(counts, objects),
    }


def _check_polygon(polygon: list[float], place: str) -> np.ndarray:
    if len(polygon) % 2:
        raise SourceInconsistent(
            "a polygon has an odd number of coordinates", file=place, found=len(polygon)
        )
    return np.array(polygon, np.float64).reshape(-1, 2)


def _read_runs(mask: Rle, size: tuple[float | None, float | None], place: str) -> np.ndarray:
    runs = decompress_runs(mask.counts) if isinstance(mask.counts, str) else mask.counts
    fits = len(mask.size) == 2 and all(run >= 0 for run in runs)
    height, width = mask.size if fits else (0, 0)
    same_size = all(own in (None, listed) for own, listed in zip(size, mask.size, strict=False))
    if not fits or not same_size or sum(runs) != height * width or height * width >= _MOST_RUNS:
        raise SourceInconsistent(
            "the run lengths of a mask are not those of its image",
            file=place,
            expected=f"height and width {size[0]}, {size[1]}"
            if not same_size
            else "runs of `size`",
            found=f"size {mask.size}, {sum(runs):,} pixels in runs",
        )
    return np.array(runs, np.uint32)


def decompress_runs(text: str) -> list[int]:
    """Decompress run lengths as COCO writes them in text; -1 for what is none.

    Five bits of a number are in each character, from 48 on, the lowest first; the sixth bit says
    that more follow, and the last fifth bit is the sign. From the fourth number on, they
    are differences from the number before the last. (COCO API, maskApi.c, rleFrString.)
    """
    runs: list[int] = []
    value = shift = 0
    for sign in text:
        code = ord(sign) - 48
        if not 0 <= code < 64 or shift > 60:
            return [-1]
        value |= (code & 31) << shift
        shift += 5
        if code & 32:
            continue
        if code & 16:
            value -= 1 << shift
        runs.append(value + (runs[-2] if len(runs) > 2 else 0))
        value = shift = 0
    return [-1] if shift else runs
