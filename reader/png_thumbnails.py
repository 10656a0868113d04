"""Small PNGs for notebooks, where Pillow is installed.

Apart from the decoder `pillow`: that compiles kernels when it is imported.
"""

import base64
import io

import numpy as np

MOST_PIXELS = 50_000_000
"""Larger images are not decoded only to be looked at."""


def make_thumbnail_url(image: bytes | np.ndarray, side: int) -> str | None:
    """Make a `data:` URL of an encoded image, or of uint8[height, width, 3], made small.

    None without Pillow, and for what it cannot decode.
    """
    try:
        from PIL import Image
    except ModuleNotFoundError:
        return None
    try:
        if isinstance(image, np.ndarray):
            step = max(max(image.shape[:2]) // (4 * side), 1)
            picture = Image.fromarray(np.ascontiguousarray(image[::step, ::step]))
        else:
            picture = Image.open(io.BytesIO(image))
        if picture.height * picture.width > MOST_PIXELS:
            return None
        picture.draft("RGB", (2 * side, 2 * side))
        picture.thumbnail((side, side))
        data = io.BytesIO()
        picture.convert("RGB").save(data, "PNG")
    except Exception:  # noqa: BLE001  # damaged bytes make Pillow raise what it likes
        return None
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode("ascii")
