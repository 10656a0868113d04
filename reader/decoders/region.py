"""Decoding the MCUs of a rectangle into planes, from the nearest index points on.

Rows of MCUs are decoded in pairs. Coefficients gather in tiles of 16 blocks, which are transformed
when they are full: each stream has two for the first component, as its MCUs may have two rows of
blocks, and one for each of the others. A last tile takes what is decoded on the way from an index
point to the rectangle, and is never looked at.

An index point is a claim: it is checked to lie in the scan before anything is read there, and when
decoding comes to the next one, bit and predictors must be those that it states.
"""

from typing import Any, NamedTuple

import numpy as np

from fieldslab.reader.decoders.coefficients import PLACES, BlockTables, decode_blocks
from fieldslab.reader.decoders.idct import LANES, TILE, find_chroma_shrink, transform_tile
from fieldslab.schemas.codecs.bits import (
    STREAM,
    Stream,
    compute_position,
    find_marker,
    is_overrun,
    start_stream,
)
from fieldslab.schemas.codecs.huffman import (
    HUFFMAN_TABLES,
    SIZE,
    HuffmanTables,
    make_empty_tables,
)
from fieldslab.schemas.codecs.jpeg import DAMAGED, OK, TRUNCATED, Frame
from fieldslab.schemas.codecs.mcus import (
    count_blocks_per_mcu,
    count_mcu_columns,
    count_points_per_row,
)
from fieldslab.schemas.jit import inlined, load_u8, make_tuple_type, subkernel, types

TILES = 9
"""Tiles of a workspace."""
_SECOND, _UNSEEN = 4, 8
_TILE_SAMPLES = 32
"""Samples in a row of a tile, in int32, if it is not shrunk."""
_POINT_BYTES = 10


class IndexedImage(NamedTuple):
    """A JPEG in memory: address and bytes, address of all its index points, MCUs between them."""

    address: Any
    length: Any
    points: Any
    every: Any


class Mcus(NamedTuple):
    """A rectangle of MCUs: rows `top`..`bottom - 1` and columns `left`..`right - 1`.

    A sample of luma stands for 2**shrink x 2**shrink of the picture; see `find_chroma_shrink`.
    """

    top: Any
    left: Any
    bottom: Any
    right: Any
    shrink: Any


class Workspace(NamedTuple):
    """Memory that decoding a region needs, of one thread.

    Attributes
    ----------
    huffman
        The tables of the image.
    quantisers
        float32[192]: its quantisers, by `scale_quantisers`.
    tiles
        int16[TILES * TILE], all 0 but for the last tile, and so again after OK.
    columns
        float32[TILE].
    planes
        int32[...], for the planes of the region: four samples each.
    """

    huffman: HuffmanTables
    quantisers: np.ndarray
    tiles: np.ndarray
    columns: np.ndarray
    planes: np.ndarray


INDEXED_IMAGE = make_tuple_type(IndexedImage, types.int64, types.int64, types.int64, types.int64)
MCUS = make_tuple_type(Mcus, *[types.int64] * 5)
PLANE_STARTS = types.UniTuple(types.int64, 3)
WORKSPACE = make_tuple_type(
    Workspace,
    HUFFMAN_TABLES,
    types.float32[::1],
    types.int16[::1],
    types.float32[::1],
    types.int32[::1],
)


def make_workspace() -> Workspace:
    """Make a workspace without room for planes."""
    return Workspace(
        make_empty_tables(),
        np.zeros(192, np.float32),
        np.zeros(TILES * TILE, np.int16),
        np.zeros(TILE, np.float32),
        np.empty(0, np.int32),
    )


@inlined
def _load_u16(address: int) -> int:
    """Load a number of an index point."""
    return load_u8(address) | (load_u8(address + 1) << 8)


@inlined
def _load_point_bit(point: int) -> int:
    """Load the bit position from an index point."""
    return _load_u16(point) | (_load_u16(point + 2) << 16)


@inlined
def _load_point_predictor(point: int, component: int) -> int:
    """Load a predictor from an index point."""
    value = _load_u16(point + 4 + 2 * component)
    return value - 65536 if value > 32767 else value


@inlined
def _make_no_stream() -> Any:
    return Stream(np.int64(0), np.uint64(0), np.int64(0))


