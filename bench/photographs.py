"""Photographs to measure with: cut from pictures that PyPI packages ship, or the user's own."""

import io
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fieldslab.schemas.errors import UsageError

if TYPE_CHECKING:
    from PIL import Image

SHIPPED = {
    "skimage": (
        "data",
        "astronaut.png",
        "chelsea.png",
        "coffee.png",
        "motorcycle_left.png",
        "motorcycle_right.png",
        "rocket.jpg",
    ),
    "sklearn": ("datasets/images", "china.jpg", "flower.jpg"),
}
"""Package -> folder and names of pictures in colour that a camera took."""

LONG_SIDE, SHORT_SIDE = 500, 375
"""Of a picture of ImageNet, usually."""
QUALITY = 95
"""Gives 70 KB a picture."""
DISTINCT = 300
"""Of many photographs, so many are cut and encoded: that takes longer than what is measured."""


def photographs(
    count: int, seed: int = 0, quality: int = QUALITY, subsampling: str = "4:2:0"
) -> Iterator[bytes]:
    """`count` JPEG files of about 500 x 375 pixels, some upright, each another cut.

    Every cut has another place, scale and brightness, so that no two share their bytes.
    """
    from PIL import Image, ImageEnhance

    rng = np.random.default_rng(seed)
    for _ in range(count):
        picture = pictures()[rng.integers(len(pictures()))]
        size = (LONG_SIDE, SHORT_SIDE) if rng.random() < 0.75 else (SHORT_SIDE, LONG_SIDE)
        most = min(picture.width / size[0], picture.height / size[1])
        scale = most * rng.uniform(0.7, 1.0)
        width, height = size[0] * scale, size[1] * scale
        left = rng.uniform(0, picture.width - width)
        top = rng.uniform(0, picture.height - height)
        box = (left, top, left + width, top + height)
        cut = picture.resize(size, Image.Resampling.BICUBIC, box=box)
        if rng.random() < 0.5:
            cut = cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        cut = ImageEnhance.Brightness(cut).enhance(rng.uniform(0.8, 1.2))
        file = io.BytesIO()
        cut.save(file, "JPEG", quality=quality, subsampling=subsampling)
        yield file.getvalue()


def large_photographs(count: int, seed: int = 0) -> Iterator[bytes]:
    """`count` JPEG files of 2 to 18 megapixels: pictures side by side, enlarged, with noise.

    Enlarged alone, they would be smoother than what cameras make.
    """
    from PIL import Image

    rng = np.random.default_rng(seed)
    for pixels in np.geomspace(2e6, 18e6, count):
        width, height = int((pixels * 4 / 3) ** 0.5), int((pixels * 3 / 4) ** 0.5)
        canvas = Image.new("RGB", (width, height))
        for top in range(0, height, 1000):
            left = 0
            while left < width:
                picture = pictures()[rng.integers(len(pictures()))]
                size = (int(picture.width * rng.uniform(1.5, 2.5)), 1000)
                canvas.paste(picture.resize(size, Image.Resampling.BICUBIC), (left, top))
                left += size[0]
        noise = rng.standard_normal((height, width, 3), np.float32) * 2.5
        noisy = (np.asarray(canvas) + noise).round().clip(0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(noisy).save(file, "JPEG", quality=92, subsampling="4:2:0")
        yield file.getvalue()


def repeated_photographs(size: int, distinct: int = DISTINCT) -> Iterator[bytes]:
    """Repeat photographs in random order, up to about `size` bytes."""
    rng = np.random.default_rng(0)
    files = _distinct(distinct)
    done = 0
    while done < size:
        for number in rng.permutation(len(files)).tolist():
            yield files[number]
            done += len(files[number])
            if done >= size:
                return


def own_photographs(folder: Path, count: int | None = None) -> Iterator[bytes]:
    """Return the JPEG files under a folder, by name. Raises UsageError where there is none."""
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    if not files:
        raise UsageError("no JPEG files here", found=folder, hint="Give a folder that holds some.")
    for path in files[:count]:
        yield path.read_bytes()


@cache
def _distinct(count: int) -> list[bytes]:
    return list(photographs(count))


@cache
def pictures() -> list["Image.Image"]:
    """Return the shipped pictures, decoded. Raises UsageError where the packages are missing."""
    from PIL import Image

    decoded = []
    for package, (folder, *names) in SHIPPED.items():
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            hint = "pip install scikit-image scikit-learn, or give --images DIR."
            raise UsageError(f"{package} is not installed: it ships pictures", hint=hint)
        paths = [Path(spec.origin).parent / folder / name for name in names]
        decoded += [Image.open(path).convert("RGB") for path in paths]
    return decoded
