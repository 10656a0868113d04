"""Segments and frame headers of JPEG images (ITU-T T.81, annex B), read by kernels.

Nothing outside the bytes of an image is read, whatever they say. Every offset counts from the first
byte of the image.
"""

from typing import Any

import numpy as np

from fieldslab.schemas.jit import (
    clear,
    inlined,
    load_u8,
    make_record_maker,
    make_record_type,
    subkernel,
    types,
)

OK, UNSUPPORTED, NOT_JPEG, TRUNCATED, DAMAGED = 0, 1, 2, 3, 4
"""What became of an image; the reader's `Status` has the same numbers."""

FRAME = np.dtype(
    [
        ("height", np.int64),
        ("width", np.int64),
        ("height_offset", np.int64),
        ("components", np.int64),
        ("ids", np.int64, 3),
        ("samplings", np.int64, 3),
        ("quantiser_numbers", np.int64, 3),
        ("across", np.int64),
        ("down", np.int64),
        ("interval", np.int64),
        ("plain", np.int64),
        ("scan", np.int64),
        ("quantisers", np.int64, 3),
        ("dc_tables", np.int64, 3),
        ("ac_tables", np.int64, 3),
        ("huffman", np.int64, 8),
        ("quantiser_tables", np.int64, 4),
        ("colours", np.int64),
    ],
    align=True,
)
"""What the headers of a JPEG image state, up to its first scan.

    height, width      of the picture; 0 where no frame header was reached
    height_offset      offset of the two bytes that state the height
    components         1 or 3; 0 where no supported frame header was read
    ids, samplings, quantiser_numbers
                       of each component, as the frame header has them
    across, down       the largest sampling factors: an MCU has 8 * across by 8 * down pixels
    interval           MCUs between restart markers; 0 without them
    plain              1 if the image is sequential, has one scan and no restart markers

Only `baseline.read_header` fills in the others:

    scan               offset of the first entropy-coded byte
    quantisers         of each component: offset of its 64 quantisers, times 2, plus 1 if they have
                       16 bits
    dc_tables, ac_tables
                       of each component: which of the eight Huffman tables it uses
    huffman            offset of the 16 counts of each Huffman table, 4 for DC and 4 for AC; 0 where
                       the image has none
    quantiser_tables   as `quantisers`, of each table
    colours            what JFIF or Adobe segments say about colours
"""
Frame = make_record_type(FRAME)
new_frame = make_record_maker(FRAME)


@inlined
def load_big_u16(address: int) -> int:
    """Load two bytes, the high one first."""
    return (load_u8(address) << 8) | load_u8(address + 1)


@inlined
def find_next_segment(address: int, offset: int, length: int) -> tuple[int, int, int]:
    """Find the segment at `offset`, behind fill bytes: its marker, and offset and size of its data.

    The marker is 0 where there is none; 0x01 and 0xD0 to 0xD9 come without data. It is -TRUNCATED
    where the image ends within the segment, and -DAMAGED where its size cannot be.
    """
    while offset + 1 < length and load_big_u16(address + offset) == 0xFFFF:
        offset += 1
    if offset + 4 > length:
        return -TRUNCATED, offset, 0
    marker = load_u8(address + offset + 1)
    if load_u8(address + offset) != 0xFF:
        marker = 0
    if marker <= 0x01 or (marker >= 0xD0 and marker <= 0xD9):
        return marker, offset + 2, 0
    size = load_big_u16(address + offset + 2) - 2
    if size < 0:
        return -DAMAGED, offset, 0
    if size > length - offset - 4:
        return -TRUNCATED, offset, 0
    return marker, offset + 4, size


@inlined
def is_jpeg(address: int, length: int) -> bool:
    """Return True if an image begins as a JPEG does."""
    return length >= 3 and load_big_u16(address) == 0xFFD8 and load_u8(address + 2) == 0xFF


@subkernel(types.int64(types.int64, types.int64, types.int64, Frame))
def read_frame_header(address: int, offset: int, size: int, frame: Any) -> int:
    """Read the data of SOF0, SOF1 or SOF2: one or three components of eight bits.

    Sampling factors and numbers of tables are not checked.
    """
    if frame.components != 0 or size < 6:
        return DAMAGED
    components = load_u8(address + offset + 5)
    frame.height = load_big_u16(address + offset + 1)
    frame.width = load_big_u16(address + offset + 3)
    frame.height_offset = offset + 1
    if size != 6 + 3 * components or frame.width == 0:
        return DAMAGED
    precision = load_u8(address + offset)
    if precision != 8 or frame.height == 0 or (components != 1 and components != 3):
        return UNSUPPORTED
    frame.components = components
    for component in range(components):
        entry = address + offset + 6 + 3 * component
        sampling = load_u8(entry + 1)
        frame.ids[component] = load_u8(entry)
        frame.samplings[component] = sampling
        frame.quantiser_numbers[component] = load_u8(entry + 2)
        frame.across = max(frame.across, sampling >> 4)
        frame.down = max(frame.down, sampling & 15)
    return OK


@inlined
def _has_valid_sampling(frame: Any) -> bool:
    """Return True if all sampling factors are from 1 to 4."""
    for component in range(frame.components):
        across, down = frame.samplings[component] >> 4, frame.samplings[component] & 15
        if across < 1 or across > 4 or down < 1 or down > 4:
            return False
    return True


@subkernel(types.int64(types.int64, types.int64, Frame))
def read_frame(address: int, length: int, frame: Any) -> int:
    """Read the headers of the image of `length` bytes at `address`, up to its first scan.

    For decoders that leave tables and pixels to a library: progressive images, several scans and
    any sampling are OK.

    Returns
    -------
    OK; UNSUPPORTED for arithmetic, lossless, hierarchical and 12-bit images, those that state
    their height behind the picture, and whatever has bytes between segments; NOT_JPEG, TRUNCATED
    or DAMAGED.
    """
    clear(frame)
    if not is_jpeg(address, length):
        return NOT_JPEG
    sequential = False
    offset = 2
    while True:
        marker, offset, size = find_next_segment(address, offset, length)
        if marker < 0:
            return -marker
        if marker == 0xD8 or marker == 0xD9:
            return DAMAGED
        if marker <= 0x01 or (marker >= 0xD0 and marker <= 0xD7):
            return UNSUPPORTED
        if marker == 0xDA:
            if frame.components == 0 or size < 1:
                return DAMAGED
            one_scan = load_u8(address + offset) == frame.components
            frame.plain = 1 if sequential and one_scan and frame.interval == 0 else 0
            return OK
        if marker == 0xDD and size == 2:
            frame.interval = load_big_u16(address + offset)
        elif marker >= 0xC0 and marker <= 0xC2:
            status = read_frame_header(address, offset, size, frame)
            if status != OK:
                return status
            if not _has_valid_sampling(frame):
                return DAMAGED
            sequential = marker != 0xC2
        elif marker >= 0xC3 and marker <= 0xCF and marker != 0xC4 and marker != 0xC8:
            return UNSUPPORTED
        offset += size
