"""EXIF orientation of JPEG images: how the picture is to be turned before it is shown."""

from typing import Any

import numpy as np

from fieldslab.schemas.codecs.jpeg import find_next_segment, load_big_u16
from fieldslab.schemas.jit import inlined, kernel, load_u8, subkernel

UPRIGHT = 1
"""The orientation of images that state none, or none from 1 to 8."""

_EXIF = 0x45786966
_ORIENTATION, _SHORT = 0x0112, 3


@inlined
def _load_number(address: int, size: int, swapped: bool) -> int:
    """Load a number of 2 or 4 bytes, the high byte first unless `swapped`."""
    number = 0
    for i in range(size):
        number |= load_u8(address + i) << (8 * i if swapped else 8 * (size - 1 - i))
    return number


@subkernel("int64(int64, int64)")
def _read_tiff_orientation(tiff: int, size: int) -> int:
    """Read the orientation from the first directory of TIFF data (TIFF 6.0, section 2)."""
    if size < 8:
        return UPRIGHT
    swapped = load_big_u16(tiff) == 0x4949
    if (not swapped and load_big_u16(tiff) != 0x4D4D) or _load_number(tiff + 2, 2, swapped) != 42:
        return UPRIGHT
    offset = _load_number(tiff + 4, 4, swapped)
    if offset + 2 > size:
        return UPRIGHT
    entries = _load_number(tiff + offset, 2, swapped)
    offset += 2
    for _ in range(entries):
        if offset + 12 > size:
            return UPRIGHT
        tag = _load_number(tiff + offset, 2, swapped)
        kind = _load_number(tiff + offset + 2, 2, swapped)
        if tag == _ORIENTATION:
            value = _load_number(tiff + offset + 8, 2, swapped)
            return value if kind == _SHORT and 1 <= value <= 8 else UPRIGHT
        offset += 12
    return UPRIGHT


@subkernel("int64(int64, int64)")
def read_orientation(address: int, length: int) -> int:
    """Read the EXIF orientation, 1 to 8, of a JPEG (EXIF 2.3, 4.6.4).

    UPRIGHT for whatever cannot be read; nothing is read outside the image.
    """
    if length < 2 or load_big_u16(address) != 0xFFD8:
        return UPRIGHT
    offset = 2
    while True:
        marker, offset, size = find_next_segment(address, offset, length)
        if marker < 0xC0 or (marker >= 0xD0 and marker <= 0xDA):
            return UPRIGHT
        if marker == 0xE1 and size >= 6 and _load_number(address + offset, 4, False) == _EXIF:
            return _read_tiff_orientation(address + offset + 6, size - 6)
        offset += size


@kernel("void(uint64[::1], int64[::1], uint8[::1])")
def read_orientations(addresses: Any, lengths: Any, out: Any) -> None:
    """Read the orientation of many images."""
    for i in range(len(addresses)):
        address: Any = np.int64(addresses[i])
        out[i] = read_orientation(address, lengths[i])
