"""Decoders by name.

Those of other packages are found by the entry point `fieldslab.decoders`, whose value is a class
that fits `Decoder` and is made without arguments.
"""

import importlib
from functools import cache
from importlib.metadata import entry_points

from fieldslab.reader.decoders.decoder import Decoder
from fieldslab.schemas.codecs.known import ENTRY_POINT
from fieldslab.schemas.errors import MissingLibrary, UsageError
from fieldslab.schemas.images import CODES

BUILT_IN = {
    "planes": "fieldslab.reader.decoders.planes:Planes",
    "roi": "fieldslab.reader.decoders.roi:Roi",
    "turbojpeg": "fieldslab.reader.decoders.turbojpeg:TurboJpeg",
    "pillow": "fieldslab.reader.decoders.pillow:Pillow",
    "nvimagecodec": "fieldslab.reader.decoders.nvimagecodec:NvImageCodec",
}
"""Where each is; one whose library is missing raises MissingLibrary, with a hint."""
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
    others = {point.name: point for point in entry_points(group=ENTRY_POINT)}
    if name in BUILT_IN:
        module, _, made = BUILT_IN[name].partition(":")
        kind = getattr(importlib.import_module(module), made)
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
    """What to install for images of this code that nobody who is here takes."""
    hints = []
    for name in AUTO:
        try:
            find(name)
        except MissingLibrary as error:
            if code == CODES["jpeg"] or name != "turbojpeg":
                hints.append((error.hint or "").removeprefix("Install it: ").rstrip("."))
    return f"Install a decoder: {'; or '.join(hints)}." if hints else None
