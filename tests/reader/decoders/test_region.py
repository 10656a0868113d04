"""Planes of a rectangle of MCUs: what libjpeg decodes there, whichever rectangle it is."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.jpegs import SAMPLINGS, encode, photograph

from fieldslab.reader.decoders.idct import TILE, scale_quantisers
from fieldslab.reader.decoders.region import (
    IndexedImage,
    Mcus,
    compute_plane_room,
    compute_plane_stride,
    decode_region,
    make_workspace,
)
from fieldslab.schemas.codecs import jpeg
from fieldslab.schemas.codecs.baseline import read_header
from fieldslab.schemas.codecs.huffman import make_tables
from fieldslab.schemas.codecs.indexpoints import find_index_points
from fieldslab.schemas.codecs.mcus import count_mcu_columns, count_mcu_rows
from fieldslab.schemas.jit import kernel, make_zero_record, types

HEIGHT, WIDTH = 61, 333
WAYS: list[dict[str, Any]] = [{}, {"restart_marker_blocks": 5}, {"optimize": True, "quality": 98}]


@kernel(types.void(jpeg.Frame, types.int64[::1], types.int64[::1]))
def _measure(frame: Any, blocks: Any, out: Any) -> None:
    """Rows and columns of MCUs; for blocks (rows, columns) the stride and room of a plane."""
    out[0], out[1] = count_mcu_rows(frame), count_mcu_columns(frame)
    out[2], out[3] = compute_plane_stride(blocks[1], 0), compute_plane_room(blocks[0], blocks[1], 0)


def measure(frame: Any, rows: int = 1, columns: int = 1) -> list[int]:
    """The same."""
    out = np.empty(4, np.int64)
    _measure(frame, np.array([rows, columns]), out)
    return out.tolist()


class Region:
    """Decodes rectangles of one image."""

    def __init__(self, data: bytes, every: int) -> None:
        self._data = np.frombuffer(data, np.uint8)
        self._points, counts = find_index_points(self._data, np.array([len(data)]), every)
        assert counts[0] > 0
        address = self._data.ctypes.data
        self._image = IndexedImage(address, len(data), self._points.ctypes.data, every)
        self._frame, self._workspace = make_zero_record(jpeg.FRAME), make_workspace()
        assert read_header(address, len(data), self._frame) == jpeg.OK
        assert make_tables(address, self._frame, self._workspace.huffman) == jpeg.OK
        scale_quantisers(address, self._frame, 0, self._workspace.quantisers)
        self.rows, self.columns = measure(self._frame)[:2]

    def planes(self, top: int, left: int, bottom: int, right: int) -> list[np.ndarray]:
        """uint8 planes of the rectangle, in whole MCUs."""
        places, room = [], 0
        for component in range(self._frame.components):
            down, across = (self._frame.down, self._frame.across) if component == 0 else (1, 1)
            rows, columns = int(down) * (bottom - top), int(across) * (right - left)
            stride, size = measure(self._frame, rows, columns)[2:]
            places.append((room, size, stride, 8 * columns))
            room += size
        memory = np.full(room, -1, np.int32)
        luma, cb, cr = [place[0] for place in places] + [0] * (3 - len(places))
        status = decode_region(
            self._image,
            self._frame,
            Mcus(top, left, bottom, right, 0),
            (luma, cb, cr),
            self._workspace._replace(planes=memory),
        )
        assert status == jpeg.OK
        assert not self._workspace.tiles[:-TILE].any()
        return [
            memory[first : first + size].reshape(-1, stride).view(np.uint8)[:, :columns]
            for first, size, stride, columns in places
        ]


@pytest.mark.parametrize("way", WAYS, ids=["plain", "restarts", "optimised"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_planes_are_those_of_libjpeg(sampling: str, way: dict[str, Any]) -> None:
    """Luma within a level, and chroma where it is not subsampled."""
    data = encode(photograph(HEIGHT, WIDTH), sampling, **way)
    image = Image.open(io.BytesIO(data))
    image.draft("L" if sampling == "grey" else "YCbCr", image.size)
    expected = np.asarray(image).reshape(HEIGHT, WIDTH, -1).astype(int)
    region = Region(data, 8)
    planes = region.planes(0, 0, region.rows, region.columns)
    assert len(planes) == expected.shape[2]
    for number, plane in enumerate(planes if sampling == "4:4:4" else planes[:1]):
        assert np.abs(plane[:HEIGHT, :WIDTH] - expected[..., number]).max() <= 1


@pytest.mark.parametrize("every", [0, 1, 3, 8])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_any_rectangle_is_cut_from_the_whole(sampling: str, every: int) -> None:
    """Whatever lies above and to the left of it, one row or many, at an index point or not."""
    data = encode(photograph(HEIGHT, WIDTH), sampling, restart_marker_blocks=11)
    region = Region(data, every)
    whole = region.planes(0, 0, region.rows, region.columns)
    random = np.random.default_rng(every)
    for _ in range(30):
        top, bottom = np.sort(random.choice(region.rows + 1, 2, replace=False)).tolist()
        left, right = np.sort(random.choice(region.columns + 1, 2, replace=False)).tolist()
        for plane, cut in zip(whole, region.planes(top, left, bottom, right), strict=True):
            high, wide = len(plane) // region.rows, plane.shape[1] // region.columns
            expected = plane[top * high : bottom * high, left * wide : right * wide]
            np.testing.assert_array_equal(cut, expected)
