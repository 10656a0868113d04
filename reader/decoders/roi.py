"""Baseline JPEG images, decoded from where the crop begins."""

import threading
from collections.abc import Set
from typing import Any

import numpy as np

from fieldslab.reader.decoders.decoder import Crops, EncodedImages, Status, Target
from fieldslab.reader.decoders.framecheck import CROPS, ENCODED
from fieldslab.reader.decoders.idct import find_chroma_shrink, scale_quantisers
from fieldslab.reader.decoders.region import (
    MCUS,
    PLANE_STARTS,
    WORKSPACE,
    IndexedImage,
    Mcus,
    Workspace,
    compute_plane_room,
    compute_plane_stride,
    decode_region,
    make_workspace,
)
from fieldslab.reader.decoders.scratch import KEPT
from fieldslab.reader.pixels.finish import (
    GREY,
    YCC,
    Box,
    Picture,
    count_most_work_bytes,
    new_picture,
    write_view,
)
from fieldslab.reader.pixels.store import OUTPUT, ViewOutput, describe_output
from fieldslab.schemas.codecs.baseline import read_header
from fieldslab.schemas.codecs.huffman import make_tables
from fieldslab.schemas.codecs.jpeg import Frame, new_frame
from fieldslab.schemas.codecs.mcus import count_mcu_columns, count_mcu_rows, count_points_per_row
from fieldslab.schemas.images import CODES
from fieldslab.schemas.jit import kernel, subkernel, types

_SHRINK_FROM = (3.5, 9.0, 28.0)
"""How many times larger than its view a box must be in both directions for blocks to be decoded at
1/2, 1/4 and 1/8 of their size: from there on, the worst of sharp photographs stays above 46 dB of
Pillow's view. Twice, four and eight times would give 35, 36 and 31 dB."""

_OK, _UNSUPPORTED = int(Status.OK), int(Status.UNSUPPORTED)
_TOO_LARGE, _OTHER_SIZE = int(Status.TOO_LARGE), int(Status.OTHER_SIZE)
_DAMAGED = int(Status.DAMAGED)


@subkernel(types.Tuple((types.boolean, MCUS))(types.int32[:, ::1], Frame, OUTPUT))
def _find_mcus(boxes: Any, frame: Any, output: ViewOutput) -> tuple[bool, Mcus]:
    """Find the MCUs under all boxes, and how far they may be shrunk.

    False if a box is not inside the picture. Where chroma is subsampled, that of one pixel around
    a box has a part in it. Of several boxes, the one that shrinks least decides.
    """
    height, width, down, across = frame.height, frame.width, frame.down, frame.across
    nothing: Any = np.int64(0)
    first_row, first_column = height, width
    last_row, last_column = nothing, nothing
    scale = np.inf
    for view in range(boxes.shape[0]):
        top: Any = np.int64(boxes[view, 0])
        left: Any = np.int64(boxes[view, 1])
        bottom, right = top + boxes[view, 2], left + boxes[view, 3]
        if min(top, left) < 0 or min(bottom - top, right - left) < 1:
            return False, Mcus(nothing, nothing, nothing, nothing, nothing)
        if bottom > height or right > width:
            return False, Mcus(nothing, nothing, nothing, nothing, nothing)
        first_row, first_column = min(first_row, top), min(first_column, left)
        last_row, last_column = max(last_row, bottom), max(last_column, right)
        scale = min(scale, boxes[view, 2] / output.height, boxes[view, 3] / output.width)
    shrink = nothing
    for least in _SHRINK_FROM:
        shrink += scale >= least
    return True, Mcus(
        max(first_row - down + 1, 0) // (8 * down),
        max(first_column - across + 1, 0) // (8 * across),
        (min(last_row + down - 1, height) + 8 * down - 1) // (8 * down),
        (min(last_column + across - 1, width) + 8 * across - 1) // (8 * across),
        shrink,
    )


@subkernel(types.int64(ENCODED, types.int64, types.int64, Frame))
def _check_image(images: EncodedImages, image: int, max_pixels: int, frame: Any) -> int:
    """Read the header of an image; OK if it can be decoded by its index points."""
    address: Any = np.int64(images.addresses[image])
    status = read_header(address, images.lengths[image], frame)
    if frame.height * frame.width > max_pixels:
        return _TOO_LARGE
    if status != _OK:
        return status
    height, width = images.sizes[image]
    if frame.height != np.int64(height) or frame.width != np.int64(width):
        return _OTHER_SIZE
    points = count_mcu_rows(frame) * count_points_per_row(count_mcu_columns(frame), images.every)
    return _OK if points == images.counts[image] else _DAMAGED


@subkernel(types.Tuple((PLANE_STARTS, types.int64))(Frame, MCUS))
def _plan_planes(frame: Any, mcus: Mcus) -> tuple[tuple[int, int, int], int]:
    """Decide where the plane of each component begins, and how many int32 they take together."""
    rows, columns = mcus.bottom - mcus.top, mcus.right - mcus.left
    luma = compute_plane_room(rows * frame.down, columns * frame.across, mcus.shrink)
    chroma = compute_plane_room(rows, columns, find_chroma_shrink(frame, mcus.shrink))
    first: Any = np.int64(0)
    return (first, luma, luma + chroma), luma + (frame.components - 1) * chroma


