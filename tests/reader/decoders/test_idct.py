"""The inverse cosine transform, beside the definition."""

import math
from typing import Any

import numpy as np
import pytest
from tests.jpegs import encode, photograph

from fieldslab.reader.decoders import idct
from fieldslab.schemas.codecs import jpeg
from fieldslab.schemas.codecs.baseline import read_header
from fieldslab.schemas.jit import zero_record

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
    values, frame = np.frombuffer(data, np.uint8), zero_record(jpeg.FRAME)
    assert read_header(values.ctypes.data, len(values), frame) == jpeg.OK
    return values, frame


def scales() -> np.ndarray:
    """Quantisers of 1, as `transform` wants them."""
    values, frame = read_frame(encode(photograph(8, 8), "grey", quality=100))
    out = np.empty(64, np.float32)
    idct.scale_quantisers(values.ctypes.data, frame, out)
    return out


def samples(tile: np.ndarray, quantisers: np.ndarray) -> np.ndarray:
    """uint8[16 blocks, 8, 8] of a tile, int16[64, 16]."""
    out = np.full(8 * STRIDE, -1, np.int32)
    flat = tile.reshape(-1).copy()
    idct.transform(flat, quantisers, np.empty(idct.TILE, np.float32), out, STRIDE)
    assert not flat.any()
    rows = out.view(np.uint8).reshape(8, 4 * STRIDE)
    assert (rows[:, 128:] == 255).all()
    return rows[:, :128].reshape(8, 16, 8).transpose(1, 0, 2)


@pytest.mark.parametrize("size", [1, 30, 300, 2000])
def test_samples_are_those_of_the_definition(size: int) -> None:
    """Rounded and cut to 0..255, for blocks with few and many coefficients of any size."""
    random = np.random.default_rng(size)
    tile = np.zeros((64, 16), np.int16)
    for block in range(16):
        some = random.permutation(64)[: 4 * block + 1]
        tile[some, block] = random.integers(-size, size + 1, len(some))
    found = samples(tile, scales())
    for block in range(16):
        exact = BASIS.T @ tile[:, block].reshape(8, 8).astype(float) @ BASIS + 128
        assert np.abs(found[block] - exact.clip(0, 255)).max() < 0.501


def test_coefficients_of_any_size_stay_in_range() -> None:
    """Damage may bring the largest numbers."""
    random = np.random.default_rng(1)
    tile = random.choice([-32768, 32767], (64, 16)).astype(np.int16)
    assert set(np.unique(samples(tile, scales() * 65535))) <= {0, 255}


@pytest.mark.parametrize("wide", [False, True])
def test_quantisers_stand_in_natural_order(wide: bool) -> None:
    """Of 8 bits and of 16, for each component."""
    data = encode(photograph(8, 8), "grey", quality=100)
    at = data.index(b"\xff\xdb")
    numbers = np.arange(1, 65) * (900 if wide else 3)
    table = numbers.astype(">u2" if wide else np.uint8).tobytes()
    segment = b"\xff\xdb" + (len(table) + 3).to_bytes(2, "big") + bytes([16 * wide]) + table
    values, frame = read_frame(data[:at] + segment + data[at + 69 :])
    found = np.empty(64, np.float32)
    idct.scale_quantisers(values.ctypes.data, frame, found)
    natural = np.empty(64)
    natural[idct.ZIGZAG] = numbers
    np.testing.assert_allclose(found / scales(), natural, rtol=1e-6)
