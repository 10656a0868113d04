"""Steps that a user writes for the images of a field.

    decode={"image": [RandomResizedCrop(224), RandomHorizontalFlip(), Normalize()]}

Nothing here draws or decodes; `reader.images.boxes` and `reader.images.decoding` do.
"""

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, Literal

import numpy as np

from fieldslab.reader.batch import make_unknown_field_error
from fieldslab.reader.decoders.decoder import Decoder
from fieldslab.reader.images.normalize import Normalize
from fieldslab.reader.images.step import Step
from fieldslab.reader.rows import check_integer
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field
from fieldslab.schemas.renamed import refuse_renamed_parameters

MAX_PIXELS = 2**28 // 3
"""A picture that takes a quarter of a GiB; Pillow warns from here on, too."""
MOST_SIDE = 2**14
"""No view may be larger."""

_STEPS = (
    "RandomResizedCrop",
    "CenterCrop",
    "Resize",
    "MultiCrop",
    "Decode",
    "RandomHorizontalFlip",
    "Normalize",
)

Size = int | tuple[int, int]


class Crop(Step):
    """Base of the steps that choose a part of the picture and bring it to one size."""

    size: tuple[int, int]


class RandomResizedCrop(Crop):
    """A random part of the picture, as torchvision's transform of this name draws it.

    Parameters
    ----------
    size
        Height and width of the view, or one number for both.
    scale
        Smallest and largest fraction of the picture's area.
    ratio
        Smallest and largest aspect ratio, width / height. Its logarithm is drawn uniformly.
    """

    parameters = ("size", "scale", "ratio")

    def __init__(
        self,
        size: Size,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
    ) -> None:
        self.size = _check_size(size)
        self.scale = _check_range("scale", scale)
        self.ratio = _check_range("ratio", ratio)


class CenterCrop(Crop):
    """The middle of the picture.

    Parameters
    ----------
    size
        Height and width of the view, or one number for both.
    resize
        Length to which the picture's shorter side is resized first. Default: `size`, for the
        largest part of this shape. ImageNet models are tested with size 224 and resize 256.
    """

    parameters = ("size", "resize")

    def __init__(self, size: Size, resize: int | None = None) -> None:
        self.size = _check_size(size)
        self.resize = None if resize is None else check_integer("resize", resize, least=1)
        if self.resize is not None and self.resize < max(self.size):
            hint = "A view cannot be larger than the picture it is cut from."
            raise UsageError("`resize` is less than `size`", found=self.resize, hint=hint)


class Resize(Crop):
    """The whole picture, resized to this size without keeping its aspect ratio."""

    parameters = ("size",)

    def __init__(self, size: Size) -> None:
        self.size = _check_size(size)


class MultiCrop(Step):
    """Several views of each image, which is decoded once where they have one size.

    The batch has an array (rows, views, height, width, 3), or `Views` for views of several sizes:
    one such array for each size.

    Parameters
    ----------
    views
        The crops.
    """

    parameters = ("views",)

    def __init__(self, views: Sequence[Crop]) -> None:
        self.views: tuple[Crop, ...] = tuple(views) if _is_list(views) else ()
        if not self.views or not all(isinstance(view, Crop) for view in self.views):
            raise UsageError(
                "`views` must be a list of crops",
                found=repr(views),
                hint="Write MultiCrop([RandomResizedCrop(224)] * 2).",
            )


class Decode(Step):
    """Pictures as they are, each at its own size: the batch has `Pictures` of uint8."""


class RandomHorizontalFlip(Step):
    """Swap left and right with probability `p`, independently for each view."""

    parameters = ("p",)

    def __init__(self, p: float = 0.5) -> None:
        if not _is_number(p) or not 0 <= p <= 1:
            raise UsageError("a probability must be from 0 to 1", found=repr(p))
        self.p = float(p)


