"""Damages JPEG images: bits, ends, segments, headers, and pieces of other images."""

import random
from collections.abc import Sequence

_BYTES = (0x00, 0x01, 0x7F, 0x80, 0xC0, 0xC4, 0xD0, 0xD8, 0xD9, 0xDA, 0xDB, 0xDD, 0xFE, 0xFF)


def damaged(rng: random.Random, images: Sequence[bytes]) -> tuple[bytes, bytes]:
    """One of the images, and what is left of it after a change or more."""
    whole = rng.choice(images)
    data = bytearray(whole)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        _CHANGES[rng.randrange(len(_CHANGES))](rng, data, images)
    return whole, bytes(data)


def _place(rng: random.Random, data: bytearray) -> int:
    """Anywhere, but every other time among the headers."""
    end = max(data.find(b"\xff\xda"), 0) + 14 if rng.randrange(2) else len(data)
    return rng.randrange(max(min(end, len(data)), 1))


def _segments(data: bytearray) -> list[tuple[int, int]]:
    """Where segments begin and end, up to the first scan's header."""
    actual, offset = [], 2
    while offset + 4 <= len(data) and data[offset] == 0xFF:
        end = offset + 2 + int.from_bytes(data[offset + 2 : offset + 4], "big")
        actual.append((offset, min(end, len(data))))
        if data[offset + 1] == 0xDA or end >= len(data):
            break
        offset = end
    return actual or [(0, len(data))]


def _flip(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[_place(rng, data)] ^= 1 << rng.randrange(8)


def _write(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    offset = _place(rng, data)
    size = rng.randrange(1, 9)
    data[offset : offset + size] = bytes(
        rng.choice([*_BYTES, rng.randrange(256)]) for _ in range(size)
    )


def _marker(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    offset = _place(rng, data)
    data[offset : offset + 2] = bytes([0xFF, rng.randrange(0xBF, 0x100)])


def _cut(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[_place(rng, data) :]


def _remove(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    offset = _place(rng, data)
    del data[offset : offset + rng.choice([1, 2, 3, 16, 300])]


def _insert(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    offset = _place(rng, data)
    data[offset:offset] = rng.choice([rng.randbytes(rng.randrange(1, 40)), bytes(20), b"\xff" * 20])


def _segment(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """Remove a segment, repeat it elsewhere, or let it state another length."""
    segments = _segments(data)
    start, end = rng.choice(segments)
    kind = rng.randrange(3)
    if kind == 0:
        del data[start:end]
    elif kind == 1:
        to = rng.choice(segments)[0]
        data[to:to] = data[start:end]
    else:
        data[start + 2 : start + 4] = rng.choice([0, 1, 2, 3, end - start, 65535]).to_bytes(
            2, "big"
        )


def _frame(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """Let the frame header state another size, sampling, precision or kind."""
    for start, end in _segments(data):
        if end - start > 1 and data[start + 1] in (0xC0, 0xC1, 0xC2):
            offset = start + rng.choice([1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15])
            if offset < len(data):
                data[offset] = rng.choice(
                    [0, 1, 2, 3, 4, 0x11, 0x12, 0x21, 0x22, 0x41, 0xC1, 0xC2, 255]
                )
            return


def _splice(rng: random.Random, data: bytearray, images: Sequence[bytes]) -> None:
    """Go on with another image, from some place of it."""
    other = bytearray(rng.choice(images))
    data[_place(rng, data) :] = other[_place(rng, other) :]


_CHANGES = (
    _flip,
    _flip,
    _flip,
    _flip,
    _write,
    _write,
    _marker,
    _cut,
    _remove,
    _insert,
    _segment,
    _frame,
    _splice,
)
