"""Headers of baseline JPEG images, with all that decoding needs to know of their tables.

Tables are left where they are; a frame notes their offsets.
"""

from typing import Any

from fieldslab.schemas.codecs.jpeg import (
    DAMAGED,
    NOT_JPEG,
    OK,
    UNSUPPORTED,
    Frame,
    find_next_segment,
    is_jpeg,
    load_big_u16,
    read_frame_header,
)
from fieldslab.schemas.jit import clear, load_u8, subkernel, types

_JFIF, _ADOBE_RGB, _ADOBE_OTHER = 1, 2, 3
_SINGLE_BLOCK = 0x11
_READ_SEGMENT = types.int64(types.int64, types.int64, types.int64, Frame)


@subkernel(types.int64(Frame))
def _check_sampling(frame: Any) -> int:
    """Check the components of a frame: the first is at most twice as fine as the others."""
    if frame.components == 1:  # the blocks of one component alone are in no finer order than rows
        frame.across, frame.down, frame.samplings[0] = 1, 1, _SINGLE_BLOCK
    for component in range(frame.components):
        sampling = frame.samplings[component]
        across, down = sampling >> 4, sampling & 15
        if frame.quantiser_numbers[component] > 3:
            return DAMAGED
        if across < 1 or across > 2 or down < 1 or down > 2:
            return UNSUPPORTED
        if component > 0 and sampling != _SINGLE_BLOCK:
            return UNSUPPORTED
    return OK


@subkernel(_READ_SEGMENT)
def _read_huffman_tables(address: int, offset: int, size: int, frame: Any) -> int:
    """Read DHT: note where each table begins."""
    end = offset + size
    while offset < end:
        if end - offset < 17:
            return DAMAGED
        name = load_u8(address + offset)
        symbols = 0
        for length in range(1, 17):
            symbols += load_u8(address + offset + length)
        if name & 0xEC or symbols > 256 or symbols > end - offset - 17:
            return DAMAGED
        frame.huffman[(name >> 4) * 4 + (name & 3)] = offset + 1
        offset += 17 + symbols
    return OK


@subkernel(_READ_SEGMENT)
def _read_quantiser_tables(address: int, offset: int, size: int, frame: Any) -> int:
    """Read DQT: note where each table begins, and whether its numbers have 8 or 16 bits."""
    end = offset + size
    while offset < end:
        name = load_u8(address + offset)
        wide = name >> 4
        if wide > 1 or name & 15 > 3 or end - offset < 65 + 64 * wide:
            return DAMAGED
        frame.quantiser_tables[name & 3] = 2 * (offset + 1) + wide
        offset += 65 + 64 * wide
    return OK


@subkernel(types.void(types.int64, types.int64, Frame))
def _read_application(address: int, size: int, frame: Any) -> None:
    """Read APP0 of JFIF or APP14 of Adobe, which say how colours are coded."""
    if size < 12:
        return
    name = (load_big_u16(address) << 16) | load_big_u16(address + 2)
    fifth_byte = load_u8(address + 4)
    if name == 0x4A464946 and fifth_byte == 0 and size >= 14:  # "JFIF"
        frame.colours = _JFIF
    elif name == 0x41646F62 and fifth_byte == 0x65 and frame.colours != _JFIF:  # "Adobe"
        frame.colours = _ADOBE_RGB if load_u8(address + 11) == 0 else _ADOBE_OTHER


@subkernel(_READ_SEGMENT)
def _read_scan_header(address: int, offset: int, size: int, frame: Any) -> int:
    """Read SOS: one scan of all components, whose tables exist, coded as Y, Cb and Cr."""
    components = frame.components
    if components == 0 or size < 1:
        return DAMAGED
    if load_u8(address + offset) != components:
        return UNSUPPORTED
    if size != 4 + 2 * components:
        return DAMAGED
    for component in range(components):
        entry = address + offset + 1 + 2 * component
        tables = load_u8(entry + 1)
        if load_u8(entry) != frame.ids[component]:
            return UNSUPPORTED
        if tables & 0xCC:
            return DAMAGED
        dc_table, ac_table = tables >> 4, 4 + (tables & 3)
        quantisers = frame.quantiser_tables[frame.quantiser_numbers[component]]
        if quantisers == 0 or frame.huffman[dc_table] == 0 or frame.huffman[ac_table] == 0:
            return DAMAGED
        frame.dc_tables[component] = dc_table
        frame.ac_tables[component] = ac_table
        frame.quantisers[component] = quantisers
    spectrum = address + offset + size - 3
    if load_big_u16(spectrum) != 63 or load_u8(spectrum + 2) != 0:
        return UNSUPPORTED
    if components == 3:
        named_rgb = frame.ids[0] == 82 and frame.ids[1] == 71 and frame.ids[2] == 66
        if frame.colours == _ADOBE_RGB or (frame.colours == 0 and named_rgb):
            return UNSUPPORTED
    frame.scan = offset + size
    return OK


@subkernel(types.int64(types.int64, types.int64, Frame))
def read_header(address: int, length: int, frame: Any) -> int:
    """Read the headers of the image of `length` bytes at `address` into a frame.

    Returns OK for baseline images (SOF0 and SOF1 with eight bits) that are grey or Y, Cb and Cr
    with 4:4:4, 4:2:2, 4:4:0 or 4:2:0 sampling in a single scan; UNSUPPORTED for other kinds;
    NOT_JPEG, TRUNCATED or DAMAGED. How RGB is told from Y, Cb and Cr is what libjpeg does.
    """
    clear(frame)
    if not is_jpeg(address, length):
        return NOT_JPEG
    offset = 2
    while True:
        marker, offset, size = find_next_segment(address, offset, length)
        if marker < 0:
            return -marker
        if marker <= 0x01 or (marker >= 0xD0 and marker <= 0xD9):
            return DAMAGED
        status = OK
        if marker == 0xDA:
            return _read_scan_header(address, offset, size, frame)
        elif marker == 0xC4:
            status = _read_huffman_tables(address, offset, size, frame)
        elif marker == 0xDB:
            status = _read_quantiser_tables(address, offset, size, frame)
        elif marker == 0xDD:
            if size != 2:
                return DAMAGED
            frame.interval = load_big_u16(address + offset)
        elif marker == 0xE0 or marker == 0xEE:
            _read_application(address + offset, size, frame)
        elif marker == 0xC0 or marker == 0xC1:
            status = read_frame_header(address, offset, size, frame)
            if status == OK:
                status = _check_sampling(frame)
        elif marker >= 0xC2 and marker <= 0xCF:  # progressive, lossless, arithmetic, ...
            if size >= 5:
                frame.height = load_big_u16(address + offset + 1)
                frame.width = load_big_u16(address + offset + 3)
            return UNSUPPORTED
        if status != OK:
            return status
        offset += size
