"""The frame header of a JPEG image, for decoders that leave the rest to a library.

Reads nothing outside the image's bytes, and takes more kinds than our own decoder: progressive
ones, several scans, any sampling.
"""

from typing import Any

import numpy as np

from fieldslab.reader.decoders.decoder import Status
from fieldslab.schemas.codecs.jpeg import load_big_u16, next_segment
from fieldslab.schemas.jit import kernel, load_u8

HEIGHT, WIDTH, COMPONENTS = 0, 1, 2
"""Of the picture; 1 or 3 components."""
ACROSS, DOWN = 3, 4
"""Pixels of an MCU."""
HEIGHT_AT = 5
"""Offset of the two bytes that state the height."""
PLAIN = 6
"""1 if rows of MCUs follow each other from one scan header to the end, without restart markers."""
FRAME = 7
"""Numbers in a frame."""

_OK, _UNSUPPORTED, _NOT_AN_IMAGE = int(Status.OK), int(Status.UNSUPPORTED), int(Status.NOT_AN_IMAGE)
_DAMAGED = int(Status.DAMAGED)
_TOO_LARGE, _OTHER_SIZE = int(Status.TOO_LARGE), int(Status.OTHER_SIZE)


@kernel("int64(int64, int64, int64, int64[::1])")
def _read_frame(address: int, at: int, size: int, frame: Any) -> int:
    """SOF0 to SOF2 (ITU-T T.81, B.2.2)."""
    if frame[COMPONENTS] != 0 or size < 6:
        return _DAMAGED
    components = load_u8(address + at + 5)
    frame[HEIGHT] = load_big_u16(address + at + 1)
    frame[WIDTH] = load_big_u16(address + at + 3)
    frame[HEIGHT_AT] = at + 1
    if size != 6 + 3 * components or frame[WIDTH] == 0:
        return _DAMAGED
    if load_u8(address + at) != 8 or frame[HEIGHT] == 0 or (components != 1 and components != 3):
        return _UNSUPPORTED
    frame[COMPONENTS] = components
    for component in range(components):
        sampling = load_u8(address + at + 7 + 3 * component)
        across = sampling >> 4
        down = sampling & 15
        if across < 1 or across > 4 or down < 1 or down > 4:
            return _DAMAGED
        frame[ACROSS] = max(frame[ACROSS], 8 * across)
        frame[DOWN] = max(frame[DOWN], 8 * down)
    return _OK


@kernel("int64(int64, int64, int64[::1])")
def read_frame(address: int, length: int, frame: Any) -> int:
    """Read the headers of the JPEG of `length` bytes at `address`, up to its first scan.

    Writes int64[FRAME], see the names above; height and width are 0 where they were not reached.
    Returns a `Status`: OK; UNSUPPORTED for arithmetic, lossless, hierarchical and 12-bit images,
    those that state their height behind the picture, and whatever has bytes between segments.
    """
    frame[:] = 0
    if length < 3 or load_big_u16(address) != 0xFFD8 or load_u8(address + 2) != 0xFF:
        return _NOT_AN_IMAGE
    interval = 0
    sequential = False
    at = 2
    while True:
        marker, at, size = next_segment(address, at, length)
        if marker < 0:
            return -marker
        if marker == 0xD8 or marker == 0xD9:
            return _DAMAGED
        if marker <= 0x01 or (marker >= 0xD0 and marker <= 0xD7):
            return _UNSUPPORTED
        if marker == 0xDA:
            if frame[COMPONENTS] == 0 or size < 1:
                return _DAMAGED
            whole = load_u8(address + at) == frame[COMPONENTS]
            frame[PLAIN] = 1 if sequential and whole and interval == 0 else 0
            return _OK
        if marker == 0xDD and size == 2:
            interval = load_big_u16(address + at)
        elif marker >= 0xC0 and marker <= 0xC2:
            status = _read_frame(address, at, size, frame)
            if status != _OK:
                return status
            sequential = marker != 0xC2
        elif marker >= 0xC3 and marker <= 0xCF and marker != 0xC4 and marker != 0xC8:
            return _UNSUPPORTED
        at += size


@kernel("int64(int64, int64, uint32[::1], int64, int64[::1])")
def check_frame(address: int, length: int, size: Any, max_pixels: int, frame: Any) -> int:
    """Do as `read_frame`; TOO_LARGE or OTHER_SIZE if the picture is not what is expected."""
    status = read_frame(address, length, frame)
    if frame[HEIGHT] * frame[WIDTH] > max_pixels:
        return _TOO_LARGE
    if status == _OK and (frame[HEIGHT] != np.int64(size[0]) or frame[WIDTH] != np.int64(size[1])):
        return _OTHER_SIZE
    return status


@kernel("void(int64[::1], int64[::1], uint32[:, ::1], int64[::1], int64, int32[::1])")
def check_frames(
    addresses: Any, lengths: Any, sizes: Any, which: Any, max_pixels: int, statuses: Any
) -> None:
    """Check the headers of the images `which`; `statuses` is as long as that."""
    frame = np.empty(FRAME, np.int64)
    for position in range(len(which)):
        image = which[position]
        statuses[position] = check_frame(
            addresses[image], lengths[image], sizes[image], max_pixels, frame
        )
