"""Images decoded, made smaller and encoded anew while packing: the packer's one use of Pillow."""

import io
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from fieldslab.packer.convert.misfit import Misfit, Undecodable
from fieldslab.packer.image_options import ImageForm
from fieldslab.schemas.errors import MissingLibrary
from fieldslab.schemas.images import read_image_size
from fieldslab.schemas.optiontext import mark_option

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "GIF", "BMP", "PPM", "JPEG2000", "AVIF")
"""What is opened. Others are left out on purpose: Pillow runs programs for some of them."""

MAX_PIXELS = 2**30 // 12
"""Pixels of an image that is decoded, at most: 89 million, which as RGB are 256 MiB."""

_ORIENTATION = 0x0112
_SUBSAMPLING = "4:2:0"
_JFIF = (
    (19595, 38470, 7471, 1 << 15),
    (-11056, -21712, 32768, (128 << 16) + (1 << 15)),
    (32768, -27440, -5328, (128 << 16) + (1 << 15)),
)
"""Of Y, Cb and Cr: what they have of red, green and blue, and what is added, in 1/65536."""


def get_library_version() -> str:
    """Return Pillow's version. Raises MissingLibrary if it is not installed."""
    try:
        import PIL
    except ImportError as error:
        raise MissingLibrary(
            "images are decoded by Pillow, which is not installed",
            hint="pip install 'pillow>=11.3'",
        ) from error
    return PIL.__version__


def find_versions() -> dict[str, str]:
    """Find versions of what decodes and encodes images. Raises MissingLibrary without Pillow."""
    pillow = get_library_version()
    from PIL import features

    return {
        "pillow": pillow,
        "pillow's libjpeg": str(features.version("libjpeg_turbo") or features.version("jpg")),
    }


def decode_image(
    image: memoryview, form: ImageForm, tally: Counter[str]
) -> tuple[np.ndarray, int, int]:
    """Decode an image to `rgb` or `yuv420` of FORMAT.md: uint8[bytes], height and width.

    Raises Undecodable where it cannot be decoded, or has too many pixels.
    """
    with _name_pillow_errors():
        opened = _open_image(image)
        if form.store == "rgb":
            picture = _resize(_convert_to_rgb(opened, tally), form)
            data = np.asarray(picture).reshape(-1)
        else:
            picture = _resize(_convert_to_ycc(opened, tally), form)
            luma, *chroma = map(np.asarray, _split_planes(picture))
            as_stored = picture is opened and _holds_halved(opened)
            halved = [restore_chroma(each) if as_stored else halve_plane(each) for each in chroma]
            data = np.concatenate([plane.reshape(-1) for plane in (luma, *halved)])
        if _read_orientation(opened) != 1:
            tally["orientation lost"] += 1
        return data, picture.height, picture.width


def check_image(image: memoryview) -> None:
    """Raise Undecodable where an image cannot become RGB."""
    with _name_pillow_errors():
        _convert_to_rgb(_open_image(image), Counter())


def halve_plane(plane: np.ndarray) -> np.ndarray:
    """Average 2 x 2 samples, fewer at an odd edge: half as high and wide, rounded up."""
    from PIL import Image

    return np.asarray(Image.fromarray(plane).reduce(2))


def restore_chroma(plane: np.ndarray) -> np.ndarray:
    """Restore the chroma samples of a 4:2:0 JPEG from libjpeg's doubled ones; off by at most 2.

    libjpeg doubles a row with a triangle filter: u[2i] = (3 c[i] + c[i-1]) / 4 and u[2i+1] =
    (3 c[i] + c[i+1]) / 4, where at the ends c itself stands in for the neighbour that is not there.
    So c[i] = (3 (u[2i] + u[2i+1]) - u[2i-1] - u[2i+2]) / 4, and the same for columns.
    """
    sums = _undo_doubling(_undo_doubling(plane.astype(np.int16)).T).T
    samples: np.ndarray = np.clip((sums + 8) >> 4, 0, 255).astype(np.uint8)
    return samples


