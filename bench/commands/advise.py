"""`fieldslab advise`."""

import sys
from typing import Annotated

import typer

from fieldslab.packer.commands.shared import FollowLinks, Json
from fieldslab.packer.commands.terminal import emit

GIVEN = "What is known"
EXAMPLES = """\
Examples:
  fieldslab advise train.slab
  fieldslab advise train.slab --fields image,label --crop 224
  fieldslab advise train.slab --fields x,y --batch-size 256 --step-ms 35 --memory 4G"""


def advise(
    slab: Annotated[str, typer.Argument(metavar="SLAB", help="A directory that pack wrote.")],
    batch_size: Annotated[
        int | None,
        typer.Option(
            "--batch-size",
            metavar="N",
            rich_help_panel=GIVEN,
            help="Rows in a batch. Without it, as few as are nearly as fast as any number.",
        ),
    ] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option(
            "--fields",
            metavar="a,b",
            rich_help_panel=GIVEN,
            help="The fields that are trained on; all without it.",
        ),
    ] = None,
    step_ms: Annotated[
        float | None,
        typer.Option(
            "--step-ms",
            metavar="MS",
            rich_help_panel=GIVEN,
            help="How long a training step takes; threads are then as few as keep up with it.",
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="SIZE",
            rich_help_panel=GIVEN,
            help="What batches may take, such as 4G; a quarter of the free memory without it.",
        ),
    ] = None,
    crop: Annotated[
        int | None,
        typer.Option(
            "--crop",
            metavar="N",
            min=1,
            rich_help_panel=GIVEN,
            help="Decode images: a random crop of each, resized to N x N pixels, flipped and "
            "normalized. They are read only, without it.",
        ),
    ] = None,
    follow_links: FollowLinks = False,
    as_json: Json = False,
) -> None:
    """Recommend batch size, threads and prefetch for a slab on this machine.

    Random rows of it are gathered and loaded for some seconds. Prints what suits, the memory that
    it takes, and what was measured.
    """
    from fieldslab.packer.option_values import parse_size
    from fieldslab.reader import Normalize, RandomHorizontalFlip, RandomResizedCrop, open_slab
    from fieldslab.reader.advisor import advise as measure
    from fieldslab.schemas.errors import UsageError

    names = [name.strip() for item in fields or () for name in item.split(",")]
    opened = open_slab(slab, follow_links=follow_links)
    chosen = opened.names(names or None)
    images = [name for name in chosen if opened.fields[name].kind == "image"]
    if crop is not None and not images:
        raise UsageError("--crop decodes images, and there is no field of them", file=slab)
    steps = [] if crop is None else [RandomResizedCrop(crop), RandomHorizontalFlip(), Normalize()]
    found = measure(
        opened,
        batch_size,
        fields=names or None,
        step_ms=step_ms,
        decode=dict.fromkeys(images, steps) if steps else None,
        memory=None if memory is None else parse_size("memory", memory),
    )
    if images and not steps:
        print(
            f"warning: {', '.join(images)}: read, but not decoded, which takes more threads. "
            "--crop N decodes them too.",
            file=sys.stderr,
        )
    if as_json:
        emit(found.as_dict())
    else:
        print(found)