@subkernel(STREAM(INDEXED_IMAGE, types.int64, types.int64, types.int64[::1]))
def _start_at_point(image: Any, scan: int, point: int, predictors: Any) -> Any:
    """Start a stream at an index point; its address is 0 if the point lies outside the scan."""
    bit = _load_point_bit(point)
    address = image.address + (bit >> 3)
    end = image.address + image.length
    if address < scan or address >= end:
        return _make_no_stream()
    for component in range(3):
        predictors[component] = _load_point_predictor(point, component)
    return start_stream(address, end, bit & 7)


@subkernel(STREAM(STREAM, types.int64, types.int64, types.int64[::1]))
def _start_behind_marker(stream: Any, end: int, number: int, predictors: Any) -> Any:
    """Start the stream after the next restart marker; its address is 0 if there is none."""
    marker = find_marker(stream, end)
    if marker == 0 or load_u8(marker) != 0xD0 + (number & 7):
        return _make_no_stream()
    predictors[:] = 0
    return start_stream(marker + 1, end, 0)


@subkernel(types.boolean(types.int64, types.int64, STREAM, types.int64[::1]))
def _is_at_point(address: int, point: int, stream: Any, predictors: Any) -> bool:
    """Return True if a stream has reached the position of an index point."""
    same = compute_position(stream) - 8 * address == _load_point_bit(point)
    for component in range(3):
        same = same and predictors[component] == _load_point_predictor(point, component)
    return same


@inlined
def compute_plane_stride(blocks: int, shrink: int) -> int:
    """Count the int32 from row to row of a plane of so many blocks, with room for whole tiles.

    Sixteen more, so that rows do not lie at multiples of 4 KiB, which share cache lines.
    """
    return (blocks + LANES - 1) // LANES * (_TILE_SAMPLES >> shrink) + 16


@inlined
def compute_plane_room(rows: int, blocks: int, shrink: int) -> int:
    """Count the int32 that a plane of so many rows of blocks takes."""
    return (8 >> shrink) * rows * compute_plane_stride(blocks, shrink)


@subkernel(
    types.void(
        Frame,
        types.int64,
        types.int64,
        types.int64[::1],
        types.int64[::1],
        types.int64[::1],
        types.int64[::1],
    )
)
def _plan_blocks(
    frame: Any,
    table: int,
    tile: int,
    components: Any,
    coefficients: Any,
    dc_tables: Any,
    ac_tables: Any,
) -> None:
    """For each block of an MCU: its component, and addresses of coefficients and tables.

    `table` and `tile` are the addresses of the first ones.
    """
    luma_blocks = frame.across * frame.down
    for block in range(count_blocks_per_mcu(frame)):
        component = max(block - luma_blocks + 1, 0)
        tile_number, lane = component + 1, 0
        if component == 0:
            tile_number, lane = block // frame.across, block % frame.across
        components[block] = component
        coefficients[block] = tile + 2 * (tile_number * TILE + lane)
        dc_tables[block] = table + 2 * SIZE * frame.dc_tables[component]
        ac_tables[block] = table + 2 * SIZE * frame.ac_tables[component]


