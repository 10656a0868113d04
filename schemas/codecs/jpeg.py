"""Headers of baseline JPEG images (ITU-T T.81, annex B), read by a kernel.

What is read stays inside the image's bytes, whatever they say. Everything up to the entropy-coded
data of the one scan is summed up in a header: int64[FIELDS], with offsets from the image's first
byte. Tables are left where they are; only their place is noted.
"""

from typing import Any

from fieldslab.schemas.jit import inlined, kernel, load_u8

OK, UNSUPPORTED, NOT_JPEG, TRUNCATED, DAMAGED = 0, 1, 2, 3, 4
"""What became of an image; the reader's `Status` has the same numbers."""

HEIGHT, WIDTH, COMPONENTS = 0, 1, 2
"""Of the picture. Height and width are 0 where no frame header was reached."""
ACROSS, DOWN = 3, 4
"""Blocks of the first component in an MCU: 1 or 2 each way. The others have one block."""
INTERVAL = 5
"""MCUs between restart markers; 0 without them."""
SCAN = 6
"""Offset of the first entropy-coded byte."""
QUANTISERS = 7
"""For each of three components: offset of its 64 quantisers, times 2, plus 1 if of 16 bits."""
DC_TABLE, AC_TABLE = 10, 13
"""For each of three components: the number (0..7) of its Huffman table for DC and for AC."""
HUFFMAN = 16
"""For each of eight Huffman tables (4 for DC, 4 for AC): offset of its 16 counts; 0 if missing."""
FIELDS = 32

_QUANTISER_TABLES, _IDS, _COLOURS = 24, 28, 31
_JFIF, _ADOBE_RGB, _ADOBE_OTHER = 1, 2, 3


@inlined
def load_big_u16(at: int) -> int:
    """Two bytes, the high one first."""
    return (load_u8(at) << 8) | load_u8(at + 1)


@inlined
def next_segment(address: int, at: int, length: int) -> tuple[int, int, int]:
    """The segment at offset `at`, behind fill bytes: its marker, and offset and size of its data.

    The marker is 0 where there is none; 0x01 and 0xD0 to 0xD9 come without data. It is -TRUNCATED
    where the image ends within the segment, and -DAMAGED where its size cannot be.
    """
    while at + 1 < length and load_big_u16(address + at) == 0xFFFF:
        at += 1
    if at + 4 > length:
        return -TRUNCATED, at, 0
    marker = load_u8(address + at + 1)
    if load_u8(address + at) != 0xFF:
        marker = 0
    if marker <= 0x01 or (marker >= 0xD0 and marker <= 0xD9):
        return marker, at + 2, 0
    size = load_big_u16(address + at + 2) - 2
    if size < 0:
        return -DAMAGED, at, 0
    if size > length - at - 4:
        return -TRUNCATED, at, 0
    return marker, at + 4, size


@kernel("int64(int64, int64, int64, int64[::1])")
def _frame(address: int, at: int, size: int, header: Any) -> int:
    """SOF0, SOF1: eight bits, one or three components, the first at most twice as fine."""
    if header[COMPONENTS] != 0 or size < 6:
        return DAMAGED
    at += address
    components = load_u8(at + 5)
    header[HEIGHT] = load_big_u16(at + 1)
    header[WIDTH] = load_big_u16(at + 3)
    if load_u8(at) != 8 or header[HEIGHT] == 0 or (components != 1 and components != 3):
        return UNSUPPORTED
    if size != 6 + 3 * components or header[WIDTH] == 0:
        return DAMAGED
    header[COMPONENTS] = components
    for component in range(components):
        entry = at + 6 + 3 * component
        header[_IDS + component] = load_u8(entry)
        sampling = load_u8(entry + 1)
        table = load_u8(entry + 2)
        if table > 3:
            return DAMAGED
        header[QUANTISERS + component] = table
        across, down = sampling >> 4, sampling & 15
        if components == 1:  # the blocks of one component alone are in no finer order than rows
            across, down = 1, 1
        if component == 0:
            header[ACROSS], header[DOWN] = across, down
            if across < 1 or across > 2 or down < 1 or down > 2:
                return UNSUPPORTED
        elif across != 1 or down != 1:
            return UNSUPPORTED
    return OK


@kernel("int64(int64, int64, int64, int64[::1])")
def _huffman_tables(address: int, at: int, size: int, header: Any) -> int:
    """DHT: note where each table begins."""
    end = at + size
    while at < end:
        if end - at < 17:
            return DAMAGED
        name = load_u8(address + at)
        symbols = 0
        for length in range(1, 17):
            symbols += load_u8(address + at + length)
        if name & 0xEC or symbols > 256 or symbols > end - at - 17:
            return DAMAGED
        header[HUFFMAN + (name >> 4) * 4 + (name & 3)] = at + 1
        at += 17 + symbols
    return OK