def _undo_doubling(rows: np.ndarray) -> np.ndarray:
    """Four times the samples of which rows were doubled: int16[height, width / 2, rounded up]."""
    if rows.shape[1] % 2:
        # The last sample comes from two neighbours alone: 2 c = 3 u[2i] - u[2i-1].
        before = rows[:, -2:-1] if rows.shape[1] > 1 else rows
        rows = np.concatenate([rows, (3 * rows[:, -1:] - before) // 2], axis=1)
    around = np.pad(rows, ((0, 0), (1, 1)), mode="edge")
    return 3 * (rows[:, ::2] + rows[:, 1::2]) - around[:, :-2:2] - around[:, 3::2]


def encode_smaller(image: memoryview, form: ImageForm, tally: Counter[str]) -> memoryview:
    """Encode an image as a JPEG of the requested size; one that is no larger is returned as is.

    Grey stays grey, all else becomes 4:2:0. EXIF orientation is kept, other metadata is not.
    Raises Undecodable where it cannot be decoded, or has too many pixels.
    """
    from PIL import Image

    with _name_pillow_errors():
        opened = _open_image(image)
        if compute_target_size(opened.size, form) == opened.size:
            return image
        picture = _resize(opened if opened.mode == "L" else _convert_to_rgb(opened, tally), form)
        exif, stream = Image.Exif(), io.BytesIO()
        if _read_orientation(opened) != 1:
            exif[_ORIENTATION] = _read_orientation(opened)
        picture.save(stream, "JPEG", quality=form.quality, subsampling=_SUBSAMPLING, exif=exif)
        return stream.getbuffer()


def encode_png(
    codec: str, data: np.ndarray, height: int, width: int, side: int | None = None
) -> memoryview:
    """Encode stored pixels as a PNG file, shrunk until the longer side has `side` pixels.

    Raises Misfit where there are not as many bytes as pixels of that size take.
    """
    from PIL import Image

    low, narrow = -(-height // 2), -(-width // 2)
    luma = height * width
    expected = 3 * luma if codec == "rgb" else luma + 2 * low * narrow
    if data.size != expected or not luma:
        raise Misfit(f"pixels of {height}x{width} are damaged", expected=expected, found=data.size)
    if codec == "rgb":
        picture = Image.fromarray(data.reshape(height, width, 3))
    else:
        chroma = data[luma:].reshape(2, low, narrow)
        planes = [Image.fromarray(data[:luma].reshape(height, width))]
        for plane in chroma:
            wide = Image.fromarray(plane).resize((2 * narrow, 2 * low), Image.Resampling.BILINEAR)
            planes.append(wide.crop((0, 0, width, height)))
        picture = Image.merge("YCbCr", planes).convert("RGB")
    stream = io.BytesIO()
    form = ImageForm("rgb", long_side=side)
    _resize(picture, form).save(stream, "PNG")
    return stream.getbuffer()


@contextmanager
def _name_pillow_errors() -> Iterator[None]:
    """Turn what Pillow raises into Misfit, and keep it from printing warnings."""
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except (Misfit, MemoryError):
        raise
    except UnidentifiedImageError as error:
        raise _make_undecodable_error("not an image of a known format") from error
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise _make_too_large_error(str(error)) from error
    except Exception as error:  # damaged bytes make Pillow raise what it likes
        raise _make_undecodable_error(f"{error}" or type(error).__name__) from error


def _open_image(image: memoryview) -> "PillowImage":
    """Open an image after a check that its header is readable and not too large."""
    from PIL import Image

    _, height, width = read_image_size(image)
    if height * width <= MAX_PIXELS:
        opened = Image.open(io.BytesIO(image), formats=FORMATS)
        width, height = opened.size
        if height * width <= MAX_PIXELS:
            return opened
    raise _make_too_large_error(f"{height}x{width}")


def _read_orientation(opened: "PillowImage") -> int:
    """Read the EXIF orientation, 1 to 8, that Pillow leaves to do. Pillow itself turns TIFF."""
    if opened.format == "TIFF":
        return 1
    try:
        return int(opened.getexif().get(_ORIENTATION, 1))
    except Exception:  # noqa: BLE001  # nothing that is not EXIF matters here
        return 1


def _convert_to_rgb(opened: "PillowImage", tally: Counter[str]) -> "PillowImage":
    """Any picture as RGB.

    Grey is repeated, palettes are looked up, CMYK is converted by Pillow's formula, without
    profiles. Alpha is dropped: colours are those that stand in the file. Of 16 bit, the high
    eight are kept.
    """
    if opened.mode == "RGB":
        opened.load()
        return opened
    if opened.mode.startswith("I;16"):
        from PIL import Image

        tally["16 bit"] += 1
        high = (np.asarray(opened).astype(np.uint16) >> 8).astype(np.uint8)
        return Image.fromarray(high).convert("RGB")
    if opened.mode in ("I", "F", "LAB"):
        raise Undecodable(
            "the range of an image's numbers is not known",
            found=f"{opened.format} of mode {opened.mode}",
            hint=_make_skip_hint(),
        )
    if "A" in opened.mode or "a" in opened.mode or "transparency" in opened.info:
        tally["alpha"] += 1
        return opened.convert("RGBA").convert("RGB")
    return opened.convert("RGB")


def _convert_to_ycc(opened: "PillowImage", tally: Counter[str]) -> "PillowImage":
    """A picture as RGB, or as it is where it holds grey or, as most JPEG do, Y, Cb and Cr."""
    if opened.mode == "L" and "transparency" not in opened.info:
        return opened
    if opened.format in ("JPEG", "MPO") and opened.mode == "RGB" and _holds_ycc(opened):
        opened.draft("YCbCr", opened.size)
        opened.load()
        return opened
    return _convert_to_rgb(opened, tally)


def _split_planes(picture: "PillowImage") -> list["PillowImage"]:
    """Y, Cb and Cr, all as large as the picture.

    From RGB by the formula of JFIF, to the nearest level: Pillow's own conversion rounds down.
    """
    from PIL import Image

    if picture.mode == "YCbCr":
        return list(picture.split())
    if picture.mode == "L":
        return [picture, *[Image.new("L", picture.size, 128)] * 2]
    levels = np.asarray(picture)
    red, green, blue = (levels[..., channel].astype(np.int32) for channel in range(3))
    planes = [(r * red + g * green + b * blue + bias) >> 16 for r, g, b, bias in _JFIF]
    return [Image.fromarray(np.minimum(plane, 255).astype(np.uint8)) for plane in planes]


def _holds_ycc(opened: Any) -> bool:
    """Return whether libjpeg takes the three components of a JPEG for Y, Cb and Cr."""
    if "jfif" in opened.info:
        return True
    if "adobe" in opened.info:
        return bool(opened.info.get("adobe_transform") == 1)
    return [component[0] for component in opened.layer] != [*b"RGB"]


def _holds_halved(opened: Any) -> bool:
    """Return whether a JPEG that was opened as Y, Cb and Cr has chroma half as high and wide."""
    return opened.mode == "YCbCr" and [each[1:3] for each in opened.layer] == [
        (2, 2),
        (1, 1),
        (1, 1),
    ]


def _resize(picture: "PillowImage", form: ImageForm) -> "PillowImage":
    """Resize a picture by Pillow's antialiased bicubic filter."""
    from PIL import Image

    size = compute_target_size(picture.size, form)
    if size == picture.size:
        return picture
    return picture.resize(size, Image.Resampling.BICUBIC)


def compute_target_size(size: tuple[int, int], form: ImageForm) -> tuple[int, int]:
    """Compute width and height at which a side has the desired length; never enlarge."""
    side = min(size) if form.short_side is not None else max(size)
    target_side = form.short_side or form.long_side or side
    if side <= target_side:
        return size
    width, height = (max(1, round(length * target_side / side)) for length in size)
    return width, height


def _make_skip_hint() -> str:
    return (
        f"{mark_option('on_error', 'skip')} leaves such rows out. Without a form, images "
        "stay as they are."
    )


def _make_undecodable_error(text: str) -> Undecodable:
    reason = " ".join(text.split()).rstrip(".")[:200]
    return Undecodable("an image cannot be decoded", found=reason, hint=_make_skip_hint())


def _make_too_large_error(size: str) -> Undecodable:
    return Undecodable(
        "an image has too many pixels to be decoded",
        expected=f"up to {MAX_PIXELS}",
        found=size[:200],
        hint=_make_skip_hint(),
    )
