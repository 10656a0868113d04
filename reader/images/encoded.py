"""The encoded images of chosen rows, where they lie in the map."""

from typing import Any, NamedTuple

import numpy as np

from fieldslab.reader.buffers import Pool
from fieldslab.reader.copying import RowLocations
from fieldslab.reader.decoders.decoder import EncodedImages
from fieldslab.reader.gather import (
    find_addresses,
    gather_items,
    gather_validity,
    locate_index_points,
)
from fieldslab.reader.stored.field import StoredField
from fieldslab.schemas.images import CODES
from fieldslab.schemas.jit import kernel, load_u8
from fieldslab.schemas.unions.members import DETECT

_JPEG, _PNG, _WEBP = CODES["jpeg"], CODES["png"], CODES["webp"]


class FoundImages(NamedTuple):
    """Encoded images, and of a field that may have nulls, which rows have one: bool[n]."""

    images: EncodedImages
    valid: np.ndarray | None


def find_images(
    stored: StoredField,
    locations: RowLocations,
    pool: Pool,
    damaged: np.ndarray | None = None,
) -> FoundImages:
    """Find the images of rows, and all that is stored beside them, within `map_keeper.hold()`.

    Those where `damaged`, bool[n], is true are null, whatever lies there. Raises DamagedArray.
    """
    field, count = stored.field, len(locations.in_shard)
    starts, lengths = find_addresses(stored, locations, pool)
    assert stored.size is not None
    sizes = gather_items(stored.size, locations, pool, field.name)
    if stored.codec is not None:
        codes = gather_items(stored.codec, locations, pool, field.name)
        if stored.codecs is not None:
            _fill_codecs(stored.codecs[locations.shards], starts, lengths, codes)
    elif field.codec in CODES:
        codes = np.full(count, CODES[field.codec], np.uint8)
    else:
        codes = np.empty(count, np.uint8)
        _detect_codecs(starts, lengths, codes)
    if stored.points is None:
        points, counts = np.zeros(count, np.uint64), np.zeros(count, np.int64)
    else:
        points, counts = locate_index_points(stored, locations, pool)
    valid = (
        None if stored.valid is None else gather_validity(stored.valid, locations, pool, field.name)
    )
    if damaged is not None:
        valid = ~damaged if valid is None else valid & ~damaged
        sizes[damaged] = 0
    every = field.index or 0
    return FoundImages(EncodedImages(starts, lengths, sizes, codes, points, counts, every), valid)


def _fill_codecs(
    codecs: np.ndarray, starts: np.ndarray, lengths: np.ndarray, codes: np.ndarray
) -> None:
    """Fill in the codes of rows whose slab does not store them: see `Members.find_codecs`."""
    detected = np.flatnonzero(codecs == DETECT)
    is_known = (codecs != 0) & (codecs != DETECT)
    codes[is_known] = codecs[is_known]
    detected_codes = np.empty(len(detected), np.uint8)
    _detect_codecs(starts[detected], lengths[detected], detected_codes)
    codes[detected] = detected_codes


@kernel("void(uint64[::1], int64[::1], uint8[::1])")
def _detect_codecs(starts: np.ndarray, lengths: np.ndarray, codes: np.ndarray) -> None:
    """Tell codes by the first bytes, as `schemas.images.detect_format` does."""
    for i in range(len(starts)):
        address: Any = np.int64(starts[i])
        codes[i] = 0
        if lengths[i] < 12:
            continue
        head = 0
        for k in range(4):
            head = head << 8 | load_u8(address + k)
        if head >> 8 == 0xFFD8FF:
            codes[i] = _JPEG
        elif head == 0x89504E47:
            codes[i] = _PNG
        elif head == 0x52494646 and load_u8(address + 8) == 0x57 and load_u8(address + 9) == 0x45:
            codes[i] = _WEBP
