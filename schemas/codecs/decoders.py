"""The decoders of images: by name, which of them are here, and what is missing.

Nothing but libturbojpeg is loaded to find out. The decoders themselves are in the reader.
"""

import ctypes
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fieldslab.schemas.codecs.turbolibrary import INSTALL, choose_newest, find_libraries
from fieldslab.schemas.errors import MissingLibrary
from fieldslab.schemas.registry import Registry
from fieldslab.schemas.version import get_package_version

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GPU_INSTALL = "pip install 'nvidia-nvimgcodec-cu12[nvjpeg]>=0.8', or -cu13 for CUDA 13"
_GPU_PACKAGES = ("nvidia-nvimgcodec-cu12", "nvidia-nvimgcodec-cu13")


class DecoderInfo(NamedTuple):
    """A decoder, and which version of its library is installed.

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
    here: bool = True
    library: str | None = None
    version: str | None = None
    path: str | None = None
    note: str = ""
    install: str = ""


def describe_decoders() -> list[DecoderInfo]:
    """Describe our own decoders, in the order in which they are tried, then those of plugins."""
    return [
        *(
            entry.inspect(DecoderInfo(name, entry.takes, library=entry.library))
            for name, entry in _OWN.items()
        ),
        *(_describe_plugin(point) for point in DECODERS.find_plugins().values()),
    ]


def count_gpus() -> int:
    """Count the GPUs that CUDA's driver sees; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


def _describe_turbojpeg(info: DecoderInfo) -> DecoderInfo:
    try:
        library = choose_newest(find_libraries())
    except MissingLibrary:
        note = (
            "progressive JPEG, and JPEG without an index, is left to Pillow, which takes more than "
            "twice the time; images cannot be packed as `baseline`"
        )
        return info._replace(here=False, note=note, install=INSTALL)
    info = info._replace(version=library.version, path=library.path)
    if library.regions:
        return info
    note = "decodes all that is above, left and right of a crop; 3.x does not"
    install = "Install 3.x: pip install pylibjxl, or conda install libjpeg-turbo."
    return info._replace(note=note, install=install)


def _describe_pillow(info: DecoderInfo) -> DecoderInfo:
    path = _find_package_folder("PIL")
    if path is not None:
        return info._replace(version=_find_version("pillow"), path=path)
    note = "PNG, WebP, CMYK and whatever else is not JPEG cannot be decoded"
    return info._replace(here=False, note=note, install="Install it: pip install 'pillow>=11.3'.")


def _describe_nvimagecodec(info: DecoderInfo) -> DecoderInfo:
    path = _find_package_folder("nvidia.nvimgcodec")
    if path is None:
        install = f"Install it: {GPU_INSTALL}."
        return info._replace(here=False, note="GPUs decode no images", install=install)
    package_version = next((text for name in _GPU_PACKAGES if (text := _find_version(name))), None)
    note = "never run on a GPU so far: what is tested is the same code on the processor"
    if not count_gpus():
        note = "there is no GPU: it decodes on the processor, all that is tested so far"
    return info._replace(version=package_version, path=path, note=note)


def _describe_plugin(point: "EntryPoint") -> DecoderInfo:
    package_version = point.dist.version if point.dist else None
    package = point.dist.name if point.dist else point.value
    return DecoderInfo(
        point.name, "what its package says", library=package, version=package_version
    )


def _find_package_folder(package: str) -> str | None:
    """Find the folder of a package without importing it; its parent packages may be imported."""
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return None
    return str(Path(spec.origin).parent) if spec and spec.origin else None


def _find_version(package: str) -> str | None:
    try:
        return get_package_version(package)
    except ModuleNotFoundError:
        return None


class _BuiltInDecoder(NamedTuple):
    """A decoder of the reader: its class, which images it takes, and the library that it needs."""

    import_path: str
    takes: str
    library: str | None = None
    inspect: Callable[[DecoderInfo], DecoderInfo] = lambda info: info
    """Enters what is found of the library."""
    auto: bool = True
    """Whether it is asked for an image unless the user names another."""


_READER = "fieldslab.reader.decoders"
_OWN = {
    "planes": _BuiltInDecoder(f"{_READER}.planes:Planes", "pixels stored by pack"),
    "roi": _BuiltInDecoder(f"{_READER}.roi:Roi", "baseline JPEG, by its index"),
    "turbojpeg": _BuiltInDecoder(
        f"{_READER}.turbojpeg:TurboJpeg",
        "JPEG, progressive as well",
        "libjpeg-turbo",
        _describe_turbojpeg,
    ),
    "pillow": _BuiltInDecoder(
        f"{_READER}.pillow:Pillow", "everything else", "Pillow", _describe_pillow
    ),
    "nvimagecodec": _BuiltInDecoder(
        f"{_READER}.nvimagecodec:NvImageCodec",
        "JPEG on NVIDIA GPUs, where it is asked for",
        "nvImageCodec",
        _describe_nvimagecodec,
        auto=False,
    ),
}
DECODERS = Registry(
    "decoder", "fieldslab.decoders", {name: own.import_path for name, own in _OWN.items()}
)
"""Every decoder. Each is a class that fits `Decoder` in `fieldslab.reader.decoders.decoder`."""
AUTO = tuple(name for name, own in _OWN.items() if own.auto)
"""Who is asked for an image, in turn, unless the user names one."""
