"""The inverse cosine transform of sixteen blocks at a time.

A tile has the coefficients of 16 blocks: int16[64 * 16], all of the first frequency (in natural
order, not zigzag), then all of the second, and so on. Loops over 16 neighbours become vector
instructions. The transform is that of Arai, Agui and Nakajima (1988) in float32, with its scale
factors in the quantisers; it is as accurate as libjpeg's slow integer one.
"""

import math
from typing import Any

import numpy as np

from fieldslab.schemas.codecs.jpeg import Frame, load_big_u16
from fieldslab.schemas.jit import inlined, kernel, load_u8, types

LANES = 16
TILE = 64 * LANES
_DIAGONALS = [(row + column, row, column) for row in range(8) for column in range(8)]
_DIAGONALS.sort(key=lambda place: (place[0], place[1] if place[0] % 2 else -place[1]))
ZIGZAG = np.array([8 * row + column for _, row, column in _DIAGONALS])
"""Natural position of each coefficient, in the order in which they are stored."""

_AAN = [1.0] + [math.cos(k * math.pi / 16) * math.sqrt(2) for k in range(1, 8)]
_SCALES = np.array([_AAN[i // 8] * _AAN[i % 8] / 8 for i in range(64)], np.float32)
_A = np.float32(math.sqrt(2))
_B = np.float32(2 * math.cos(math.pi / 8))
_C = np.float32(2 * (math.cos(math.pi / 8) - math.cos(3 * math.pi / 8)))
_D = np.float32(2 * (math.cos(math.pi / 8) + math.cos(3 * math.pi / 8)))
_MIDDLE = np.float32(128.5)
_LOW, _HIGH = np.float32(0), np.float32(255)


@kernel(types.void(types.int64, Frame, types.float32[::1]))
def scale_quantisers(address: int, frame: Any, out: Any) -> None:
    """Write the quantisers of each component of the image at `address`, for `transform`."""
    for component in range(frame.components):
        table, wide = address + (frame.quantisers[component] >> 1), frame.quantisers[component] & 1
        for i in range(64):
            number = load_big_u16(table + 2 * i) if wide else load_u8(table + i)
            natural = ZIGZAG[i]
            out[64 * component + natural] = np.float32(number) * _SCALES[natural]


@inlined
def _butterfly(
    r0: Any, r1: Any, r2: Any, r3: Any, r4: Any, r5: Any, r6: Any, r7: Any
) -> tuple[Any, Any, Any, Any, Any, Any, Any, Any]:
    """Eight scaled coefficients -> eight samples."""
    e0, e1, e3 = r0 + r4, r0 - r4, r2 + r6
    e2 = (r2 - r6) * _A - e3
    a0, a3, a1, a2 = e0 + e3, e0 - e3, e1 + e2, e1 - e2
    z13, z10, z11, z12 = r5 + r3, r5 - r3, r1 + r7, r1 - r7
    b7 = z11 + z13
    z5 = (z10 + z12) * _B
    b6 = z5 - z10 * _D - b7
    b5 = (z11 - z13) * _A - b6
    b4 = z5 - z12 * _C - b5
    return a0 + b7, a1 + b6, a2 + b5, a3 + b4, a3 - b4, a2 - b5, a1 - b6, a0 - b7


@inlined
def _level(value: Any) -> Any:
    """A sample as int32 in 0..255; 128.5 was added before."""
    value = value if value > _LOW else _LOW
    value = value if value < _HIGH else _HIGH
    return np.int32(value)


@kernel("void(int16[::1], float32[::1], float32[::1])")
def _columns(tile: Any, quantisers: Any, work: Any) -> None:
    """Dequantise and transform along columns."""
    for column in range(8):
        q0, q1 = quantisers[column], quantisers[column + 8]
        q2, q3 = quantisers[column + 16], quantisers[column + 24]
        q4, q5 = quantisers[column + 32], quantisers[column + 40]
        q6, q7 = quantisers[column + 48], quantisers[column + 56]
        c = tile[16 * column : 16 * column + 912]
        w = work[16 * column : 16 * column + 912]
        for i in range(16):
            s0, s1, s2, s3, s4, s5, s6, s7 = _butterfly(
                np.float32(c[i]) * q0,
                np.float32(c[i + 128]) * q1,
                np.float32(c[i + 256]) * q2,
                np.float32(c[i + 384]) * q3,
                np.float32(c[i + 512]) * q4,
                np.float32(c[i + 640]) * q5,
                np.float32(c[i + 768]) * q6,
                np.float32(c[i + 896]) * q7,
            )
            w[i], w[i + 128], w[i + 256], w[i + 384] = s0, s1, s2, s3
            w[i + 512], w[i + 640], w[i + 768], w[i + 896] = s4, s5, s6, s7


@kernel("void(float32[::1], int32[::1], int64)")
def _rows(work: Any, out: Any, stride: int) -> None:
    """Transform along rows; four samples at a time become an int32."""
    for row in range(8):
        w = work[128 * row : 128 * row + 128]
        o = out[row * stride : row * stride + 32]
        for i in range(16):
            s0, s1, s2, s3, s4, s5, s6, s7 = _butterfly(
                w[i] + _MIDDLE,
                w[i + 16],
                w[i + 32],
                w[i + 48],
                w[i + 64],
                w[i + 80],
                w[i + 96],
                w[i + 112],
            )
            low = _level(s0) | (_level(s1) << 8) | (_level(s2) << 16) | (_level(s3) << 24)
            high = _level(s4) | (_level(s5) << 8) | (_level(s6) << 16) | (_level(s7) << 24)
            o[2 * i] = low
            o[2 * i + 1] = high


@kernel("void(int16[::1], float32[::1], float32[::1], int32[::1], int64)")
def transform(tile: Any, quantisers: Any, work: Any, out: Any, stride: int) -> None:
    """Make samples of a tile: 8 rows of 16 blocks side by side, and leave the tile empty.

    Parameters
    ----------
    tile
        int16[TILE].
    quantisers
        float32[64], from `scale_quantisers`.
    work
        float32[TILE], scratch.
    out, stride
        Where samples go: bytes, four to an int32; `stride` is from row to row, in int32.
    """
    _columns(tile, quantisers, work)
    tile[:] = 0
    _rows(work, out, stride)
