"""`fieldslab info`."""

import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fieldslab.packer.commands.params import PATH, Argument, Option, command
from fieldslab.packer.commands.shared import FOLLOW_LINKS, ID, JSON, SLABS_HELP, STORAGE_OPTION
from fieldslab.packer.commands.terminal import (
    get_terminal_width,
    print_json,
    print_lines,
    print_warning,
)
from fieldslab.schemas.errors import UsageError

if TYPE_CHECKING:
    from fieldslab.schemas.codecs.decoders import DecoderInfo

EXAMPLES = """\
Examples:
  fieldslab info train.slab
  fieldslab info --decoders"""


@command(
    Argument(
        "slab",
        "SLAB",
        SLABS_HELP,
        type=PATH,
        required=False,
    ),
    Option("--decoders", "Options", "Show the image decoders on this machine instead."),
    ID,
    FOLLOW_LINKS,
    STORAGE_OPTION,
    JSON,
    examples=EXAMPLES,
)
def info(
    slab: str | None,
    decoders: bool,
    content: str | None,
    follow_links: bool,
    storage_options: dict[str, Any] | None,
    as_json: bool,
) -> None:
    """Show what is in a slab: rows, fields and their types, and where it came from."""
    if decoders:
        _show_decoders(as_json)
        return
    if slab is None:
        raise UsageError("missing argument 'SLAB'", hint="fieldslab info --help lists the options.")
    from fieldslab.packer.commands import slabs
    from fieldslab.schemas.folder import check_pinned
    from fieldslab.schemas.stores.slab_objects import open_slab_anywhere
    from fieldslab.schemas.unions.open_members import names_many

    if names_many(slab):
        from fieldslab.packer.commands.union import show_union

        show_union(slab, storage_options, as_json, content)
        return
    with open_slab_anywhere(
        slab, follow_links=follow_links, storage_options=storage_options
    ) as files:
        check_pinned(content, files.manifest.id, files.path)
        if as_json:
            print_json(slabs.info_to_json(files))
            return
        for warning in files.manifest.made.warnings:
            print_warning(warning)
        print_lines(slabs.format_info(files, get_terminal_width(sys.stdout)))


def _show_decoders(as_json: bool) -> None:
    from fieldslab.schemas.codecs.decoders import describe_decoders

    decoders = describe_decoders()
    if as_json:
        print_json([decoder._asdict() for decoder in decoders])
        return
    print_lines(format_decoders(decoders, get_terminal_width(sys.stdout)))


def format_decoders(decoders: Sequence["DecoderInfo"], width: int | None) -> Iterator[str]:
    """Yield a line for each decoder, and below it its library, its problem, and what to do."""
    names = max(len(decoder.name) for decoder in decoders) + 2
    indent = " " * (names + 5)
    for decoder in decoders:
        availability = "yes" if decoder.here else "no"
        yield f"{decoder.name:{names}}{availability:5}{decoder.takes}"
        library = decoder.library and f"{decoder.library} {decoder.version or 'was not found'}"
        if library or decoder.path:
            yield indent + ": ".join(filter(None, [library, decoder.path]))
        for text in filter(None, [decoder.note and f"{decoder.note}.", decoder.install]):
            room = max((width or sys.maxsize) - len(indent), 30)
            yield from (indent + line for line in textwrap.wrap(text, room))
