"""Images on their way into a slab: in the form asked for, with sizes, codes and index points."""

import struct
from collections import Counter

import numpy as np

from fieldslab.packer.convert import pixels
from fieldslab.packer.convert.fieldplan import ConvertedRows, FieldPlan
from fieldslab.packer.image_options import ImageForm
from fieldslab.schemas.codecs.turbolibrary import convert_to_baseline
from fieldslab.schemas.errors import DamagedImage
from fieldslab.schemas.fields import POINT_ITEMS, Role
from fieldslab.schemas.images import (
    CODECS,
    CODES,
    PIXELS,
    detect_format,
    find_jpeg_frame,
    read_image_size,
    read_image_sizes,
)

JPEG = CODES["jpeg"]

CODEC_COUNT = "codec "
"""In front of a codec's name: how many images it has, null ones left out."""

_SEQUENTIAL = (0xC0, 0xC1)
"""Markers of frames that can be decoded from the middle."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def convert_pictures(plan: FieldPlan, rows: ConvertedRows, first_row: int) -> ConvertedRows:
    """Convert the rows of an image field, nulls included, to all arrays of the field.

    Raises Undecodable for an image that must be decoded, or sound, and is not.
    """
    assert rows.lengths is not None
    tally = Counter(rows.tally)
    if plan.options.image_as is None:
        sizes, codecs = read_image_sizes(rows.values, rows.lengths)
        codes = np.array([CODES[codec] for codec in codecs], np.uint8)
    else:
        rows, sizes, codes = _convert_form(plan.options.image_as, rows, first_row, tally)
    points, counts = find_points(plan.field.index, rows, codes)
    if plan.skips_damaged_images:
        _check_decodable(rows, codes, counts)
    if plan.field.index is not None:
        tally.update(_count_unindexed(rows, codes, counts))
    present = codes if rows.valid is None else codes[rows.valid]
    tally.update(CODEC_COUNT + (CODECS[code] or "") for code in present.tolist())
    other_arrays: dict[Role, np.ndarray] = {
        "size": sizes,
        "codec": codes,
        "points.values": points,
        "points.offsets": counts,
    }
    return rows._replace(other_arrays=other_arrays, tally=tally)


def find_points(
    every: int | None, rows: ConvertedRows, codes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Find the index points of the JPEG images of rows: uint16[points, 5], and int64[rows]."""
    assert rows.lengths is not None
    none = np.empty((0, POINT_ITEMS), np.uint16), np.zeros(len(rows.lengths), np.int64)
    if every is None or not (codes == JPEG).any():
        return none
    from fieldslab.schemas.codecs.indexpoints import (
        find_index_points,
    )  # compiled kernels take their time

    points, counts = find_index_points(np.ascontiguousarray(rows.values), rows.lengths, every)
    odd = (codes != JPEG) & (counts > 0)  # pixels that happen to be the bytes of a JPEG
    if odd.any():
        points, counts = points[~np.repeat(odd, counts)], np.where(odd, 0, counts)
    return points, counts


def choose_pixel_rows(fraction: float, first_row: int, count: int) -> np.ndarray:
    """Choose which of the rows are in the fraction: bool[count], by a hash of their numbers.

    The hash is SplitMix64 (Steele, Lea and Flood 2014), so that the choice depends on nothing else.
    """
    if fraction >= 1:
        return np.ones(count, bool)
    state = (np.arange(first_row, first_row + count, dtype=np.uint64) + np.uint64(1)) * _GOLDEN
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    return (state >> np.uint64(11)).astype(np.float64) < fraction * 2.0**53


def _convert_form(
    form: ImageForm, rows: ConvertedRows, first_row: int, tally: Counter[str]
) -> tuple[ConvertedRows, np.ndarray, np.ndarray]:
    """Convert rows to the requested form: images, their sizes and codes."""
    assert rows.lengths is not None
    count = len(rows.lengths)
    chosen = choose_pixel_rows(form.fraction, first_row, count)
    if rows.valid is not None:
        chosen &= rows.valid
    sizes, codes = np.zeros((count, 2), np.uint32), np.zeros(count, np.uint8)
    ends = np.cumsum(rows.lengths).tolist()
    data = memoryview(np.ascontiguousarray(rows.values).data)
    stored: list[np.ndarray] = []
    for row, (length, end) in enumerate(zip(rows.lengths.tolist(), ends, strict=True)):
        image = data[end - length : end]
        if chosen[row] and form.stores_pixels:
            decoded, height, width = pixels.decode_image(image, form, tally)
            stored.append(decoded)
            sizes[row], codes[row] = (height, width), CODES[form.store]
            continue
        if chosen[row]:
            smaller = form.store != "baseline"
            image = (
                pixels.encode_smaller(image, form, tally)
                if smaller
                else _convert_to_baseline(image, tally)
            )
        codec, height, width = read_image_size(image)
        stored.append(np.frombuffer(image, np.uint8))
        sizes[row], codes[row] = (height, width), CODES[codec]
    values = np.concatenate([np.empty(0, np.uint8), *stored])
    lengths = np.array([len(image) for image in stored], np.int64)
    return ConvertedRows(values, lengths, rows.valid), sizes, codes


def _check_decodable(rows: ConvertedRows, codes: np.ndarray, counts: np.ndarray) -> None:
    """Raise Undecodable for an image that cannot be decoded.

    A JPEG that has index points was read to its end, and pixels were decoded already.
    """
    assert rows.lengths is not None
    doubtful = (counts == 0) & ~np.isin(codes, [CODES[codec] for codec in PIXELS])
    if rows.valid is not None:
        doubtful &= rows.valid
    ends = np.cumsum(rows.lengths)
    data = memoryview(np.ascontiguousarray(rows.values).data)
    for row in np.flatnonzero(doubtful).tolist():
        end = int(ends[row])
        pixels.check_image(data[end - int(rows.lengths[row]) : end])


def _convert_to_baseline(image: memoryview, tally: Counter[str]) -> memoryview:
    """Convert a JPEG that is not sequential to baseline; return other images unchanged."""
    if _find_frame_marker(image) in (None, *_SEQUENTIAL):
        return image
    try:
        baseline = convert_to_baseline(image)
    except DamagedImage:
        tally["not made baseline"] += 1
        return image
    return memoryview(baseline)


def _count_unindexed(rows: ConvertedRows, codes: np.ndarray, counts: np.ndarray) -> Counter[str]:
    """Count, by reason, the JPEG images that have no index points."""
    assert rows.lengths is not None
    tally: Counter[str] = Counter()
    ends = np.cumsum(rows.lengths)
    data = memoryview(np.ascontiguousarray(rows.values).data)
    for row in np.flatnonzero((codes == JPEG) & (counts == 0)).tolist():
        end = int(ends[row])
        marker = _find_frame_marker(data[end - int(rows.lengths[row]) : end])
        tally["not indexed" if marker in _SEQUENTIAL else "progressive"] += 1
    return tally


def _find_frame_marker(image: memoryview) -> int | None:
    """Find the marker of a JPEG's frame; None where there is no JPEG with a frame."""
    try:
        return find_jpeg_frame(image)[0] if detect_format(image) == "jpeg" else None
    except (ValueError, IndexError, struct.error):
        return None
