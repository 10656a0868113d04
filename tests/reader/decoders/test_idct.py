"""The inverse cosine transform, beside the definition."""

import math
from typing import Any

import numpy as np
import pytest
from tests.jpegs import encode, photograph

from fieldslab.reader.decoders import idct
from fieldslab.schemas.codecs import jpeg
from fieldslab.schemas.codecs.baseline import read_header
from fieldslab.schemas.jit import make_zero_record

BASIS = np.array(
    [
        [
            math.cos((2 * x + 1) * k * math.pi / 16) / (math.sqrt(8) if k == 0 else 2)
            for x in range(8)
        ]
        for k in range(8)
    ]
)
"""T.81, A.3.3."""
STRIDE = 40


def read_frame(data: bytes) -> tuple[np.ndarray, Any]:
    """The image in memory, and its frame."""
    values, frame = np.frombuffer(data, np.uint8), make_zero_record(jpeg.FRAME)
    assert read_header(values.ctypes.data, len(values), frame) == jpeg.OK
    return values, frame


def scales(shrink: int = 0) -> np.ndarray:
    """Quantisers of 1, as `transform_tile` wants them."""
    values, frame = read_frame(encode(photograph(8, 8), "grey", quality=100))
    out = np.empty(64, np.float32)
    idct.scale_quantisers(values.ctypes.data, frame, shrink, out)
    return out


def samples(tile: np.ndarray, quantisers: np.ndarray, shrink: int = 0) -> np.ndarray:
    """uint8[16 blocks, side, side] of a tile, int16[64, 16]."""
    side = 8 >> shrink
    out = np.full(8 * STRIDE, -1, np.int32)
    flat = tile.reshape(-1).copy()
    idct.transform_tile(flat, quantisers, np.empty(idct.TILE, np.float32), out, STRIDE, shrink)
    assert not flat.any()
    rows = out.view(np.uint8).reshape(8, 4 * STRIDE)
    assert (rows[:, 16 * side :] == 255).all()
    assert (rows[side:] == 255).all()
    return rows[:side, : 16 * side].reshape(side, 16, side).transpose(1, 0, 2)


@pytest.mark.parametrize("shrink", range(4))
@pytest.mark.parametrize("size", [1, 30, 300, 2000])
def test_samples_are_those_of_the_definition(size: int, shrink: int) -> None:
    """Rounded and cut to 0..255, for blocks with few and many coefficients of any size.

    Shrunk, they are the cosines of the lowest frequencies at the centres of larger samples.
    """
    random = np.random.default_rng(size)
    side = 8 >> shrink
    tile = np.zeros((8, 8, 16), np.int16)
    for block in range(16):
        rows, columns = divmod(random.permutation(side * side)[: 4 * block + 1], side)
        tile[rows, columns, block] = random.integers(-size, size + 1, len(rows))
    actual = samples(tile, scales(shrink), shrink)
    centres = (2 * np.arange(side) + 1) * 2**shrink
    basis = np.cos(np.arange(8)[:, None] * centres * math.pi / 16) / 2
    basis[0] = 1 / math.sqrt(8)
    for block in range(16):
        exact = basis.T @ tile[..., block].astype(float) @ basis + 128
        assert np.abs(actual[block] - exact.clip(0, 255)).max() < 0.501


def test_coefficients_of_any_size_stay_in_range() -> None:
    """Damage may bring the largest numbers."""
    random = np.random.default_rng(1)
    tile = random.choice([-32768, 32767], (64, 16)).astype(np.int16)
    assert set(np.unique(samples(tile, scales() * 65535))) <= {0, 255}


@pytest.mark.parametrize("wide", [False, True])
def test_quantisers_stand_in_natural_order(wide: bool) -> None:
    """Of 8 bits and of 16, for each component."""
    data = encode(photograph(8, 8), "grey", quality=100)
    offset = data.index(b"\xff\xdb")
    numbers = np.arange(1, 65) * (900 if wide else 3)
    table = numbers.astype(">u2" if wide else np.uint8).tobytes()
    segment = b"\xff\xdb" + (len(table) + 3).to_bytes(2, "big") + bytes([16 * wide]) + table
    values, frame = read_frame(data[:offset] + segment + data[offset + 69 :])
    actual = np.empty(64, np.float32)
    idct.scale_quantisers(values.ctypes.data, frame, 0, actual)
    natural = np.empty(64)
    natural[idct.ZIGZAG] = numbers
    np.testing.assert_allclose(actual / scales(), natural, rtol=1e-6)