@kernel("int64(int64, int64, int64, int64[::1])")
def _quantiser_tables(address: int, at: int, size: int, header: Any) -> int:
    """DQT: note where each table begins, and whether its numbers have 8 or 16 bit."""
    end = at + size
    while at < end:
        name = load_u8(address + at)
        wide = name >> 4
        if wide > 1 or name & 15 > 3 or end - at < 65 + 64 * wide:
            return DAMAGED
        header[_QUANTISER_TABLES + (name & 3)] = 2 * (at + 1) + wide
        at += 65 + 64 * wide
    return OK


@kernel("int64(int64, int64, int64[::1])")
def _application(at: int, size: int, header: Any) -> int:
    """APP0 of JFIF or APP14 of Adobe, which say how colours are coded."""
    if size < 12:
        return OK
    first = (load_big_u16(at) << 16) | load_big_u16(at + 2)
    fifth = load_u8(at + 4)
    if first == 0x4A464946 and fifth == 0 and size >= 14:  # "JFIF"
        header[_COLOURS] = _JFIF
    elif first == 0x41646F62 and fifth == 0x65 and header[_COLOURS] != _JFIF:  # "Adobe"
        header[_COLOURS] = _ADOBE_RGB if load_u8(at + 11) == 0 else _ADOBE_OTHER
    return OK


@kernel("int64(int64, int64, int64, int64[::1])")
def _scan(address: int, at: int, size: int, header: Any) -> int:
    """SOS: the one scan of all components, with tables that are there, coded as Y, Cb and Cr."""
    components = header[COMPONENTS]
    if components == 0 or size < 1:
        return DAMAGED
    if load_u8(address + at) != components:
        return UNSUPPORTED
    if size != 4 + 2 * components:
        return DAMAGED
    for component in range(components):
        entry = address + at + 1 + 2 * component
        tables = load_u8(entry + 1)
        if load_u8(entry) != header[_IDS + component]:
            return UNSUPPORTED
        if tables & 0xCC:
            return DAMAGED
        header[DC_TABLE + component] = tables >> 4
        header[AC_TABLE + component] = 4 + (tables & 3)
        quantisers = header[_QUANTISER_TABLES + header[QUANTISERS + component]]
        header[QUANTISERS + component] = quantisers
        dc = header[HUFFMAN + header[DC_TABLE + component]]
        ac = header[HUFFMAN + header[AC_TABLE + component]]
        if quantisers == 0 or dc == 0 or ac == 0:
            return DAMAGED
    spectrum = address + at + size - 3
    if load_big_u16(spectrum) != 63 or load_u8(spectrum + 2) != 0:
        return UNSUPPORTED
    if components == 3:
        named_rgb = header[_IDS] == 82 and header[_IDS + 1] == 71 and header[_IDS + 2] == 66
        if header[_COLOURS] == _ADOBE_RGB or (header[_COLOURS] == 0 and named_rgb):
            return UNSUPPORTED
    header[SCAN] = at + size
    return OK


@kernel("int64(int64, int64, int64[::1])")
def read_header(address: int, length: int, header: Any) -> int:
    """Read the header of the image of `length` bytes at `address`; see the names above.

    Returns OK for baseline images (SOF0 and SOF1 with eight bits) that are grey or Y, Cb and Cr
    with 4:4:4, 4:2:2, 4:4:0 or 4:2:0 sampling in a single scan; UNSUPPORTED for other kinds;
    NOT_JPEG, TRUNCATED or DAMAGED. How RGB is told from Y, Cb and Cr is what libjpeg does.
    """
    header[:] = 0
    if length < 3 or load_big_u16(address) != 0xFFD8 or load_u8(address + 2) != 0xFF:
        return NOT_JPEG
    at = 2
    while True:
        marker, at, size = next_segment(address, at, length)
        if marker < 0:
            return -marker
        if marker <= 0x01 or (marker >= 0xD0 and marker <= 0xD9):
            return DAMAGED
        status = OK
        if marker == 0xDA:
            return _scan(address, at, size, header)
        elif marker == 0xC4:
            status = _huffman_tables(address, at, size, header)
        elif marker == 0xDB:
            status = _quantiser_tables(address, at, size, header)
        elif marker == 0xDD:
            if size != 2:
                return DAMAGED
            header[INTERVAL] = load_big_u16(address + at)
        elif marker == 0xE0 or marker == 0xEE:
            status = _application(address + at, size, header)
        elif marker == 0xC0 or marker == 0xC1:
            status = _frame(address, at, size, header)
        elif marker >= 0xC2 and marker <= 0xCF:  # progressive, lossless, arithmetic, ...
            if size >= 5:
                header[HEIGHT] = load_big_u16(address + at + 1)
                header[WIDTH] = load_big_u16(address + at + 3)
            return UNSUPPORTED
        if status != OK:
            return status
        at += size
