"""Baseline JPEG images, decoded from where the crop begins."""

import threading
from collections.abc import Set
from typing import Any

import numpy as np

from fieldslab.reader.decoders.decoder import Crops, Encoded, Status, Target
from fieldslab.reader.decoders.idct import TILE, scaled_quantisers
from fieldslab.reader.decoders.region import TILES, decode_region, plane_room, plane_stride
from fieldslab.reader.decoders.scratch import KEPT
from fieldslab.reader.pixels.finish import (
    ACROSS,
    CB,
    CHROMA_STRIDE,
    DOWN,
    GREY,
    HEIGHT,
    KIND,
    LEFT,
    PICTURE,
    PLANE,
    STRIDE,
    TOP,
    WIDTH,
    YCC,
    finish,
    work_bytes,
)
from fieldslab.reader.pixels.store import form_of, item_bytes
from fieldslab.schemas.codecs import jpeg
from fieldslab.schemas.codecs.huffman import make_tables, new_tables
from fieldslab.schemas.codecs.mcus import mcu_columns, mcu_rows, points_a_row
from fieldslab.schemas.images import CODES
from fieldslab.schemas.jit import kernel

_OK, _UNSUPPORTED = int(Status.OK), int(Status.UNSUPPORTED)
_TOO_LARGE, _OTHER_SIZE = int(Status.TOO_LARGE), int(Status.OTHER_SIZE)
_DAMAGED = int(Status.DAMAGED)


@kernel("boolean(int32[:, ::1], int64, int64, int64, int64, int64[::1])")
def _cover(boxes: Any, height: int, width: int, down: int, across: int, mcus: Any) -> bool:
    """Find the MCUs under all boxes: top, left, bottom and right, as rows and columns of MCUs.

    Where chroma is subsampled, that of one pixel around a box has a part in it. False if a box is
    not inside the picture.
    """
    first_row: Any = height
    first_column: Any = width
    last_row: Any = 0
    last_column: Any = 0
    for view in range(boxes.shape[0]):
        top: Any = np.int64(boxes[view, 0])
        left: Any = np.int64(boxes[view, 1])
        bottom, right = top + boxes[view, 2], left + boxes[view, 3]
        if min(top, left) < 0 or min(bottom - top, right - left) < 1:
            return False
        if bottom > height or right > width:
            return False
        first_row, first_column = min(first_row, top), min(first_column, left)
        last_row, last_column = max(last_row, bottom), max(last_column, right)
    mcus[0] = max(first_row - down + 1, 0) // (8 * down)
    mcus[1] = max(first_column - across + 1, 0) // (8 * across)
    mcus[2] = (min(last_row + down - 1, height) + 8 * down - 1) // (8 * down)
    mcus[3] = (min(last_column + across - 1, width) + 8 * across - 1) // (8 * across)
    return True


@kernel("int64(int64, int64, int64, uint32[:, ::1], int64, int64, int64, int64[::1])")
def _check(
    address: int,
    length: int,
    image: int,
    sizes: Any,
    count: int,
    every: int,
    most: int,
    header: Any,
) -> int:
    """Read the header of an image; OK if it can be decoded by its index points."""
    status = jpeg.read_header(address, length, header)
    height, width = header[jpeg.HEIGHT], header[jpeg.WIDTH]
    if height * width > most:
        return _TOO_LARGE
    if status != _OK:
        return status
    if height != np.int64(sizes[image, 0]) or width != np.int64(sizes[image, 1]):
        return _OTHER_SIZE
    points = mcu_rows(header) * points_a_row(mcu_columns(header), every)
    return _OK if points == count else _DAMAGED


@kernel("int64(int64[::1], int64[::1], int64, int64[::1], int64[::1])")
def _lay_out(header: Any, mcus: Any, planes: int, firsts: Any, picture: Any) -> int:
    """Decide where planes go in the memory at `planes`; returns the int32 that they take."""
    across, down = header[jpeg.ACROSS], header[jpeg.DOWN]
    components = header[jpeg.COMPONENTS]
    rows, columns = mcus[2] - mcus[0], mcus[3] - mcus[1]
    luma = plane_room(rows * down, columns * across)
    chroma = plane_room(rows, columns)
    for component in range(components):
        firsts[component] = 0 if component == 0 else luma + (component - 1) * chroma
        picture[PLANE if component == 0 else CB + component - 1] = planes + 4 * firsts[component]
    picture[KIND] = GREY if components == 1 else YCC
    picture[STRIDE] = 4 * plane_stride(columns * across)
    picture[CHROMA_STRIDE] = 4 * plane_stride(columns)
    picture[ACROSS], picture[DOWN] = across - 1, down - 1
    top, left = mcus[0] * 8 * down, mcus[1] * 8 * across
    picture[TOP], picture[LEFT] = top, left
    picture[HEIGHT] = min(mcus[2] * 8 * down, header[jpeg.HEIGHT]) - top
    picture[WIDTH] = min(mcus[3] * 8 * across, header[jpeg.WIDTH]) - left
    return luma + (components - 1) * chroma


