"""Images of a slab as files, for people to look at: `fieldslab head --images DIR`."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fieldslab.packer.check.stored import StoredRows, StoredSlab
from fieldslab.packer.commands.values import find_codec, select_row
from fieldslab.packer.convert import pixels
from fieldslab.packer.convert.misfit import Misfit
from fieldslab.packer.image_options import ImageForm
from fieldslab.schemas.errors import DamagedImage, OutputError, UsageError
from fieldslab.schemas.fields import Field
from fieldslab.schemas.images import PIXELS

_SUFFIXES = {"jpeg": "jpg", "png": "png", "webp": "webp", None: "bin"}


def write_images(
    slab: StoredSlab, rows: Sequence[int], fields: Sequence[Field], folder: Path, side: int | None
) -> list[Path]:
    """Write a file for each image of these rows: encoded ones as they are, pixels as PNG.

    With `side`, larger images are made smaller until their longer side has so many pixels; those
    that cannot be decoded stay as they are.

    Raises
    ------
    UsageError
        None of these fields has images.
    DamagedImage
        Pixels are not as many as their size says.
    MissingLibrary
        Pixels, or another size, need Pillow.
    OutputError
        The files cannot be written.
    """
    images = [field for field in fields if field.kind == "image"]
    if not images:
        raise UsageError("--images: the slab has no image fields", file=slab.path)
    digits, written = len(str(max(slab.manifest.rows - 1, 0))), []
    for row in rows:
        for field in images:
            stored = select_row(slab.read(field, row, row + 1), 0)
            if not len(stored.values):
                continue
            try:
                data, suffix = _encode_image(field, stored, side)
            except Misfit as error:
                raise DamagedImage(
                    error.problem,
                    field=field.name,
                    row=row,
                    expected=error.expected,
                    found=error.found,
                ) from error
            path = folder / f"{row:0{digits}}-{field.stem}.{suffix}"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            except OSError as error:
                raise OutputError(f"cannot be written: {error.strerror}", file=path) from error
            written.append(path)
    return written


def _encode_image(
    field: Field, row: StoredRows, side: int | None
) -> tuple[bytes | memoryview, str]:
    """Encode an image file, and return its bytes and the suffix of its name."""
    codec = find_codec(field, row)
    if codec in PIXELS or side is not None:
        pixels.get_library_version()
    if codec in PIXELS:
        height, width = row.other_arrays["size"][0].tolist()
        return pixels.encode_png(codec, row.values, height, width, side), "png"
    image = memoryview(row.values.data)
    if side is not None and codec is not None:
        try:
            smaller = pixels.encode_smaller(image, ImageForm("jpeg", long_side=side), Counter())
        except Misfit:  # damaged, which the file shows best as it is
            smaller = image
        if smaller is not image:
            return smaller, "jpg"
    return image, _SUFFIXES[codec]
