"""A decoder of JPEG that is fast for small views: Pillow's draft mode decodes at a smaller size."""

import ctypes
import io
from collections.abc import Set

import numpy as np
from PIL import Image, UnidentifiedImageError

from fieldslab.reader.decoders.decoder import Crops, EncodedImages, Status, Target
from fieldslab.schemas.images import CODES


class DraftDecoder:
    """Decodes JPEG at 1/2, 1/4 or 1/8 of its size, if the view is that small."""

    name = "draft"  # as in the entry point; `ImageSteps(steps, decoder="draft")`
    codes: Set[int] = frozenset({CODES["jpeg"]})

    def decode(
        self,
        images: EncodedImages,
        which: np.ndarray,
        crops: Crops,
        target: Target,
        max_pixels: int,
    ) -> np.ndarray:
        """See `fieldslab.reader.decoders.decoder.Decoder`."""
        statuses = np.zeros(len(which), np.int32)
        for position, image in enumerate(which.tolist()):
            statuses[position] = self._decode_image(images, image, crops, target, max_pixels)
        return statuses

    def _decode_image(
        self, images: EncodedImages, image: int, crops: Crops, target: Target, max_pixels: int
    ) -> Status:
        """Decode all views of one image; store them only if all went well."""
        height, width = images.sizes[image].tolist()
        if height * width > max_pixels:
            return Status.TOO_LARGE
        shape = target.out.shape
        rows, columns = shape[3:] if target.channels_first else shape[2:4]
        data = ctypes.string_at(int(images.addresses[image]), int(images.lengths[image]))
        try:
            views = [
                _decode_view(data, (width, height), box, (columns, rows))
                for box in crops.boxes[image].tolist()
            ]
        except _OtherSize:
            return Status.OTHER_SIZE
        except UnidentifiedImageError:
            return Status.NOT_AN_IMAGE
        except (OSError, SyntaxError, ValueError) as error:
            return Status.TRUNCATED if "truncated" in str(error) else Status.DAMAGED
        for number, view in enumerate(views):
            flipped = view[:, ::-1] if crops.flips[image, number] else view
            _store(flipped, target, target.out[image, number])
        return Status.OK


class _OtherSize(Exception):
    """The picture does not have the size that the slab states."""


def _decode_view(
    data: bytes, size: tuple[int, int], box: list[int], view_size: tuple[int, int]
) -> np.ndarray:
    """One view, uint8[rows, columns, 3]; sizes are (width, height), as Pillow has them."""
    top, left, box_height, box_width = box
    with Image.open(io.BytesIO(data), formats=["JPEG"]) as picture:
        if picture.size != size:
            raise _OtherSize
        shrink = max(1, min(box_width // view_size[0], box_height // view_size[1]))
        picture.draft("RGB", (size[0] // shrink, size[1] // shrink))
        pixels = picture.convert("RGB")
    across, down = pixels.width / size[0], pixels.height / size[1]
    region = (left * across, top * down, (left + box_width) * across, (top + box_height) * down)
    return np.asarray(pixels.resize(view_size, Image.Resampling.BILINEAR, box=region))


def _store(view: np.ndarray, target: Target, out: np.ndarray) -> None:
    """Write uint8[rows, columns, 3] as the numbers that the user asked for."""
    if out.dtype != np.uint8:
        view = (view * target.scale + target.bias).astype(np.float32)
    if out.dtype == np.uint16:  # bfloat16: the high half of float32, rounded to even
        bits = view.view(np.uint32)
        view = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    out[...] = view.transpose(2, 0, 1) if target.channels_first else view
