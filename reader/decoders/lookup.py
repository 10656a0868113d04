"""Decoders by name, each made once, and the order in which they are tried."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from fieldslab.reader.decoders.decoder import Decoder
from fieldslab.schemas.codecs.decoders import AUTO, DECODERS
from fieldslab.schemas.errors import MissingLibrary
from fieldslab.schemas.images import CODES


def load_decoder(name: str) -> Decoder:
    """Load the decoder of this name, the same one each time.

    Raises
    ------
    UsageError
        Nothing has this name, or the package that provides it cannot be loaded.
    MissingLibrary
        It needs a library that is not here.
    """
    decoder = _try_load(name)
    if isinstance(decoder, MissingLibrary):
        raise MissingLibrary(decoder.problem, hint=decoder.hint, **decoder.context)
    return decoder


@cache
def load_device_decoder(device: str) -> Any:
    """Load the decoder that decodes to tensors of torch on a device, by torch's name for it.

    Raises MissingLibrary, and UsageError for a device that is not there.
    """
    load_decoder("nvimagecodec")  # names what is missing
    from fieldslab.reader.decoders.nvimagecodec import NvImageCodec
    from fieldslab.reader.pixels.device import parse_device_number

    return NvImageCodec(parse_device_number(device))


def list_candidates(name: str) -> Iterator[Decoder]:
    """List the decoders to try in turn: for "auto" all that are installed, or one, and `planes`.

    Pixels need no decoding, so `planes` takes them whatever the name. A decoder is imported, and
    its kernels compiled, when its turn comes. Raises as `load_decoder` does for a given name.
    """
    if name != "auto":
        yield from dict.fromkeys([load_decoder(name), load_decoder("planes")])
        return
    for each in AUTO:
        decoder = _try_load(each)
        if not isinstance(decoder, MissingLibrary):
            yield decoder


@cache
def _try_load(name: str) -> Decoder | MissingLibrary:
    """Return the decoder, or why it is missing; cached, since searching a library is slow."""
    if name not in DECODERS:
        raise DECODERS.make_unknown_error(name, ["auto"])
    try:
        decoder: Decoder = DECODERS.load(name)()
    except MissingLibrary as error:
        return error
    return decoder


def has_pillow() -> bool:
    """Return True if `pillow`, which decodes every format, is installed."""
    return not isinstance(_try_load("pillow"), MissingLibrary)


def suggest_install(code: int) -> str | None:
    """Suggest what to install for images of a code that no installed decoder takes."""
    hints = []
    for name in AUTO:
        decoder = _try_load(name)
        if isinstance(decoder, MissingLibrary) and (code == CODES["jpeg"] or name != "turbojpeg"):
            hints.append((decoder.hint or "").removeprefix("Install it: ").rstrip("."))
    return f"Install a decoder: {'; or '.join(hints)}." if hints else None
