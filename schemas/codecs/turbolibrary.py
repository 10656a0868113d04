"""libjpeg-turbo's TurboJPEG library: where it is, what it can do, and lossless transforms.

It is found by the symbols that a file exports, not by its name: as a library of the system or of
conda, or inside a wheel. Nothing here is needed to read a slab.
"""

import ctypes
import importlib.util
import struct
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fieldslab.schemas.errors import DamagedImage, MissingLibrary
from fieldslab.schemas.images import find_jpeg_frame
from fieldslab.schemas.system import load_libc

INSTALL = (
    "Install it: apt install libturbojpeg0 (Debian; libturbojpeg on Ubuntu), dnf install "
    "turbojpeg, brew install jpeg-turbo, conda install libjpeg-turbo, or pip install pylibjxl."
)
"""What to do where no library is found."""

STOP_ON_WARNING, LIMIT_SCANS = 8192, 32768
"""TJFLAG_*: a warning is a failure; a picture of more than 500 scans is an attack."""

MAX_PIXELS = 2**28
"""`convert_to_baseline` takes no larger picture: coefficients take six bytes a pixel of memory."""

_NEEDED = (
    "tjInitDecompress",
    "tjDestroy",
    "tjDecompressHeader3",
    "tjDecompressToYUVPlanes",
    "tjInitTransform",
    "tjTransform",
    "tjFree",
    "tjGetErrorStr2",
    "tjGetErrorCode",
)
"""Since 2.0."""
_REGIONS = (
    "tj3Init",
    "tj3Destroy",
    "tj3Set",
    "tj3Get",
    "tj3DecompressHeader",
    "tj3SetScalingFactor",
    "tj3SetCroppingRegion",
    "tj3Decompress8",
    "tj3GetErrorStr",
    "tj3GetErrorCode",
)
"""Since 3.0."""
_NAMES = ("libturbojpeg.so.0", "libturbojpeg.so", "libturbojpeg.0.dylib", "libturbojpeg.dylib")
_FOLDERS = (
    "/opt/homebrew/opt/jpeg-turbo/lib",
    "/usr/local/opt/jpeg-turbo/lib",
    "/opt/local/lib",
    "/opt/libjpeg-turbo/lib64",
)
_BASELINE = 0xC0


@dataclass(frozen=True)
class Library:
    """A loaded library.

    Attributes
    ----------
    path
        Its file.
    version
        As far as its symbols tell: "2.0 or 2.1", "3.0", "3.1 or newer".
    regions
        Whether it can leave out what lies outside a crop (3.0 and newer).
    functions
        Address of each exported function that fieldslab calls.
    """

    path: str
    version: str
    regions: bool
    functions: dict[str, int] = field(repr=False, hash=False)


@cache
def find_libraries() -> tuple[Library, ...]:
    """Find every libturbojpeg: the system's first, then conda's, then those inside wheels."""
    libraries: dict[str, Library] = {}
    for candidate in _list_candidates():
        library = load_library(candidate)
        if library is not None:
            libraries.setdefault(library.path, library)
    return tuple(libraries.values())


def choose_newest(libraries: Sequence[Library]) -> Library:
    """Choose the newest library. Raises MissingLibrary if there is none."""
    if not libraries:
        raise MissingLibrary("no TurboJPEG library was found", hint=INSTALL)
    return max(libraries, key=lambda library: library.version)


@cache
def load_library(name: str) -> Library | None:
    """Load a library by its path, or by a name that the system knows; None if it is not one."""
    try:
        opened = ctypes.CDLL(name)
    except OSError:
        return None
    if not all(hasattr(opened, needed) for needed in _NEEDED):
        return None
    regions = all(hasattr(opened, needed) for needed in _REGIONS)
    version = "2.0 or 2.1"
    if regions:
        version = "3.1 or newer" if hasattr(opened, "tj3TransformBufSize") else "3.0"
    required = _NEEDED + (_REGIONS if regions else ())
    functions = {
        function: ctypes.cast(getattr(opened, function), ctypes.c_void_p).value or 0
        for function in required
    }
    return Library(
        _find_library_file(functions["tjTransform"]) or name, version, regions, functions
    )


