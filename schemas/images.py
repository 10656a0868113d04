"""Image headers: which codec some bytes are, and the height and width that they state."""

import struct

import numpy as np

FORMATS = ("jpeg", "png", "webp")
CODES = {None: 0, "jpeg": 1, "png": 2, "webp": 3, "rgb": 4, "yuv420": 5}
"""Codec -> how it is told in numbers; None is everything that is not known by its first bytes."""

CODECS = tuple(CODES)
"""Codec by code."""
PIXELS = ("rgb", "yuv420")
"""Codecs that are no file format: decoded pixels."""

_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BARE = frozenset({0x00, 0x01, *range(0xD0, 0xD9)})
_SCAN_OR_END = frozenset({0xD9, 0xDA})


def detect_format(data: memoryview) -> str | None:
    """Detect 'jpeg', 'png' or 'webp' by the first bytes; None for anything else."""
    head = bytes(data[:12])
    if head.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if head[:4] == b"RIFF" and head[8:] == b"WEBP":
        return "webp"
    return None


def read_image_size(data: memoryview) -> tuple[str | None, int, int]:
    """Read codec, height and width from the header; (None, 0, 0) if that fails.

    The size is that of the stored picture: EXIF orientation is not applied.
    """
    codec = detect_format(data)
    try:
        if codec == "jpeg":
            _, height, width = find_jpeg_frame(data)
        elif codec == "png":
            height, width = _read_png_size(data)
        elif codec == "webp":
            height, width = _read_webp_size(data)
        else:
            return None, 0, 0
    except (struct.error, IndexError, ValueError):
        return None, 0, 0
    return (codec, height, width) if height and width else (None, 0, 0)


def read_image_sizes(
    values: np.ndarray, lengths: np.ndarray
) -> tuple[np.ndarray, list[str | None]]:
    """Read the sizes and codecs of many images.

    Parameters
    ----------
    values
        uint8[bytes], the images one behind the other.
    lengths
        int64[images], bytes of each.

    Returns
    -------
    uint32[images, 2] of height and width, and the codec of each; 0, 0 and None where a header
    cannot be read.
    """
    data = memoryview(np.ascontiguousarray(values).data)
    sizes = np.zeros((len(lengths), 2), np.uint32)
    codecs: list[str | None] = []
    start = 0
    for index, length in enumerate(lengths.tolist()):
        codec, height, width = read_image_size(data[start : start + length])
        sizes[index] = height, width
        codecs.append(codec)
        start += length
    return sizes, codecs


def find_codecs(values: np.ndarray, lengths: np.ndarray, codec: str | None) -> np.ndarray:
    """Find the codes of the codecs of images, uint8[images]: 0 for those without bytes.

    All others have this codec; of "mixed" images, the first bytes tell it. `values` and `lengths`
    are as for `read_image_sizes`.
    """
    if codec != "mixed":
        return np.where(lengths > 0, CODES[codec], 0).astype(np.uint8)
    data, ends = memoryview(np.ascontiguousarray(values).data), np.cumsum(lengths).tolist()
    starts = [0, *ends[:-1]]
    formats = [detect_format(data[start:end]) for start, end in zip(starts, ends, strict=True)]
    return np.array([CODES[each] for each in formats], np.uint8)


def find_jpeg_frame(data: memoryview | bytes) -> tuple[int, int, int]:
    """Read marker, height and width of a JPEG's frame (ITU-T T.81, B.2.2); skip stray bytes.

    Raises ValueError, IndexError or struct.error where there is none.
    """
    position = 2
    while True:
        if data[position] != 0xFF:
            data = bytes(data)
            position = data.index(b"\xff", position)
        marker = data[position + 1]
        if marker == 0xFF:
            position += 1
        elif marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, position + 5)
            return marker, height, width
        elif marker in _SCAN_OR_END:
            raise ValueError("the header has no size")
        elif marker in _BARE:
            position += 2
        else:
            position += 2 + max(struct.unpack_from(">H", data, position + 2)[0], 2)


def _read_png_size(data: memoryview) -> tuple[int, int]:
    """Read height and width from the first chunk, IHDR (ISO 15948, 11.2.2)."""
    width, height = struct.unpack_from(">II", data, 16)
    if bytes(data[12:16]) != b"IHDR" or max(width, height) >= 2**31:
        raise ValueError("the header has no size")
    return height, width


def _read_webp_size(data: memoryview) -> tuple[int, int]:
    """Read height and width from the first chunk (RFC 9649): lossy, lossless or extended."""
    chunk = bytes(data[12:16])
    if chunk == b"VP8 " and bytes(data[23:26]) == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        return height & 0x3FFF, width & 0x3FFF
    if chunk == b"VP8L" and data[20] == 0x2F:
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1
    if chunk == b"VP8X":
        low, high, low2, high2 = struct.unpack_from("<HBHB", data, 24)
        return (high2 << 16 | low2) + 1, (high << 16 | low) + 1
    raise ValueError("the header has no size")