class ImageSteps:
    """Steps for a field of images, with options; a plain list of steps means `ImageSteps(list)`.

    Random crops and flips depend only on seed, epoch, row and visit: not on threads, batch size,
    ranks, or the point where a run was resumed. The visit tells apart the times that an epoch has
    the same row, as with `Weighted`: each time is drawn anew. See `Order.visits`.

    Parameters
    ----------
    steps
        One of `RandomResizedCrop`, `CenterCrop`, `Resize`, `MultiCrop` or `Decode`; then, if
        wanted, `RandomHorizontalFlip` and `Normalize`.
    seed
        Seed of random crops and flips.
    decoder
        "auto" asks the available decoders in turn until one takes an image: stored pixels, the
        pack-time index (`roi`), `turbojpeg`, `pillow`. A name, or a `Decoder`, asks only this one.
    on_error
        What to do with an image that cannot be decoded. "raise" raises DamagedImage. "skip" leaves
        its row out of all fields, so that the batch is smaller, and on several ranks of different
        size. "fill" fills the image with `fill`. `Batch.failures` lists these images.
    fill
        Grey level, 0 to 255 before normalization, of images that are null or were not decoded.
        Null is no failure: see `Batch.valid`.
    apply_exif
        Turn images upright according to their EXIF orientation.
    max_pixels
        Images with more pixels are not decoded.
    crop_boxes
        Also return the boxes of the crops, as "FIELD.boxes": int32 (rows, 4), or (rows, views, 4)
        with `MultiCrop`: top, left, height and width in pixels of the original image.
    channels_first
        True for (3, height, width), False for (height, width, 3). Default: True if the steps
        normalize or `device` is given.
    device
        Give a tensor of torch on this device instead of an array: "cuda", "cuda:1" or "cpu", as
        torch names them. JPEG is decoded there and stays there, so this goes with
        decoder="nvimagecodec". Pixels stored by pack, and pictures that `apply_exif` turns, are
        made on the processor and copied. On GPUs this was never run so far: what is tested is
        "cpu".
    """

    @refuse_renamed_parameters
    def __init__(
        self,
        steps: Sequence[Any],
        *,
        seed: int = 0,
        decoder: str | Decoder = "auto",
        on_error: Literal["raise", "skip", "fill"] = "raise",
        fill: int = 0,
        apply_exif: bool = False,
        max_pixels: int = MAX_PIXELS,
        crop_boxes: bool = False,
        channels_first: bool | None = None,
        device: str | None = None,
    ) -> None:
        if on_error not in ("raise", "skip", "fill"):
            expected = '"raise", "skip" or "fill"'
            raise UsageError("unknown `on_error`", expected=expected, found=on_error)
        if not _is_list(steps):
            hint = "Write a list, as in [RandomResizedCrop(224), Normalize()]."
            raise UsageError("steps for images must be a list", found=repr(steps), hint=hint)
        self.steps = list(steps)
        self.crops, self.flip, self.normalize = _sort_steps(self.steps)
        self.multiple = any(isinstance(step, MultiCrop) for step in self.steps)
        self.seed = check_integer("seed", seed)
        if not isinstance(decoder, str) and not hasattr(decoder, "decode"):
            raise UsageError("`decoder` must be a decoder or its name", found=repr(decoder))
        self.decoder = decoder
        self.on_error = on_error
        self.fill = check_integer("fill", fill, least=0)
        self.apply_exif = apply_exif
        self.max_pixels = min(
            check_integer("max_pixels", max_pixels, least=1), 2**62
        )  # fits kernels
        self.crop_boxes = crop_boxes
        self.device = device
        first = self.normalize is not None or device is not None
        self.channels_first = first if channels_first is None else channels_first
        if device is not None:
            self._check_device()
        if self.fill > 255:
            raise UsageError("`fill` must be a grey level", expected="0..255", found=fill)
        if not self.crops and (self.channels_first or self.crop_boxes):
            option = "crop_boxes" if self.crop_boxes else "channels_first"
            raise UsageError(f"`{option}` needs a crop or Resize, not Decode()")

    staged = False
    """Whether stored pixels are left to a device: see `staging`. A loader says so of its copy."""

    def _check_device(self) -> None:
        if not isinstance(self.device, str):
            hint = 'Write device="cuda", "cuda:1" or "cpu".'
            raise UsageError(
                "`device` must be the name of a device", found=repr(self.device), hint=hint
            )
        if self.decoder != "nvimagecodec":
            hint = 'Add decoder="nvimagecodec", which decodes JPEG on a device.'
            raise UsageError(
                "this decoder cannot decode on a device", found=self.decoder, hint=hint
            )
        if not self.crops or not self.channels_first:
            option = "channels_first=False" if self.crops else "Decode()"
            raise UsageError(f"`device` gives (3, height, width) of one size, not {option}")

    @property
    def dtype(self) -> str:
        """Of the values: "uint8", "float32", "float16" or "bfloat16"."""
        return "uint8" if self.normalize is None else str(self.normalize.dtype)

    def key(self) -> dict[str, Any]:
        """Return all that decides on the values of a batch, ready for JSON, for a loader's state.

        `on_error`, `fill`, `max_pixels`, `decoder`, `device` and `crop_boxes` are not in it.
        """
        return {
            "version": 1,
            "steps": [step.key() for step in self.steps],
            "seed": self.seed,
            "apply_exif": bool(self.apply_exif),
            "channels_first": bool(self.channels_first),
        }

    def __repr__(self) -> str:
        return (
            f"ImageSteps({self.steps}, seed={self.seed}, apply_exif={self.apply_exif}, "
            f"channels_first={self.channels_first})"
        )