@subkernel(types.void(Frame, MCUS, PLANE_STARTS, types.int64, Picture))
def _describe_picture(
    frame: Any, mcus: Mcus, plane_starts: tuple[int, int, int], planes: int, picture: Any
) -> None:
    """Tell `write_view` what the planes at the address `planes` show."""
    columns = mcus.right - mcus.left
    for component in range(3):
        picture.planes[component] = planes + 4 * plane_starts[component]
    picture.kind = GREY if frame.components == 1 else YCC
    chroma_shrink = find_chroma_shrink(frame, mcus.shrink)
    picture.shrink, picture.chroma_shrink = mcus.shrink, chroma_shrink
    picture.stride = 4 * compute_plane_stride(columns * frame.across, mcus.shrink)
    picture.chroma_stride = 4 * compute_plane_stride(columns, chroma_shrink)
    picture.across, picture.down = frame.across - 1, frame.down - 1
    top, left = mcus.top * 8 * frame.down, mcus.left * 8 * frame.across
    picture.top, picture.left = top, left
    picture.height = min(mcus.bottom * 8 * frame.down, frame.height) - top
    picture.width = min(mcus.right * 8 * frame.across, frame.width) - left


@kernel(
    types.UniTuple(types.int64, 3)(
        ENCODED,
        types.int64[::1],
        CROPS,
        OUTPUT,
        types.int64,
        types.int64,
        WORKSPACE,
        types.uint8[::1],
        types.int32[::1],
    )
)
def _decode_images(
    images: EncodedImages,
    which: Any,
    crops: Crops,
    output: ViewOutput,
    max_pixels: int,
    first: int,
    workspace: Workspace,
    resize_memory: Any,
    statuses: Any,
) -> tuple[int, int, int]:
    """Decode images `which[first:]`.

    Returns how many are done, and, if that is not all, how large `workspace.planes` and
    `resize_memory` must be for the next.
    """
    frame, picture = new_frame(), new_picture()
    views = crops.boxes.shape[1]
    for position in range(first, which.size):
        image = which[position]
        address: Any = np.int64(images.addresses[image])
        points: Any = np.int64(images.points[image])
        boxes = crops.boxes[image]
        statuses[position] = _UNSUPPORTED
        if images.counts[image] == 0 or points == 0:
            continue
        status = _check_image(images, image, max_pixels, frame)
        if status == _OK:
            inside, mcus = _find_mcus(boxes, frame, output)
            status = make_tables(address, frame, workspace.huffman) if inside else _OTHER_SIZE
        statuses[position] = status
        if status != _OK:
            continue
        plane_starts, room = _plan_planes(frame, mcus)
        resize_bytes = count_most_work_bytes(boxes, output)
        if room > workspace.planes.size or resize_bytes > resize_memory.size:
            return position, room, resize_bytes
        scale_quantisers(address, frame, mcus.shrink, workspace.quantisers)
        jpeg = IndexedImage(address, images.lengths[image], points, images.every)
        status = decode_region(jpeg, frame, mcus, plane_starts, workspace)
        statuses[position] = status
        if status != _OK:
            workspace.tiles[:] = 0
            continue
        _describe_picture(frame, mcus, plane_starts, workspace.planes.ctypes.data, picture)
        for view in range(views):
            top, left, height, width = boxes[view]
            box = Box(np.int64(top), np.int64(left), np.int64(height), np.int64(width))
            flip, number = crops.flips[image, view], image * views + view
            write_view(picture, box, flip, output, number, resize_memory.ctypes.data)
    return which.size, 0, 0


class _Memory(threading.local):
    """What one thread has of its own: tables of the image before, and scratch memory."""

    def __init__(self) -> None:
        self.workspace = make_workspace()
        self.resize = np.empty(0, np.uint8)

    def make_room(self, planes: int, resize: int) -> None:
        """Have so many items."""
        if self.workspace.planes.size < planes:
            larger = np.empty(planes + planes // 4, np.int32)
            self.workspace = self.workspace._replace(planes=larger)
        if self.resize.size < resize:
            self.resize = np.empty(resize + resize // 4, np.uint8)

    def trim(self) -> None:
        """Keep no more than KEPT."""
        if self.workspace.planes.nbytes + self.resize.nbytes > KEPT:
            self.workspace = self.workspace._replace(planes=np.empty(0, np.int32))
            self.resize = np.empty(0, np.uint8)


class Roi:
    """Decodes the regions of JPEG images that crops need, by the index that the slab has of them.

    Takes grey images and those of Y, Cb and Cr with 4:4:4, 4:2:2, 4:4:0 or 4:2:0 sampling, with
    or without restart markers; others have no index points. Crops that are made smaller by 3.5 or
    more are decoded at 1/2, 1/4 or 1/8 of their size (see `_SHRINK_FROM`). Damage is found
    where it makes codes that do not exist, blocks that do not end, or other bits and predictors
    than those of the next index point.
    """

    name = "roi"
    codes: Set[int] = frozenset({CODES["jpeg"]})

    def __init__(self) -> None:
        self._memory = _Memory()

    def __reduce__(self) -> tuple[type["Roi"], tuple[()]]:
        return Roi, ()

    def decode(
        self,
        images: EncodedImages,
        which: np.ndarray,
        crops: Crops,
        target: Target,
        max_pixels: int,
    ) -> np.ndarray:
        """See `Decoder.decode`."""
        memory, output = self._memory, describe_output(*target)
        statuses = np.empty(which.size, np.int32)
        done = 0
        while True:
            done, planes, resize = _decode_images(
                images,
                which,
                crops,
                output,
                max_pixels,
                done,
                memory.workspace,
                memory.resize,
                statuses,
            )
            if done == which.size:
                break
            memory.make_room(planes, resize)
        memory.trim()
        return statuses
