"""Decoding the MCUs of a rectangle into planes, from the nearest index points on.

Rows of MCUs are decoded in pairs. Coefficients gather in tiles of 16 blocks, which are transformed
when they are full: each stream has two for the first component, as its MCUs may have two rows of
blocks, and one for each of the others. A last tile takes what is decoded on the way from an index
point to the rectangle, and is never looked at.

An index point is a claim: it is checked to lie in the scan before anything is read there, and when
decoding comes to the next one, bit and predictors must be those that it states.
"""

from typing import Any

import numpy as np

from fieldslab.reader.decoders.blocks import decode_blocks
from fieldslab.reader.decoders.idct import LANES, TILE, transform
from fieldslab.schemas.codecs.bits import find_marker, overrun, position, start
from fieldslab.schemas.codecs.huffman import SIZE
from fieldslab.schemas.codecs.jpeg import (
    AC_TABLE,
    ACROSS,
    COMPONENTS,
    DAMAGED,
    DC_TABLE,
    DOWN,
    INTERVAL,
    OK,
    SCAN,
    TRUNCATED,
)
from fieldslab.schemas.codecs.mcus import mcu_blocks, mcu_columns, points_a_row
from fieldslab.schemas.jit import inlined, kernel, load_u8

TILES = 9
"""Tiles that `decode_region` needs, all 0."""
_SECOND, _UNSEEN = 4, 8
_TILE_SAMPLES = 32
"""Samples in a row of a tile, in int32."""
_POINT_BYTES = 10


@inlined
def _load_u16(at: int) -> int:
    """A number of an index point."""
    return load_u8(at) | (load_u8(at + 1) << 8)


@inlined
def _point_bit(point: int) -> int:
    """The bit that an index point states."""
    return _load_u16(point) | (_load_u16(point + 2) << 16)


@inlined
def _point_predictor(point: int, component: int) -> int:
    """A predictor that an index point states."""
    value = _load_u16(point + 4 + 2 * component)
    return value - 65536 if value > 32767 else value


@kernel("Tuple((int64, uint64, int64))(int64, int64, int64, int64, int64[::1])")
def _start_at(address: int, scan: int, end: int, point: int, predictors: Any) -> Any:
    """A stream from an index point on; its `at` is 0 if the point lies outside the scan."""
    nothing: Any = np.int64(0)
    bit = _point_bit(point)
    at = address + (bit >> 3)
    if at < scan or at >= end:
        return nothing, np.uint64(0), nothing
    for component in range(3):
        predictors[component] = _point_predictor(point, component)
    return start(at, end, bit & 7)


@kernel("Tuple((int64, uint64, int64))(int64, int64, int64, int64, int64[::1])")
def _restart(at: int, end: int, count: int, number: int, predictors: Any) -> Any:
    """The stream behind the restart marker that must come next; its `at` is 0 if it does not."""
    nothing: Any = np.int64(0)
    marker = find_marker(at, end, count)
    if marker == 0 or load_u8(marker) != 0xD0 + (number & 7):
        return nothing, np.uint64(0), nothing
    predictors[:] = 0
    return start(marker + 1, end, 0)


@kernel("boolean(int64, int64, int64, int64, int64[::1])")
def _is_at(address: int, point: int, at: int, count: int, predictors: Any) -> bool:
    """Whether a stream has come to where an index point says."""
    same = position(at, count) - 8 * address == _point_bit(point)
    for component in range(3):
        same = same and predictors[component] == _point_predictor(point, component)
    return same


@inlined
def plane_stride(blocks: int) -> int:
    """Int32 from row to row of a plane of so many blocks, with room for whole tiles.

    Sixteen more, so that rows do not lie at multiples of 4 KiB, which share cache lines.
    """
    return (blocks + LANES - 1) // LANES * _TILE_SAMPLES + 16


@inlined
def plane_room(rows: int, blocks: int) -> int:
    """Int32 that a plane takes, of so many rows of blocks."""
    return 8 * rows * plane_stride(blocks)


