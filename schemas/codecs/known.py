"""The decoders of images that fieldslab has, which of them are here, and what is missing.

Nothing but libturbojpeg is loaded to find out. The decoders themselves are in the reader.
"""

import ctypes
import importlib.util
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import NamedTuple

from fieldslab.schemas.codecs.turbojpeg import INSTALL, find_all, newest
from fieldslab.schemas.errors import MissingLibrary

ENTRY_POINT = "fieldslab.decoders"

GPU_INSTALL = "pip install 'nvidia-nvimgcodec-cu12[nvjpeg]>=0.8', or -cu13 for CUDA 13"
_GPU_PACKAGES = ("nvidia-nvimgcodec-cu12", "nvidia-nvimgcodec-cu13")


class Known(NamedTuple):
    """A decoder, and what was found of it.

    Attributes
    ----------
    name
        As `decoder=` takes it.
    takes
        Which images, in a few words.
    here
        Whether it can be used.
    library, version, path
        Which library it takes, None if it needs none; and what was found of it.
    note
        What it costs that a library is missing or old; empty if all is well.
    install
        What to do about that: a sentence, or empty.
    """

    name: str
    takes: str
    here: bool
    library: str | None
    version: str | None
    path: str | None
    note: str
    install: str


def known_decoders() -> list[Known]:
    """All decoders, our own in the order in which they are asked, then those of other packages."""
    return [
        Known("planes", "pixels stored by pack", True, None, None, None, "", ""),
        Known("roi", "baseline JPEG, by its index", True, None, None, None, "", ""),
        _turbojpeg(),
        _pillow(),
        _nvimagecodec(),
        *_others(),
    ]


def count_gpus() -> int:
    """How many GPUs CUDA's driver sees; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


def _turbojpeg() -> Known:
    takes, name = "JPEG, progressive as well", "libjpeg-turbo"
    try:
        library = newest(find_all())
    except MissingLibrary:
        note = (
            "progressive JPEG, and JPEG without an index, is left to Pillow, which takes more than "
            "twice the time; images cannot be packed as `baseline`"
        )
        return Known("turbojpeg", takes, False, name, None, None, note, INSTALL)
    note = install = ""
    if not library.regions:
        note = "decodes all that is above, left and right of a crop; 3.x does not"
        install = "Install 3.x: pip install pylibjxl, or conda install libjpeg-turbo."
    return Known("turbojpeg", takes, True, name, library.version, library.path, note, install)


def _pillow() -> Known:
    path = _folder_of("PIL")
    install = "" if path else "Install it: pip install 'pillow>=11.3'."
    note = "" if path else "PNG, WebP, CMYK and whatever else is not JPEG cannot be decoded"
    found = _version("pillow") if path else None
    return Known("pillow", "everything else", bool(path), "Pillow", found, path, note, install)


def _nvimagecodec() -> Known:
    takes, name = "JPEG on NVIDIA GPUs, where it is asked for", "nvImageCodec"
    path = _folder_of("nvidia.nvimgcodec")
    if path is None:
        install = f"Install it: {GPU_INSTALL}."
        note = "GPUs decode no images"
        return Known("nvimagecodec", takes, False, name, None, None, note, install)
    found = next((text for name in _GPU_PACKAGES if (text := _version(name))), None)
    note = "never run on a GPU so far: what is tested is the same code on the processor"
    if not count_gpus():
        note = "no GPU is here: it decodes on the processor, all that is tested so far"
    return Known("nvimagecodec", takes, True, name, found, path, note, "")


def _others() -> Iterator[Known]:
    for point in sorted(entry_points(group=ENTRY_POINT)):
        found = point.dist.version if point.dist else None
        package = point.dist.name if point.dist else point.value
        yield Known(point.name, "what its package says", True, package, found, None, "", "")


def _folder_of(package: str) -> str | None:
    """Where a package is; it is not imported, though the one that it is in may be."""
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return None
    return str(Path(spec.origin).parent) if spec and spec.origin else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
