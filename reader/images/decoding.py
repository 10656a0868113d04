"""The way of a batch of images: found in the map, boxes drawn, decoded, failures dealt with."""

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fieldslab.reader.buffers import Allocator, Pool
from fieldslab.reader.copying import RowLocations
from fieldslab.reader.decoders import lookup
from fieldslab.reader.decoders.decoder import MEANINGS, Crops, EncodedImages, Status, Target
from fieldslab.reader.image_values import Pictures, Views
from fieldslab.reader.images import orientation
from fieldslab.reader.images.boxes import draw_boxes, draw_flips
from fieldslab.reader.images.encoded import find_images
from fieldslab.reader.images.staging import StagedSize, StagedViews, stage_pixels
from fieldslab.reader.images.steps import ImageSteps
from fieldslab.reader.stored.field import StoredField
from fieldslab.schemas.errors import DamagedImage, MissingLibrary
from fieldslab.schemas.images import CODES

_DTYPES = {"bfloat16": "uint16"}
_OK, _UNSUPPORTED = int(Status.OK), int(Status.UNSUPPORTED)
_NULL, _PENDING = -1, -2
"""Stand in place of a status where a row is null, and where nobody was asked yet."""


class DecodedImages(NamedTuple):
    """The decoded images of one field, for a batch of rows.

    Attributes
    ----------
    values
        ndarray, `Views` or `Pictures`: see `ImageSteps`. `StagedViews` if they are staged.
    boxes
        Crop boxes (top, left, height, width), if asked for: int32 (rows, 4) or (rows, views, 4).
    sizes
        Height and width of the stored pictures: uint32[rows, 2].
    valid
        Of a field that may have nulls: bool[rows].
    statuses
        int32[rows] of `Status`; -1 where a row is null.
    """

    values: Any
    boxes: np.ndarray | None
    sizes: np.ndarray
    valid: np.ndarray | None
    statuses: np.ndarray

    def select_rows(self, keep: np.ndarray) -> "DecodedImages":
        """Select the rows where `keep` (bool[rows]) is true."""
        values: Any
        if isinstance(self.values, Pictures):
            chosen = np.flatnonzero(keep).tolist()
            parts = [self.values[row].reshape(-1) for row in chosen]
            pixels = np.concatenate([*parts, np.empty(0, np.uint8)])
            values = Pictures(pixels, self.values.sizes[keep])
        elif isinstance(self.values, Views):
            values = Views(_select_rows(array, keep) for array in self.values)
        elif isinstance(self.values, StagedViews):
            values = self.values.select_rows(keep)
        else:
            values = _select_rows(self.values, keep)
        boxes = None if self.boxes is None else self.boxes[keep]
        valid = None if self.valid is None else self.valid[keep]
        return DecodedImages(values, boxes, self.sizes[keep], valid, self.statuses[keep])


def _select_rows(values: Any, keep: np.ndarray) -> Any:
    if isinstance(values, np.ndarray):
        return values[keep]
    from fieldslab.reader.pixels import device

    return device.select_rows(values, keep)


