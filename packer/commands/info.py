"""`fieldslab info`."""

import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from fieldslab.packer.commands.shared import FollowLinks, Json
from fieldslab.packer.commands.terminal import emit, emit_lines, warn, width_of
from fieldslab.schemas.errors import UsageError

if TYPE_CHECKING:
    from fieldslab.schemas.codecs.decoders import Known

EXAMPLES = """\
Examples:
  fieldslab info train.slab
  fieldslab info --decoders"""


def info(
    slab: Annotated[
        str | None,
        typer.Argument(
            metavar="SLAB",
            help="A directory that pack wrote.",
        ),
    ] = None,
    decoders: Annotated[
        bool,
        typer.Option(
            "--decoders",
            help="Show what images can be decoded with on this machine instead.",
        ),
    ] = False,
    follow_links: FollowLinks = False,
    as_json: Json = False,
) -> None:
    """Show what is in a slab: rows, fields and their types, and where it came from."""
    if decoders:
        _info_decoders(as_json)
        return
    if slab is None:
        raise UsageError(
            "missing argument 'SLAB'", hint="fieldslab info --help lists what there is."
        )
    from fieldslab.packer.commands import slabs
    from fieldslab.schemas.folder import open_files

    with open_files(slab, follow_links=follow_links) as files:
        if as_json:
            emit(slabs.info_json(files))
            return
        for warning in files.manifest.made.warnings:
            warn(warning)
        emit_lines(slabs.info_lines(files, width_of(sys.stdout)))


def _info_decoders(as_json: bool) -> None:
    from fieldslab.schemas.codecs.decoders import known_decoders

    found = known_decoders()
    if as_json:
        emit([one._asdict() for one in found])
        return
    emit_lines(decoder_lines(found, width_of(sys.stdout)))


def decoder_lines(found: Sequence["Known"], width: int | None) -> Iterator[str]:
    """A line for each decoder, and below it its library, what is amiss, and what to do."""
    names = max(len(one.name) for one in found) + 2
    indent = " " * (names + 5)
    for one in found:
        yield f"{one.name:{names}}{'yes' if one.here else 'no':5}{one.takes}"
        library = one.library and f"{one.library} {one.version or 'was not found'}"
        if library or one.path:
            yield indent + ": ".join(filter(None, [library, one.path]))
        for text in filter(None, [one.note and f"{one.note}.", one.install]):
            room = max((width or sys.maxsize) - len(indent), 30)
            yield from (indent + line for line in textwrap.wrap(text, room))
