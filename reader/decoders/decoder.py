"""What a decoder is: images as they lie in the map in, crops at their final size out.

A decoder works on a batch, never on a sample from Python: its loop is a `nogil` kernel, a C
library's, or another device's. It writes what `Target` says for the images that it was given, and
returns a `Status` for each. It never reads outside an image's bytes, never leaves a crop half
written that it calls OK, and never raises for what the bytes of an image are.
"""

from collections.abc import Set
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import numpy as np

from fieldslab.schemas.renamed import refuse_renamed_name


class Status(IntEnum):
    """What became of an image. After UNSUPPORTED, the next decoder in line is asked."""

    OK = 0
    UNSUPPORTED = 1
    NOT_AN_IMAGE = 2
    TRUNCATED = 3
    DAMAGED = 4
    TOO_LARGE = 5
    OTHER_SIZE = 6


MEANINGS = {
    Status.UNSUPPORTED: "no decoder takes an image of this kind",
    Status.NOT_AN_IMAGE: "is not an image of a known format",
    Status.TRUNCATED: "ends before its picture is complete",
    Status.DAMAGED: "is damaged",
    Status.TOO_LARGE: "has more pixels than `max_pixels` allows",
    Status.OTHER_SIZE: "has another size in its header than in the slab",
}
"""What to tell about an image, by its status."""


class EncodedImages(NamedTuple):
    """The n images of a batch, in place.

    Attributes
    ----------
    addresses, lengths
        Where each begins, and its bytes: uint64[n], int64[n].
    sizes
        Height and width of the stored picture, as the slab has them: uint32[n, 2].
    codes
        What the bytes are, by `fieldslab.schemas.images.CODES`: uint8[n].
    points, counts
        Index points of each JPEG (see FORMAT.md): address of the first (0 where there is no
        index), and how many: uint64[n], int64[n].
    every
        MCUs from one index point to the next; 0 where there is one a row of MCUs.
    """

    addresses: np.ndarray
    lengths: np.ndarray
    sizes: np.ndarray
    codes: np.ndarray
    points: np.ndarray
    counts: np.ndarray
    every: int


class Crops(NamedTuple):
    """What to take from each image, in pixels of the stored picture.

    Attributes
    ----------
    boxes
        Top, left, height and width of each view, inside the picture: int32[n, views, 4].
    flips
        Whether left and right change places, after the crop: bool[n, views].
    """

    boxes: np.ndarray
    flips: np.ndarray


class Target(NamedTuple):
    """Where crops go, at what size and as what numbers.

    Attributes
    ----------
    out
        C-contiguous (n, views, height, width, 3), or (n, views, 3, height, width) if
        `channels_first`: uint8, float32, float16, or uint16 that holds bfloat16.
    channels_first
        Which of the two it is.
    scale, bias
        float32[3], by channel: `scale * value + bias` is stored, of values in 0..255. For uint8
        they are 1 and 0.
    """

    out: np.ndarray
    channels_first: bool
    scale: np.ndarray
    bias: np.ndarray


class Decoder(Protocol):
    """Turns encoded images into crops.

    A decoder is made without arguments, once in a process, and raises MissingLibrary where its
    library is not here. A class of another package becomes one by the entry point
    `fieldslab.decoders`; it need not derive from this one.

    Any number of threads may call one decoder at once; what a thread needs of its own (a handle,
    scratch memory) it keeps by thread.
    """

    name: str
    """As the user gives it."""

    codes: Set[int]
    """Which codes it takes; whether it can decode a certain image, its status says."""

    def decode(
        self,
        images: EncodedImages,
        which: np.ndarray,
        crops: Crops,
        target: Target,
        max_pixels: int,
    ) -> np.ndarray:
        """Decode the images `which` (int64[k]) into their places in `target.out`.

        Crops are resized with an antialiased bilinear filter, as Pillow resizes what it has
        cropped. Of images that fail, the place is left as it was. An image whose header states
        more than `max_pixels` is TOO_LARGE before anything is allocated for it.

        Returns
        -------
        int32[k] of `Status`.
        """
        ...


def __getattr__(name: str) -> Any:
    refuse_renamed_name(__name__, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