def decode_images(
    stored: StoredField,
    images: ImageSteps,
    locations: RowLocations,
    rows: np.ndarray,
    drawn: np.ndarray,
    epoch: int,
    memory: Allocator,
    pool: Pool,
    damaged: np.ndarray | None = None,
) -> DecodedImages:
    """Decode the images of some rows.

    Parameters
    ----------
    at
        Where the rows lie.
    rows
        Their numbers in the slab: int64[n].
    drawn
        What boxes and flips are drawn by, with seed and epoch: uint64[n]; see `make_draw_numbers`.
    memory, pool
        Where the values go, and what is needed on the way.
    damaged
        Which are treated as null: see `find_images`.

    Raises
    ------
    DamagedImage
        An image cannot be decoded, and the policy is to raise.
    MissingLibrary
        None of the decoders that are here takes an image, and the one that takes any is not here:
        that is no failure of the image, so it is told whatever the policy.
    DamagedArray
        The slab's files are not what pack wrote.
    """
    stored_images = find_images(stored, locations, pool, damaged)
    encoded, name = stored_images.images, stored.field.name
    _measure_unknown_sizes(encoded, stored_images.valid)
    orientations = np.ones(len(rows), np.uint8)
    if images.apply_exif:
        orientations = orientation.read_orientations(encoded)
    shown_sizes = orientation.orient_sizes(encoded.sizes, orientations)
    statuses = np.full(len(rows), _PENDING, np.int32)
    unknown = shown_sizes[:, 0] == 0
    if unknown.any():  # what nobody can measure is no image, unless it is Pillow that is not here
        absent = lookup.suggest_install(CODES[None])
        statuses[unknown] = Status.UNSUPPORTED if absent else Status.NOT_AN_IMAGE
    if stored_images.valid is not None:
        statuses[~stored_images.valid] = _NULL
    work = _DecodingJob(encoded, orientations, statuses, images, name, memory)
    if not images.crops:
        values, boxes = work.decode_whole(shown_sizes, drawn, epoch), None
    else:
        boxes, flips = _draw_boxes_and_flips(images, shown_sizes, drawn, epoch)
        values = work.decode_views(boxes, flips)
        if not images.crop_boxes:
            boxes = None
        elif not images.multiple:
            boxes = boxes[:, 0]
    if images.decoder == "auto" and (statuses == _UNSUPPORTED).any() and not lookup.has_pillow():
        first = int(np.argmax(statuses == _UNSUPPORTED))
        raise MissingLibrary(
            MEANINGS[Status.UNSUPPORTED] + " that is installed",
            field=name,
            row=int(rows[first]),
            hint=lookup.suggest_install(int(encoded.codes[first])),
        )
    if images.on_error == "raise" and (statuses > _OK).any():
        first = int(np.argmax(statuses > _OK))
        file = stored.values.get_path(int(locations.shards[first]))
        raise _make_damaged_image_error(
            file, name, int(rows[first]), statuses[first], images.decoder
        )
    return DecodedImages(values, boxes, encoded.sizes, stored_images.valid, statuses)


@cache
def _mark_supported_codes(codes: frozenset[int]) -> np.ndarray:
    """Mark the image codes that a decoder takes: bool[256]."""
    is_supported = np.zeros(256, np.bool_)
    is_supported[list(codes)] = True
    return is_supported


