"""Decoders by name.

Those of other packages are found by the entry point `fieldslab.decoders`, whose value is a class
that fits `Decoder` and is made without arguments.
"""

import importlib
from functools import cache
from importlib.metadata import entry_points
from typing import NamedTuple

from fieldslab.reader.decoders.decoder import Decoder
from fieldslab.schemas.errors import MissingLibrary, UsageError

GROUP = "fieldslab.decoders"


class BuiltIn(NamedTuple):
    """Where a decoder is, and what its library is installed with."""

    place: str
    install: str


BUILT_IN = {
    "planes": BuiltIn("fieldslab.reader.decoders.planes:Planes", ""),
    "roi": BuiltIn("fieldslab.reader.decoders.roi:Roi", ""),
    "turbojpeg": BuiltIn(
        "fieldslab.reader.decoders.turbojpeg:TurboJpeg",
        "apt install libturbojpeg0, brew install jpeg-turbo, or conda install libjpeg-turbo",
    ),
    "pillow": BuiltIn("fieldslab.reader.decoders.pillow:Pillow", "pip install 'fieldslab[image]'"),
    "nvimagecodec": BuiltIn(
        "fieldslab.reader.decoders.nvimagecodec:NvImageCodec", "pip install 'fieldslab[gpu]'"
    ),
}
AUTO = ("planes", "roi", "turbojpeg", "pillow")
"""Who is asked for an image, in turn, unless the user names one."""


@cache
def find(name: str) -> Decoder:
    """The decoder of this name, the same one each time.

    Raises
    ------
    UsageError
        There is none; the hint names those there are.
    MissingLibrary
        It needs a library that is not here.
    """
    others = {point.name: point for point in entry_points(group=GROUP)}
    if name in BUILT_IN:
        module, _, made = BUILT_IN[name].place.partition(":")
        try:
            kind = getattr(importlib.import_module(module), made)
        except ModuleNotFoundError as error:
            hint = f"Install it: {BUILT_IN[name].install}." if BUILT_IN[name].install else None
            raise MissingLibrary(f"no {error.name} for decoder `{name}`", hint=hint) from error
    elif name in others:
        kind = others[name].load()
    else:
        known = ", ".join(["auto", *BUILT_IN, *sorted(others.keys() - BUILT_IN.keys())])
        raise UsageError("no such decoder", found=name, hint=f"There are: {known}.")
    decoder: Decoder = kind()
    return decoder


def chain(name: str) -> list[Decoder]:
    """Who is asked, in turn: "auto" for all that are here, or one, and `planes`.

    Pixels need no decoding, so `planes` takes them whatever the name. Raises as `find` does for a
    name that is given.
    """
    if name != "auto":
        return list(dict.fromkeys([find(name), find("planes")]))
    found = []
    for each in AUTO:
        try:
            found.append(find(each))
        except MissingLibrary:
            continue
    return found


def missing(code: int) -> str | None:
    """What to install for images of this code, if a decoder that takes them is not here."""
    hints = []
    for name in AUTO:
        try:
            if code in find(name).codes:
                return None
        except MissingLibrary:
            if BUILT_IN[name].install:
                hints.append(BUILT_IN[name].install)
    return f"Install a decoder: {'; or '.join(hints)}." if hints else None
