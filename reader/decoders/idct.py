"""The inverse cosine transform of sixteen blocks at a time.

A tile has the coefficients of 16 blocks: int16[64 * 16], all of the first frequency (in natural
order, not zigzag), then all of the second, and so on. Loops over 16 neighbours become vector
instructions. The transform is that of Arai, Agui and Nakajima (1988) in float32, with its scale
factors in the quantisers; it is as accurate as libjpeg's slow integer one.

A block may be shrunk: with `shrink` s, the lowest n = 8 >> s frequencies of either direction are
transformed to n x n samples, each of which stands for 2**s x 2**s pixels. The inverse transform of
size n has the same cosines, at the centres of its samples; n / 8 makes up for its other norm.
"""

import math
from typing import Any

import numpy as np

from fieldslab.schemas.codecs.jpeg import Frame, load_big_u16
from fieldslab.schemas.jit import inlined, load_u8, subkernel, types

LANES = 16
TILE = 64 * LANES
_DIAGONALS = [(row + column, row, column) for row in range(8) for column in range(8)]
_DIAGONALS.sort(key=lambda place: (place[0], place[1] if place[0] % 2 else -place[1]))
ZIGZAG = np.array([8 * row + column for _, row, column in _DIAGONALS])
"""Natural position of each coefficient, in the order in which they are stored."""