@kernel("void(int64[::1], int64, int64, int64[::1], int64[::1], int64[::1], int64[::1])")
def _block_plan(
    header: Any, table: int, tile: int, components: Any, places: Any, dc: Any, ac: Any
) -> None:
    """For each block of an MCU: its component, and addresses of coefficients and tables.

    `table` and `tile` are the addresses of the first ones.
    """
    across = header[ACROSS]
    luma = across * header[DOWN]
    for block in range(mcu_blocks(header)):
        component = max(block - luma + 1, 0)
        own, lane = (component + 1, 0) if component > 0 else (block // across, block % across)
        components[block] = component
        places[block] = tile + 2 * (own * TILE + lane)
        dc[block] = table + 2 * SIZE * header[DC_TABLE + component]
        ac[block] = table + 2 * SIZE * header[AC_TABLE + component]


@kernel(
    "void(int64, int64, boolean, int16[::1], float32[::1], float32[::1], int32[::1], int64, int64)"
)
def _flush(
    component: int,
    rows: int,
    both: bool,
    tiles: Any,
    quantisers: Any,
    work: Any,
    planes: Any,
    place: int,
    stride: int,
) -> None:
    """Turn the tiles of a component, `rows` of each stream, into samples from `place` on."""
    own = quantisers[64 * component : 64 * component + 64]
    for i in range(2 * rows if both else rows):
        tile = component + 1 if component > 0 else i % rows
        tile += _SECOND * (i // rows)
        out = planes[place + 8 * i * stride :]
        transform(tiles[tile * TILE : (tile + 1) * TILE], own, work, out, stride)


@kernel(
    "int64(int64, int64, int64[::1], uint16[::1], float32[::1], int64, int64, "
    "int64, int64, int64, int64, int64[::1], int16[::1], float32[::1], int32[::1])"
)
def decode_region(
    address: int,
    length: int,
    header: Any,
    tables: Any,
    quantisers: Any,
    points: int,
    every: int,
    top: int,
    left: int,
    bottom: int,
    right: int,
    firsts: Any,
    tiles: Any,
    work: Any,
    planes: Any,
) -> int:
    """Decode rows `top`..`bottom - 1` and columns `left`..`right - 1` of MCUs.

    Parameters
    ----------
    address, length
        Of the image.
    header, tables, quantisers
        As `read_header`, `make_tables` and `scaled_quantisers` made them of it.
    points, every
        Address of all index points of the image, and how far they lie apart.
    firsts
        For each component, where its plane begins in `planes`; `plane_stride` tells its rows.
    tiles, work
        int16[TILES * TILE], all 0 but for the last tile, and so again if the result is OK;
        float32[TILE].
    planes
        int32: four samples each.

    Returns
    -------
    OK, TRUNCATED or DAMAGED.
    """
    across, down = header[ACROSS], header[DOWN]
    components, blocks = header[COMPONENTS], mcu_blocks(header)
    columns = mcu_columns(header)
    a_row = points_a_row(columns, every)
    spacing = every if every > 0 else columns
    begin = left // spacing * spacing
    interval = header[INTERVAL]
    scan, end = address + header[SCAN], address + length

    of_block, places = np.empty(6, np.int64), np.empty(6, np.int64)
    dc, ac = np.empty(6, np.int64), np.empty(6, np.int64)
    first_tile: Any = np.int64(tiles.ctypes.data)
    first_table: Any = np.int64(tables.ctypes.data)
    _block_plan(header, first_table, first_tile, of_block, places, dc, ac)
    unseen, second = first_tile + 2 * TILE * _UNSEEN, 2 * TILE * _SECOND

    steps, heights = np.ones(3, np.int64), np.ones(3, np.int64)
    steps[0], heights[0] = across, down
    strides = np.empty(3, np.int64)
    for component in range(components):
        strides[component] = plane_stride((right - left) * steps[component])

    dcs_a, dcs_b = np.zeros(3, np.int64), np.zeros(3, np.int64)
    lanes, outs = np.empty(3, np.int64), np.empty(3, np.int64)
    for row in range(top, bottom, 2):
        both = row + 1 < bottom
        point_a = points + _POINT_BYTES * (row * a_row + begin // spacing)
        at_a, bits_a, count_a = _start_at(address, scan, end, point_a, dcs_a)
        at_b, bits_b, count_b = at_a, bits_a, count_a
        point_b = point_a + _POINT_BYTES * a_row
        if both:
            at_b, bits_b, count_b = _start_at(address, scan, end, point_b, dcs_b)
        if at_a == 0 or at_b == 0:
            return DAMAGED
        for component in range(components):
            lanes[component] = 0
            lines = 8 * heights[component] * (row - top)
            outs[component] = firsts[component] + lines * strides[component]
        to_point = spacing
        for column in range(begin, right):
            if interval > 0 and column > begin:
                number = row * columns + column
                if number % interval == 0:
                    number = number // interval - 1
                    at_a, bits_a, count_a = _restart(at_a, end, count_a, number, dcs_a)
                number = row * columns + columns + column
                if both and number % interval == 0:
                    number = number // interval - 1
                    at_b, bits_b, count_b = _restart(at_b, end, count_b, number, dcs_b)
                if at_a == 0 or at_b == 0:
                    return DAMAGED
            if to_point == 0:
                point_a += _POINT_BYTES
                point_b += _POINT_BYTES
                to_point = spacing
                if not _is_at(address, point_a, at_a, count_a, dcs_a):
                    return DAMAGED
                if both and not _is_at(address, point_b, at_b, count_b, dcs_b):
                    return DAMAGED
            to_point -= 1

            wrong = False
            seen = column >= left
            for block in range(blocks):
                component = of_block[block]
                place = places[block] + 2 * lanes[component] if seen else unseen
                (
                    at_a,
                    bits_a,
                    count_a,
                    dcs_a[component],
                    at_b,
                    bits_b,
                    count_b,
                    dcs_b[component],
                    missed,
                ) = decode_blocks(
                    at_a,
                    bits_a,
                    count_a,
                    dcs_a[component],
                    place,
                    at_b,
                    bits_b,
                    count_b,
                    dcs_b[component],
                    place + second if seen else place,
                    both,
                    end,
                    dc[block],
                    ac[block],
                )
                wrong = wrong or missed
            if wrong:
                return DAMAGED
            if overrun(count_a):
                return TRUNCATED if at_a >= end else DAMAGED
            if both and overrun(count_b):
                return TRUNCATED if at_b >= end else DAMAGED
            if not seen:
                continue

            for component in range(components):
                lanes[component] += steps[component]
                if lanes[component] < LANES and column + 1 < right:
                    continue
                _flush(
                    component,
                    heights[component],
                    both,
                    tiles,
                    quantisers,
                    work,
                    planes,
                    outs[component],
                    strides[component],
                )
                outs[component] += _TILE_SAMPLES
                lanes[component] = 0
    return OK
