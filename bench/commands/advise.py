"""`fieldslab advise`."""

import sys
from collections.abc import Sequence
from typing import Any

import click

from fieldslab.packer.commands.params import Option, command
from fieldslab.packer.commands.shared import FOLLOW_LINKS, ID, JSON, OPENING, ROWS_FILE, SLABS
from fieldslab.packer.commands.terminal import print_json

TRAINING = "Training"
EXAMPLES = """\
Examples:
  fieldslab advise train.slab
  fieldslab advise train.slab --fields image,label --crop 224
  fieldslab advise train.slab --fields x,y --batch-size 256 --step-ms 35 --memory 4G"""


@command(
    SLABS,
    Option(
        "--batch-size",
        TRAINING,
        "Rows in a batch. The default is the smallest that is about as fast as any.",
        "N",
        type=int,
    ),
    Option(
        "--fields",
        TRAINING,
        "Fields that are trained on. The default is all fields.",
        "a,b",
        multiple=True,
    ),
    Option(
        "--step-ms",
        TRAINING,
        "Duration of a training step. The advice is then the fewest threads that keep up with it.",
        "MS",
        type=float,
    ),
    Option(
        "--memory",
        TRAINING,
        "Memory limit for batches, e.g. 4G. The default is a quarter of the free memory.",
        "SIZE",
    ),
    Option(
        "--crop",
        TRAINING,
        "Also decode the images: take a random crop of each, resize it to N x N pixels, flip and "
        "normalize it. By default, images are only read.",
        "N",
        type=click.IntRange(min=1),
    ),
    ID,
    ROWS_FILE,
    FOLLOW_LINKS,
    *OPENING,
    JSON,
    examples=EXAMPLES,
)
def advise(
    slab: str,
    batch_size: int | None,
    fields: Sequence[str],
    step_ms: float | None,
    memory: str | None,
    crop: int | None,
    content: str | None,
    as_json: bool,
    **opening: Any,
) -> None:
    """Recommend batch size, threads and prefetch for a slab on this machine.

    Gathers and loads random rows for some seconds. Prints the recommended settings, the memory
    that they take, and what was measured.
    """
    from fieldslab.bench.openview import open_view
    from fieldslab.reader import Normalize, RandomHorizontalFlip, RandomResizedCrop
    from fieldslab.reader.advisor import advise as measure
    from fieldslab.schemas.bytesizes import parse_size
    from fieldslab.schemas.errors import UsageError

    names = [name.strip() for item in fields for name in item.split(",")]
    opened = open_view(slab, id=content, **opening)
    chosen = opened.names(names or None)
    images = [name for name in chosen if opened.fields[name].kind == "image"]
    if crop is not None and not images:
        raise UsageError("--crop decodes images, and there is no field of them", file=slab)
    steps = [] if crop is None else [RandomResizedCrop(crop), RandomHorizontalFlip(), Normalize()]
    advice = measure(
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
        print_json(advice.as_dict())
    else:
        print(advice)