_AAN = [1.0] + [math.cos(k * math.pi / 16) * math.sqrt(2) for k in range(1, 8)]
_HALF = [1 / 2, math.sqrt(1 / 2), 1 / 2, math.sqrt(1 / 2)]
_FACTORS = [_AAN, [*_HALF, *[0.0] * 4], [1.0] * 2 + [0.0] * 6, [1.0] + [0.0] * 7]
_NORMS = 8, 2, 8, 8
_SCALES = np.array(
    [
        factors[i // 8] * factors[i % 8] / norm
        for factors, norm in zip(_FACTORS, _NORMS, strict=True)
        for i in range(64)
    ],
    np.float32,
)
"""By `shrink` and natural position: what a coefficient is multiplied by before the transform."""
_COS1, _COS3 = np.float32(math.cos(math.pi / 8)), np.float32(math.cos(3 * math.pi / 8))
_A = np.float32(math.sqrt(2))
_B = np.float32(2 * math.cos(math.pi / 8))
_C = np.float32(2 * (math.cos(math.pi / 8) - math.cos(3 * math.pi / 8)))
_D = np.float32(2 * (math.cos(math.pi / 8) + math.cos(3 * math.pi / 8)))
_MIDDLE = np.float32(128.5)
_LOW, _HIGH = np.float32(0), np.float32(255)


@inlined
def find_chroma_shrink(frame: Any, shrink: int) -> int:
    """Find how far to shrink chroma if luma is: less if subsampled, so that both look alike."""
    subsampled = frame.across > 1 or frame.down > 1
    return max(shrink - 1, 0) if subsampled else shrink


@subkernel(types.void(types.int64, Frame, types.int64, types.float32[::1]))
def scale_quantisers(address: int, frame: Any, shrink: int, out: Any) -> None:
    """Write the quantisers of each component of the image at `address`, for `transform_tile`."""
    for component in range(frame.components):
        scales = 64 * (find_chroma_shrink(frame, shrink) if component > 0 else shrink)
        table, wide = address + (frame.quantisers[component] >> 1), frame.quantisers[component] & 1
        for i in range(64):
            number = load_big_u16(table + 2 * i) if wide else load_u8(table + i)
            natural = ZIGZAG[i]
            out[64 * component + natural] = np.float32(number) * _SCALES[scales + natural]


@inlined
def _transform_eight(
    r0: Any, r1: Any, r2: Any, r3: Any, r4: Any, r5: Any, r6: Any, r7: Any
) -> tuple[Any, Any, Any, Any, Any, Any, Any, Any]:
    """Transform eight scaled coefficients to eight samples."""
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
def _clamp_sample(value: Any) -> Any:
    """Clamp a sample, to which 128.5 was added, to an int32 in 0..255."""
    value = value if value > _LOW else _LOW
    value = value if value < _HIGH else _HIGH
    return np.int32(value)


@subkernel("void(int16[::1], float32[::1], float32[::1])")
def _transform_columns(tile: Any, quantisers: Any, work: Any) -> None:
    """Dequantise and transform along columns."""
    for column in range(8):
        q0, q1 = quantisers[column], quantisers[column + 8]
        q2, q3 = quantisers[column + 16], quantisers[column + 24]
        q4, q5 = quantisers[column + 32], quantisers[column + 40]
        q6, q7 = quantisers[column + 48], quantisers[column + 56]
        c = tile[16 * column : 16 * column + 912]
        w = work[16 * column : 16 * column + 912]
        for i in range(16):
            s0, s1, s2, s3, s4, s5, s6, s7 = _transform_eight(
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


@subkernel("void(float32[::1], int32[::1], int64)")
def _transform_rows(work: Any, out: Any, stride: int) -> None:
    """Transform along rows; four samples at a time become an int32."""
    for row in range(8):
        w = work[128 * row : 128 * row + 128]
        o = out[row * stride : row * stride + 32]
        for i in range(16):
            s0, s1, s2, s3, s4, s5, s6, s7 = _transform_eight(
                w[i] + _MIDDLE,
                w[i + 16],
                w[i + 32],
                w[i + 48],
                w[i + 64],
                w[i + 80],
                w[i + 96],
                w[i + 112],
            )
            low = (
                _clamp_sample(s0)
                | (_clamp_sample(s1) << 8)
                | (_clamp_sample(s2) << 16)
                | (_clamp_sample(s3) << 24)
            )
            high = (
                _clamp_sample(s4)
                | (_clamp_sample(s5) << 8)
                | (_clamp_sample(s6) << 16)
                | (_clamp_sample(s7) << 24)
            )
            o[2 * i] = low
            o[2 * i + 1] = high


@inlined
def _transform_four(r0: Any, r1: Any, r2: Any, r3: Any) -> tuple[Any, Any, Any, Any]:
    """Transform four scaled coefficients to four samples."""
    e0, e1 = r0 + r2, r0 - r2
    o0, o1 = r1 * _COS1 + r3 * _COS3, r1 * _COS3 - r3 * _COS1
    return e0 + o0, e1 + o1, e1 - o1, e0 - o0


@subkernel("void(int16[::1], float32[::1], float32[::1], int32[::1], int64)")
def _transform_to_4x4(tile: Any, quantisers: Any, work: Any, out: Any, stride: int) -> None:
    """Transform the lowest 4 x 4 coefficients."""
    for column in range(4):
        q0, q1 = quantisers[column], quantisers[column + 8]
        q2, q3 = quantisers[column + 16], quantisers[column + 24]
        c = tile[16 * column : 16 * column + 400]
        w = work[16 * column : 16 * column + 208]
        for i in range(16):
            s0, s1, s2, s3 = _transform_four(
                np.float32(c[i]) * q0,
                np.float32(c[i + 128]) * q1,
                np.float32(c[i + 256]) * q2,
                np.float32(c[i + 384]) * q3,
            )
            w[i], w[i + 64], w[i + 128], w[i + 192] = s0, s1, s2, s3
    for row in range(4):
        w = work[64 * row : 64 * row + 64]
        o = out[row * stride : row * stride + 16]
        for i in range(16):
            s0, s1, s2, s3 = _transform_four(w[i] + _MIDDLE, w[i + 16], w[i + 32], w[i + 48])
            o[i] = (
                _clamp_sample(s0)
                | (_clamp_sample(s1) << 8)
                | (_clamp_sample(s2) << 16)
                | (_clamp_sample(s3) << 24)
            )


@subkernel("void(int16[::1], float32[::1], int32[::1], int64)")
def _transform_to_2x2(tile: Any, quantisers: Any, out: Any, stride: int) -> None:
    """Transform the lowest 2 x 2 coefficients."""
    q0, q1, q2, q3 = quantisers[0], quantisers[1], quantisers[8], quantisers[9]
    pairs = np.empty((2, 16), np.int32)
    for i in range(16):
        c0, c1 = np.float32(tile[i]) * q0 + _MIDDLE, np.float32(tile[i + 16]) * q1
        c2, c3 = np.float32(tile[i + 128]) * q2, np.float32(tile[i + 144]) * q3
        pairs[0, i] = _clamp_sample(c0 + c1 + c2 + c3) | (_clamp_sample(c0 - c1 + c2 - c3) << 8)
        pairs[1, i] = _clamp_sample(c0 + c1 - c2 - c3) | (_clamp_sample(c0 - c1 - c2 + c3) << 8)
    for row in range(2):
        for i in range(8):
            out[row * stride + i] = pairs[row, 2 * i] | (pairs[row, 2 * i + 1] << 16)


@subkernel("void(int16[::1], float32[::1], int32[::1])")
def _transform_to_1x1(tile: Any, quantisers: Any, out: Any) -> None:
    """Turn the first coefficients into samples."""
    for i in range(4):
        sample = np.int32(0)
        for j in range(4):
            level = _clamp_sample(np.float32(tile[4 * i + j]) * quantisers[0] + _MIDDLE)
            sample |= level << (8 * j)
        out[i] = sample


@subkernel("void(int16[::1], float32[::1], float32[::1], int32[::1], int64, int64)")
def transform_tile(
    tile: Any, quantisers: Any, work: Any, out: Any, stride: int, shrink: int
) -> None:
    """Make samples of a tile: rows of 16 blocks side by side, and leave the tile empty.

    Parameters
    ----------
    tile
        int16[TILE]. With `shrink`, coefficients other than the lowest and the last are 0.
    quantisers
        float32[64], from `scale_quantisers`.
    work
        float32[TILE], scratch.
    out, stride
        Where samples go: bytes, four to an int32; `stride` is from row to row, in int32.
    shrink
        0 to 3: a block has 8 >> shrink rows and columns of samples.
    """
    if shrink == 0:
        _transform_columns(tile, quantisers, work)
        tile[:] = 0
        _transform_rows(work, out, stride)
        return
    if shrink == 1:
        _transform_to_4x4(tile, quantisers, work, out, stride)
    elif shrink == 2:
        _transform_to_2x2(tile, quantisers, out, stride)
    else:
        _transform_to_1x1(tile, quantisers, out)
    for row in range(8 >> shrink):
        tile[128 * row : 128 * row + (128 >> shrink)] = 0
    tile[TILE - LANES :] = 0