@kernel(
    "Tuple((int64, int64, int64))(int64[::1], int64[::1], uint32[:, ::1], int64[::1], int64[::1], "
    "int64, int64, int64[::1], int32[:, :, ::1], boolean[:, ::1], int64, int64, int64, int64, "
    "int64, float32[::1], float32[::1], int64, uint16[::1], uint8[:, ::1], float32[::1], "
    "int16[::1], int32[::1], uint8[::1], int32[::1])"
)
def _decode(
    addresses: Any,
    lengths: Any,
    sizes: Any,
    points: Any,
    counts: Any,
    every: int,
    most_pixels: int,
    which: Any,
    boxes: Any,
    flips: Any,
    out: int,
    out_height: int,
    out_width: int,
    form: int,
    channels_first: int,
    scale: Any,
    bias: Any,
    first: int,
    tables: Any,
    keys: Any,
    numbers: Any,
    tiles: Any,
    planes: Any,
    work: Any,
    statuses: Any,
) -> tuple[int, int, int]:
    """Decode images `which[first:]`.

    Returns how many are done, and, if that is not all, how large `planes` and `work` must be for
    the next.
    """
    header = np.empty(jpeg.FIELDS, np.int64)
    mcus, firsts = np.empty(4, np.int64), np.empty(3, np.int64)
    picture = np.zeros(PICTURE, np.int64)
    quantisers, columns = numbers[:192], numbers[192:]
    views = boxes.shape[1]
    view_bytes = 3 * out_height * out_width * item_bytes(form)
    for position in range(first, which.size):
        image = which[position]
        address, length = addresses[image], lengths[image]
        statuses[position] = _UNSUPPORTED
        if counts[image] == 0 or points[image] == 0:
            continue
        status = _check(address, length, image, sizes, counts[image], every, most_pixels, header)
        if status == _OK and not _cover(
            boxes[image],
            header[jpeg.HEIGHT],
            header[jpeg.WIDTH],
            header[jpeg.DOWN],
            header[jpeg.ACROSS],
            mcus,
        ):
            status = _OTHER_SIZE
        if status == _OK:
            status = make_tables(address, header, tables, keys)
        statuses[position] = status
        if status != _OK:
            continue
        room = _lay_out(header, mcus, planes.ctypes.data, firsts, picture)
        scratch = 0
        for view in range(views):
            box = boxes[image, view]
            scratch = max(scratch, work_bytes(box[2], box[3], out_height, out_width))
        if room > planes.size or scratch > work.size:
            return position, room, scratch
        scaled_quantisers(address, header, header[jpeg.COMPONENTS], quantisers)
        status = decode_region(
            address,
            length,
            header,
            tables,
            quantisers,
            points[image],
            every,
            mcus[0],
            mcus[1],
            mcus[2],
            mcus[3],
            firsts,
            tiles,
            columns,
            planes,
        )
        statuses[position] = status
        if status != _OK:
            tiles[:] = 0
            continue
        for view in range(views):
            box = boxes[image, view]
            finish(
                picture,
                box[0],
                box[1],
                box[2],
                box[3],
                flips[image, view],
                out + (image * views + view) * view_bytes,
                out_height,
                out_width,
                form,
                channels_first,
                scale,
                bias,
                work.ctypes.data,
            )
    return which.size, 0, 0


class _Own(threading.local):
    """What one thread has of its own: tables of the image before, and scratch memory."""

    def __init__(self) -> None:
        self.tables, self.keys = new_tables()
        self.numbers = np.zeros(192 + TILE, np.float32)
        self.tiles = np.zeros(TILES * TILE, np.int16)
        self.planes = np.empty(0, np.int32)
        self.work = np.empty(0, np.uint8)

    def supply(self, planes: int, work: int) -> None:
        """Have so many items."""
        if self.planes.size < planes:
            self.planes = np.empty(planes + planes // 4, np.int32)
        if self.work.size < work:
            self.work = np.empty(work + work // 4, np.uint8)

    def give_back(self) -> None:
        """Keep no more than KEPT."""
        if self.planes.nbytes + self.work.nbytes > KEPT:
            self.planes = np.empty(0, np.int32)
            self.work = np.empty(0, np.uint8)


class Roi:
    """Decodes the regions of JPEG images that crops need, by the index that the slab has of them.

    Takes grey images and those of Y, Cb and Cr with 4:4:4, 4:2:2, 4:4:0 or 4:2:0 sampling, with
    or without restart markers; others have no index points. Damage is found where it makes codes
    that do not exist, blocks that do not end, or other bits and predictors than those of the next
    index point.
    """

    name = "roi"
    codes: Set[int] = frozenset({CODES["jpeg"]})

    def __init__(self) -> None:
        self._own = _Own()

    def __reduce__(self) -> tuple[type["Roi"], tuple[()]]:
        return Roi, ()

    def decode(
        self, images: Encoded, which: np.ndarray, crops: Crops, target: Target, max_pixels: int
    ) -> np.ndarray:
        """See `Decoder.decode`."""
        own, out = self._own, target.out
        high, wide = out.shape[3:] if target.channels_first else out.shape[2:4]
        statuses = np.empty(which.size, np.int32)
        done = 0
        while True:
            done, planes, work = _decode(
                images.addresses.view(np.int64),
                images.lengths,
                images.sizes,
                images.points.view(np.int64),
                images.counts,
                images.every,
                max_pixels,
                which,
                crops.boxes,
                crops.flips,
                out.ctypes.data,
                high,
                wide,
                form_of(out),
                target.channels_first,
                target.scale,
                target.bias,
                done,
                own.tables,
                own.keys,
                own.numbers,
                own.tiles,
                own.planes,
                own.work,
                statuses,
            )
            if done == which.size:
                break
            own.supply(planes, work)
        own.give_back()
        return statuses