def _list_candidates() -> Iterator[str]:
    yield from _NAMES
    for folder in (*_FOLDERS, Path(sys.prefix) / "lib"):
        yield from (str(path) for name in _NAMES if (path := Path(folder) / name).exists())
    # Wheels that export the symbols. Their modules are not imported.
    spec = importlib.util.find_spec("pylibjxl")
    for location in (spec.submodule_search_locations or []) if spec else []:
        yield from map(str, sorted(Path(location).glob("_pylibjxl*.so")))
    for folder in sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}):
        yield from map(str, sorted(Path(folder).glob("turbojpeg.libs/libturbojpeg*.so*")))


class _Symbol(ctypes.Structure):
    """Dl_info of dlfcn.h."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _find_library_file(address: int) -> str | None:
    """Find the file that a function came from; None if the C library cannot tell."""
    try:
        dladdr = load_libc().dladdr
    except AttributeError:
        return None
    symbol = _Symbol()
    is_known = dladdr(ctypes.c_void_p(address), ctypes.byref(symbol))
    return str(Path(symbol.file.decode()).resolve()) if is_known and symbol.file else None


class _Transform(ctypes.Structure):
    """tjtransform: no crop, no operation, no option."""

    _fields_ = (
        ("region", ctypes.c_int * 4),
        ("operation", ctypes.c_int),
        ("options", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("filter", ctypes.c_void_p),
    )


_INIT = ctypes.CFUNCTYPE(ctypes.c_void_p)
_DESTROY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_ERROR = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_TRANSFORM = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_ulong,
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_ulong),
    ctypes.POINTER(_Transform),
    ctypes.c_int,
)


def convert_to_baseline(data: Any, library: Library | None = None) -> bytes:
    """Convert a JPEG to a baseline one with the same coefficients, and so the same pixels.

    Progressive files decode about three times slower, and have no index. EXIF, ICC profiles and
    other markers are kept; the Huffman tables are the standard's examples, so that the same file
    comes out the same whichever library did it. What is baseline already is returned as it is.

    Parameters
    ----------
    data
        Bytes, or anything that exports them.
    library
        Which library; the best there is if not given.

    Raises
    ------
    MissingLibrary
        No TurboJPEG library was found.
    DamagedImage
        It is no JPEG, it is damaged, of a kind that cannot be transformed, or too large.
    """
    image = np.frombuffer(data, np.uint8)
    try:
        marker, height, width = find_jpeg_frame(memoryview(image.data))
    except (ValueError, IndexError, struct.error) as error:
        raise DamagedImage("no JPEG header was found") from error
    if marker == _BASELINE:
        return image.tobytes()
    if height * width > MAX_PIXELS:
        raise DamagedImage(
            "has too many pixels", expected=f"up to {MAX_PIXELS}", found=f"{height}x{width}"
        )
    library = library or choose_newest(find_libraries())
    function = library.functions
    handle = _INIT(function["tjInitTransform"])()
    if not handle:
        raise MemoryError("tjInitTransform")
    target, size, transform = ctypes.c_void_p(), ctypes.c_ulong(), _Transform()
    try:
        failed = _TRANSFORM(function["tjTransform"])(
            handle,
            image.ctypes.data,
            image.size,
            1,
            ctypes.byref(target),
            ctypes.byref(size),
            ctypes.byref(transform),
            STOP_ON_WARNING | LIMIT_SCANS,
        )
        if failed:
            text = _ERROR(function["tjGetErrorStr2"])(handle).decode("ascii", "replace")
            raise DamagedImage("cannot be converted to a baseline JPEG", found=text)
        return ctypes.string_at(target.value or 0, size.value)
    finally:
        if target.value:
            _FREE(function["tjFree"])(target)
        _DESTROY(function["tjDestroy"])(handle)