def check_decode_option(
    decode: Any, fields: Mapping[str, Field], names: Sequence[str]
) -> dict[str, ImageSteps]:
    """Check the option `decode` against the fields of a slab and those that are gathered.

    Raises UnknownField, UsageError.
    """
    if decode is not None and not isinstance(decode, Mapping):
        hint = 'Write decode={"image": [RandomResizedCrop(224)]}.'
        raise UsageError("`decode` must map field names to steps", found=repr(decode), hint=hint)
    images = {}
    for name, steps in (decode or {}).items():
        if name not in fields:
            raise make_unknown_field_error(name, fields)
        if fields[name].kind != "image":
            raise UsageError(
                "only image fields can be decoded", field=name, found=fields[name].kind
            )
        if name not in names:
            raise UsageError("`decode` names a field that is not in `fields`", field=name)
        images[name] = steps if isinstance(steps, ImageSteps) else ImageSteps(steps)
        if images[name].crop_boxes and f"{name}.boxes" in fields:
            raise UsageError("a field already has the name of the boxes", found=f"{name}.boxes")
    return images


def _sort_steps(
    steps: list[Any],
) -> tuple[tuple[Crop, ...], RandomHorizontalFlip | None, Normalize | None]:
    """Sort steps into crops, flip and normalization. Raises UsageError."""
    kinds: list[Any] = [(Crop, MultiCrop, Decode), RandomHorizontalFlip, Normalize]
    step_by_kind: list[Any] = [None, None, None]
    last = -1
    for step in steps:
        turn = next((i for i, kind in enumerate(kinds) if isinstance(step, kind)), None)
        if turn is None:
            hint = "Steps are " + ", ".join(_STEPS) + "; write them with parentheses: Decode()."
            raise UsageError("not a step for images", found=repr(step), hint=hint)
        if turn <= last:
            hint = "Write a crop, then RandomHorizontalFlip, then Normalize; each once at most."
            raise UsageError("steps are in the wrong order", found=repr(step), hint=hint)
        step_by_kind[turn] = step
        last = turn
    crop, flip, normalize = step_by_kind
    if crop is None:
        hint = "Begin with RandomResizedCrop, CenterCrop, Resize, MultiCrop or Decode."
        raise UsageError("no step chooses a part of the picture", hint=hint)
    if isinstance(crop, Decode):
        if normalize is not None:
            raise UsageError(
                "pictures of different sizes cannot be normalized", found=repr(normalize)
            )
        return (), flip, None
    return crop.views if isinstance(crop, MultiCrop) else (crop,), flip, normalize


def _check_size(size: Any) -> tuple[int, int]:
    if np.ndim(size) > 0 and np.shape(size) != (2,):
        raise UsageError("`size` must be one number, or height and width", found=repr(size))
    height, width = (size, size) if np.ndim(size) == 0 else size
    sides = check_integer("size", height, least=1), check_integer("size", width, least=1)
    if max(sides) > MOST_SIDE:
        raise UsageError("`size` is too large", expected=f"up to {MOST_SIDE}", found=size)
    return sides


def _check_range(name: str, bounds: Any) -> tuple[float, float]:
    if _is_list(bounds) and len(bounds) == 2 and all(map(_is_number, bounds)):
        low, high = float(bounds[0]), float(bounds[1])
        if 0 < low <= high < math.inf:
            return low, high
    raise UsageError(f"`{name}` must be two rising numbers above 0", found=repr(bounds))


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real)