class _DecodingJob:
    """What decoding one batch needs; fills in `statuses`, which tell the rows with images."""

    def __init__(
        self,
        encoded: EncodedImages,
        orientations: np.ndarray,
        statuses: np.ndarray,
        images: ImageSteps,
        name: str,
        memory: Allocator,
    ) -> None:
        self.encoded = encoded
        self.orientations = orientations
        self.statuses = statuses
        self.images = images
        self.name = name
        self.memory = memory
        self.scale, self.bias = np.ones(3, np.float32), np.zeros(3, np.float32)
        if images.normalize is not None:
            self.scale[:] = 1 / images.normalize.std
            self.bias[:] = -images.normalize.mean / images.normalize.std

    def decode_views(self, boxes: np.ndarray, flips: np.ndarray) -> Any:
        """Decode all views of all images: boxes int32[n, views, 4], flips bool[n, views]."""
        crops, arrays = self.images.crops, list[Any]()
        staged = self._stage_views(boxes, flips) if self.images.staged else None
        sizes = list(dict.fromkeys(crop.size for crop in crops))
        dtype = np.dtype(_DTYPES.get(self.images.dtype, self.images.dtype))
        for number, (height, width) in enumerate(sizes):
            chosen = [view for view, crop in enumerate(crops) if crop.size == (height, width)]
            shape: tuple[int, ...] = (height, width, 3)
            if self.images.channels_first:
                shape = (3, height, width)
            shape = (len(boxes), len(chosen), *shape)
            part = np.ascontiguousarray(boxes[:, chosen]), flips[:, chosen]
            if staged is not None:
                records, on_host = staged[1][:, chosen], staged[2]
                host = np.empty(shape if len(on_host) else (0, *shape[1:]), dtype)
                self._decode_on_host(on_host, *part, host)
                done = on_host[self.statuses[on_host] == _OK]
                arrays.append(StagedSize(records, shape[2:], done, host[done]))
                continue
            if self.images.device is not None:
                arrays.append(self._decode_on_device(*part, shape, dtype))
                continue
            out = self.memory.allocate_array((self.name, "decoded", number), shape, dtype)
            self._decode_on_host(self._find_pending(), *part, out)
            arrays.append(out)
        if staged is not None:
            return StagedViews(staged[0], arrays, self.images, self.scale, self.bias)
        for out in arrays:
            self._fill_missing(out)
        if self.images.multiple:
            return arrays[0] if len(arrays) == 1 else Views(arrays)
        return arrays[0][:, 0]

    def _stage_views(
        self, boxes: np.ndarray, flips: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Copy stored pixels; return them, their records, and the rows without any: int64[k]."""
        pending = self._find_pending()
        stored = _mark_supported_codes(frozenset(lookup.load_decoder("planes").codes))
        stored = stored[self.encoded.codes] & (self.orientations == 1)
        which, crops = pending[stored[pending]], Crops(boxes, np.ascontiguousarray(flips))
        pixels, records, self.statuses[which] = stage_pixels(
            self.encoded, which, crops, self.images.max_pixels, self.memory, self.name
        )
        return pixels, records, pending[~stored[pending]]

    def decode_whole(self, sizes: np.ndarray, drawn: np.ndarray, epoch: int) -> Pictures:
        """Decode every picture whole; `sizes` is int64[n, 2]."""
        sizes = np.where(self._mark_too_large(sizes)[:, None], 0, sizes)
        count = len(sizes)
        offsets = np.concatenate([[0], np.cumsum(3 * sizes.prod(axis=1))])
        size = (int(offsets[-1]),)
        pixels = self.memory.allocate_array((self.name, "decoded"), size, np.dtype(np.uint8))
        flips = np.zeros(count, np.bool_)
        if self.images.flip is not None:
            flips = draw_flips(self.images.flip.p, drawn, self.images.seed, epoch, 0)
        for i in np.flatnonzero(self.statuses == _PENDING).tolist():
            height, width = sizes[i].tolist()
            out = pixels[offsets[i] : offsets[i + 1]].reshape(1, 1, height, width, 3)
            box = np.array([[[0, 0, height, width]]], np.int32)
            single = self._select_image(i)
            single._decode_on_host(single._find_pending(), box, flips[i : i + 1, None], out)
            single._fill_missing(out)
        for i in np.flatnonzero(self.statuses == _NULL).tolist():
            pixels[offsets[i] : offsets[i + 1]] = self.images.fill
        return Pictures(pixels, sizes)

    def _mark_too_large(self, sizes: np.ndarray) -> np.ndarray:
        """Note and return which pictures have too many pixels to be allocated: bool[n]."""
        # Divided, for the product of two sizes that lie may be more than int64 holds.
        large = sizes[:, 0] > self.images.max_pixels // np.maximum(sizes[:, 1], 1)
        self.statuses[large & (self.statuses == _PENDING)] = Status.TOO_LARGE
        return large

    def _select_image(self, index: int) -> "_DecodingJob":
        """Return the same job for a single image, with a view of its status."""
        single = slice(index, index + 1)
        arrays = (array[single] for array in self.encoded[:-1])
        encoded = EncodedImages(*arrays, every=self.encoded.every)  # type: ignore[misc, arg-type]
        orientations, statuses = self.orientations[single], self.statuses[single]
        return _DecodingJob(encoded, orientations, statuses, self.images, self.name, self.memory)

    def _find_pending(self) -> np.ndarray:
        """Who is to be decoded, or was for views of another size: int64[k]."""
        return np.flatnonzero((self.statuses == _PENDING) | (self.statuses == _OK))

    def _decode_on_device(
        self, boxes: np.ndarray, flips: np.ndarray, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> Any:
        """Decode views of one size to a tensor (n, views, 3, height, width) on the device."""
        from fieldslab.reader.pixels import device

        codec = lookup.load_device_decoder(str(self.images.device))
        out = device.make_zeros(shape, self.images.dtype, str(self.images.device))
        pending = self._find_pending()
        on_device = _mark_supported_codes(frozenset(codec.codes))[self.encoded.codes] & (
            self.orientations == 1
        )
        which = pending[on_device[pending]]
        self.statuses[which] = codec.decode_on_device(
            self.encoded,
            which,
            Crops(boxes, np.ascontiguousarray(flips)),
            out,
            self.scale,
            self.bias,
            self.images.max_pixels,
        )
        on_host = pending[~on_device[pending]]
        if len(on_host):
            host = np.empty(shape, dtype)
            self._decode_on_host(on_host, boxes, flips, host)
            on_host = on_host[self.statuses[on_host] == _OK]
            device.scatter_rows(out, on_host, host[on_host])
        return out

    def _decode_on_host(
        self, pending: np.ndarray, boxes: np.ndarray, flips: np.ndarray, out: np.ndarray
    ) -> None:
        """Decode views, of one size, to (n, views, height, width, 3) or channels first."""
        target = Target(out, self.images.channels_first, self.scale, self.bias)
        if not self.images.apply_exif:
            self._try_decoders(pending, Crops(boxes, np.ascontiguousarray(flips)), target)
            return
        sizes = self.encoded.sizes.astype(np.int64)
        turned = orientation.orient_boxes(boxes, flips, sizes, self.orientations)
        lying = turned.transpose[pending]
        self._try_decoders(pending[~lying], turned.crops, target)
        if lying.any():
            tall, wide = (3, 4) if self.images.channels_first else (2, 3)
            on_side = np.empty_like(out.swapaxes(tall, wide), order="C")
            self._try_decoders(pending[lying], turned.crops, target._replace(out=on_side))
        for i in pending[self.statuses[pending] == _OK].tolist():
            if not (turned.transpose[i] or turned.swap_rows[i].any()):
                continue
            axis = 1 if self.images.channels_first else 0
            for view, swap in enumerate(turned.swap_rows[i].tolist()):
                pixels = on_side[i, view] if turned.transpose[i] else out[i, view].copy()
                pixels = np.flip(pixels, axis) if swap else pixels
                out[i, view] = pixels.swapaxes(axis, axis + 1) if turned.transpose[i] else pixels

    def _try_decoders(self, which: np.ndarray, crops: Crops, target: Target) -> None:
        """Ask the decoders in turn, each for what those before it do not support."""
        self.statuses[which] = _UNSUPPORTED
        decoder_option = self.images.decoder
        chain = (
            lookup.list_candidates(decoder_option)
            if isinstance(decoder_option, str)
            else [decoder_option, lookup.load_decoder("planes")]
        )
        for decoder in chain:
            if not len(which):
                return
            chosen = which[
                _mark_supported_codes(frozenset(decoder.codes))[self.encoded.codes[which]]
            ]
            if len(chosen):
                self.statuses[chosen] = decoder.decode(
                    self.encoded, chosen, crops, target, self.images.max_pixels
                )
                which = which[self.statuses[which] == _UNSUPPORTED]

    def _fill_missing(self, out: Any) -> None:
        """Fill the places of images that are null, or were not decoded."""
        empty = np.flatnonzero(self.statuses != _OK)
        grey = self.scale * self.images.fill + self.bias
        if self.images.dtype == "bfloat16":
            bits = grey.view(np.uint32).astype(np.uint64)
            grey = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
        shape = (3, 1, 1) if self.images.channels_first else (3,)
        if isinstance(out, np.ndarray):
            out[empty] = grey.astype(out.dtype).reshape(shape)
        elif len(empty):
            from fieldslab.reader.pixels import device

            dtype = np.dtype(_DTYPES.get(self.images.dtype, self.images.dtype))
            device.scatter_rows(out, empty, grey.astype(dtype).reshape(shape))


def _measure_unknown_sizes(encoded: EncodedImages, valid: np.ndarray | None) -> None:
    """Fill in the sizes of images whose headers pack could not read."""
    unknown = (encoded.sizes[:, 0] == 0) & (encoded.lengths > 0)
    if valid is not None:
        unknown &= valid
    for i in np.flatnonzero(unknown).tolist():
        encoded.sizes[i] = orientation.measure_with_pillow(encoded, i)[:2]


def _draw_boxes_and_flips(
    images: ImageSteps, sizes: np.ndarray, subjects: np.ndarray, epoch: int
) -> tuple[np.ndarray, np.ndarray]:
    """Boxes, int32[n, views, 4], and flips, bool[n, views]."""
    views = range(len(images.crops))
    drawn = [draw_boxes(images.crops[v], sizes, subjects, images.seed, epoch, v) for v in views]
    boxes = np.stack(drawn, axis=1)
    if images.flip is None:
        return boxes, np.zeros(boxes.shape[:2], np.bool_)
    p = images.flip.p
    flips = [draw_flips(p, subjects, images.seed, epoch, view) for view in views]
    return boxes, np.stack(flips, axis=1)


def _make_damaged_image_error(
    file: Path, name: str, row: int, status: int, decoder: Any
) -> DamagedImage:
    hint = 'ImageSteps(..., on_error="skip" or "fill") continues without it.'
    if status == Status.UNSUPPORTED and decoder != "auto":
        decoder_name = decoder if isinstance(decoder, str) else decoder.name
        hint = f'Only `{decoder_name}` was tried; decoder="auto" tries all that are installed.'
    if status == Status.TOO_LARGE:
        hint = "If you trust it, give ImageSteps a larger `max_pixels`."
    return DamagedImage(MEANINGS[Status(status)], file=file, field=name, row=row, hint=hint)
