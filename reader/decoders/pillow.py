"""Whatever Pillow reads: PNG, WebP, TIFF, AVIF, GIF, and JPEG of the rarer kinds.

Every picture becomes RGB with 8 bits: grey is the same in three channels, palettes and CMYK are
converted, alpha is dropped as in `Image.convert("RGB")`, 16 bits are cut to their high 8, and of
animations the first frame is taken. Numbers of 32 bits, whose range nobody knows, and Lab are not
supported.
"""

import ctypes
import io
from collections.abc import Set
from typing import Any

import numpy as np

from fieldslab.reader.decoders.decoder import Crops, EncodedImages, Status, Target
from fieldslab.reader.decoders.planes import Planes
from fieldslab.schemas.errors import MissingLibrary
from fieldslab.schemas.images import CODES
from fieldslab.schemas.mapping import get_address

try:
    from PIL import Image, UnidentifiedImageError
except ModuleNotFoundError as error:
    if error.name != "PIL":
        raise
    hint = "Install it: pip install 'pillow>=11.3'."
    raise MissingLibrary("the decoder `pillow` needs Pillow", hint=hint) from error

_BOMBS = (Image.DecompressionBombError, Image.DecompressionBombWarning)
_WIDE = frozenset({"I;16", "I;16B", "I;16L", "I;16N"})
_NO_RANGE = frozenset({"I", "F", "LAB"})
_ORIENTATION = 0x0112


class Pillow:
    """Decodes one image after the other; Pillow lets other threads run meanwhile."""

    name = "pillow"
    codes: Set[int] = frozenset({CODES[None], CODES["jpeg"], CODES["png"], CODES["webp"]})

    def __init__(self) -> None:
        self._planes = Planes()

    def decode(
        self,
        images: EncodedImages,
        which: np.ndarray,
        crops: Crops,
        target: Target,
        max_pixels: int,
    ) -> np.ndarray:
        """See `Decoder`."""
        statuses = np.empty(len(which), np.int32)
        for k, i in enumerate(which.tolist()):
            data = ctypes.string_at(int(images.addresses[i]), int(images.lengths[i]))
            height, width = images.sizes[i].tolist()
            pixels = _decode_pixels(data, height, width, max_pixels)
            if isinstance(pixels, Status):
                statuses[k] = pixels
            else:
                statuses[k] = self._store_view(pixels, i, images, crops, target)
        return statuses

    def _store_view(
        self, pixels: np.ndarray, index: int, images: EncodedImages, crops: Crops, target: Target
    ) -> int:
        decoded = images._replace(
            addresses=np.array([get_address(pixels)], np.uint64),
            lengths=np.array([pixels.nbytes], np.int64),
            sizes=images.sizes[index : index + 1],
            codes=np.array([CODES["rgb"]], np.uint8),
        )
        image = slice(index, index + 1)
        crops = Crops(crops.boxes[image], crops.flips[image])
        target = target._replace(out=target.out[image])
        first = np.zeros(1, np.int64)
        status: int = self._planes.decode(decoded, first, crops, target, 2**62)[0]
        return status


def read_size_and_orientation(data: bytes) -> tuple[int, int, int]:
    """Read height, width and EXIF orientation from the header; 0, 0, 1 without one."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            turned = image.getexif().get(_ORIENTATION, 1)
            is_valid = isinstance(turned, int) and 1 <= turned <= 8
            # Pillow turns TIFF by itself.
            return image.height, image.width, turned if is_valid and image.format != "TIFF" else 1
    except Exception:  # noqa: BLE001  # see `_decode_pixels`
        return 0, 0, 1


def _decode_pixels(data: bytes, height: int, width: int, max_pixels: int) -> np.ndarray | Status:
    """Decode to uint8[height, width, 3], or say why not."""
    if height * width > max_pixels:
        return Status.TOO_LARGE
    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.height * image.width > max_pixels:
                return Status.TOO_LARGE
            if (image.height, image.width) != (height, width):
                return Status.OTHER_SIZE
            if image.mode in _NO_RANGE:
                return Status.UNSUPPORTED
            image.load()
            return _convert_to_rgb(image)
    except UnidentifiedImageError:
        return Status.NOT_AN_IMAGE
    except _BOMBS:
        return Status.TOO_LARGE
    # Readers of rare formats let all kinds of errors through where the data are wrong.
    except Exception as error:  # noqa: BLE001
        return Status.TRUNCATED if "truncated" in str(error) else Status.DAMAGED


def _convert_to_rgb(image: Any) -> np.ndarray:
    if image.mode in _WIDE:
        grey = (np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8)
        return np.repeat(grey[:, :, None], 3, axis=2)
    return np.ascontiguousarray(image if image.mode == "RGB" else image.convert("RGB"))