@subkernel(
    types.void(
        types.int64, types.int64, types.boolean, WORKSPACE, types.int64, types.int64, types.int64
    )
)
def _transform_tiles(
    component: int,
    rows: int,
    both: bool,
    workspace: Workspace,
    first: int,
    stride: int,
    shrink: int,
) -> None:
    """Turn the tiles of a component, `rows` of each stream, into samples from `first` on."""
    quantisers = workspace.quantisers[64 * component : 64 * component + 64]
    for i in range(2 * rows if both else rows):
        tile = component + 1 if component > 0 else i % rows
        tile += _SECOND * (i // rows)
        coefficients = workspace.tiles[tile * TILE : (tile + 1) * TILE]
        samples = workspace.planes[first + (8 >> shrink) * i * stride :]
        transform_tile(coefficients, quantisers, workspace.columns, samples, stride, shrink)


@subkernel(types.int64(INDEXED_IMAGE, Frame, MCUS, PLANE_STARTS, WORKSPACE))
def decode_region(
    image: IndexedImage,
    frame: Any,
    mcus: Mcus,
    plane_starts: tuple[int, int, int],
    workspace: Workspace,
) -> int:
    """Decode a rectangle of MCUs.

    Parameters
    ----------
    image, frame
        The image, and its frame as `read_header` filled it in.
    mcus
        Which MCUs.
    plane_starts
        For each component, where its plane begins in `workspace.planes`; `compute_plane_stride`
        tells its rows.
    workspace
        With tables and quantisers of the image.

    Returns
    -------
    OK, TRUNCATED or DAMAGED.
    """
    components, blocks = frame.components, count_blocks_per_mcu(frame)
    columns = count_mcu_columns(frame)
    row_points = count_points_per_row(columns, image.every)
    spacing = image.every if image.every > 0 else columns
    first_column = mcus.left // spacing * spacing
    interval = frame.interval
    scan, end = image.address + frame.scan, image.address + image.length

    component_of, coefficients = np.empty(6, np.int64), np.empty(6, np.int64)
    dc_tables, ac_tables = np.empty(6, np.int64), np.empty(6, np.int64)
    first_tile: Any = np.int64(workspace.tiles.ctypes.data)
    first_table: Any = np.int64(workspace.huffman.entries.ctypes.data)
    _plan_blocks(frame, first_table, first_tile, component_of, coefficients, dc_tables, ac_tables)
    unseen, second = first_tile + 2 * TILE * _UNSEEN, 2 * TILE * _SECOND

    widths, heights = np.ones(3, np.int64), np.ones(3, np.int64)
    widths[0], heights[0] = frame.across, frame.down
    strides = np.empty(3, np.int64)
    shrinks = np.empty(3, np.int64)
    for component in range(components):
        shrink = find_chroma_shrink(frame, mcus.shrink) if component > 0 else mcus.shrink
        strides[component] = compute_plane_stride(
            (mcus.right - mcus.left) * widths[component], shrink
        )
        shrinks[component] = shrink

    predictors_a, predictors_b = np.zeros(3, np.int64), np.zeros(3, np.int64)
    lanes, samples = np.empty(3, np.int64), np.empty(3, np.int64)
    for row in range(mcus.top, mcus.bottom, 2):
        both = row + 1 < mcus.bottom
        point_a = image.points + _POINT_BYTES * (row * row_points + first_column // spacing)
        point_b = point_a + _POINT_BYTES * row_points
        a = _start_at_point(image, scan, point_a, predictors_a)
        b = a
        if both:
            b = _start_at_point(image, scan, point_b, predictors_b)
        if a.address == 0 or b.address == 0:
            return DAMAGED
        for component in range(components):
            lanes[component] = 0
            lines = (8 >> shrinks[component]) * heights[component] * (row - mcus.top)
            samples[component] = plane_starts[component] + lines * strides[component]
        to_point = spacing
        for column in range(first_column, mcus.right):
            if interval > 0 and column > first_column:
                number = row * columns + column
                if number % interval == 0:
                    a = _start_behind_marker(a, end, number // interval - 1, predictors_a)
                number += columns
                if both and number % interval == 0:
                    b = _start_behind_marker(b, end, number // interval - 1, predictors_b)
                if a.address == 0 or b.address == 0:
                    return DAMAGED
            if to_point == 0:
                point_a += _POINT_BYTES
                point_b += _POINT_BYTES
                to_point = spacing
                if not _is_at_point(image.address, point_a, a, predictors_a):
                    return DAMAGED
                if both and not _is_at_point(image.address, point_b, b, predictors_b):
                    return DAMAGED
            to_point -= 1

            wrong = False
            seen = column >= mcus.left
            for block in range(blocks):
                component = component_of[block]
                block_a = coefficients[block] + 2 * lanes[component] if seen else unseen
                a, b, predictors_a[component], predictors_b[component], missed = decode_blocks(
                    a,
                    b,
                    both,
                    end,
                    BlockTables(dc_tables[block], ac_tables[block], PLACES * shrinks[component]),
                    (predictors_a[component], predictors_b[component]),
                    (block_a, block_a + second if seen else block_a),
                )
                wrong = wrong or missed
            if wrong:
                return DAMAGED
            if is_overrun(a):
                return TRUNCATED if a.address >= end else DAMAGED
            if both and is_overrun(b):
                return TRUNCATED if b.address >= end else DAMAGED
            if not seen:
                continue

            for component in range(components):
                lanes[component] += widths[component]
                if lanes[component] < LANES and column + 1 < mcus.right:
                    continue
                _transform_tiles(
                    component,
                    heights[component],
                    both,
                    workspace,
                    samples[component],
                    strides[component],
                    shrinks[component],
                )
                samples[component] += _TILE_SAMPLES >> shrinks[component]
                lanes[component] = 0
    return OK
